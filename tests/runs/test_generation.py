from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gmlfm import Recommender, load_dataset
from gmlfm.errors import DataError, OptionError
from gmlfm.models.fm import FM
from gmlfm.models.mf import MF
from gmlfm.runs import load_run, model_folder, save_run
from gmlfm.runs.migration import FORMAT
from tests.contracts.checkerboard import checkerboard
from tests.runs.edited import reseal


class NotRegistered(FM):
    """An FM under no name."""


class _Holder:
    class NotRegistered(FM):
        """Another class whose last name is the same."""


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.name.endswith("lock")}


def test_a_run_comes_back_as_it_was(saved: Path, tmp_path: Path) -> None:
    run, about = load_run(saved)
    assert about["format"] == FORMAT
    save_run(run, tmp_path / "copy", also={tmp_path / "copy" / "events.jsonl": "by hand\n"})
    copied, about_copied = load_run(tmp_path / "copy")
    assert about_copied == about
    assert copied.settings == run.settings
    assert (copied.report, copied.refit, copied.limits, copied.label_scale) == (
        run.report,
        run.refit,
        run.limits,
        run.label_scale,
    )
    assert copied.data.content_hash == run.data.content_hash
    assert copied.split.hash == run.split.hash
    for name, tensor in run.model.state_dict().items():
        assert tensor.equal(copied.model.state_dict()[name])
    assert (tmp_path / "copy" / "events.jsonl").read_text() == "by hand\n"
    names = {path.name for path in model_folder(tmp_path / "copy").iterdir()}
    assert names == {"card.md", "weights.safetensors", "encoder", "data", "curve.jsonl"}
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"run.json", "generations", "events.jsonl"}
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.suffix in (".pkl", ".pt", ".pickle")]


def test_the_training_curve_is_in_the_run(saved: Path) -> None:
    curve = [json.loads(text) for text in (model_folder(saved) / "curve.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in curve] == [1]
    assert load_run(saved)[0].curve == curve
    assert (saved / "curve.jsonl").read_text() == (model_folder(saved) / "curve.jsonl").read_text()


def test_what_is_no_run_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no run: .*run.json is missing; make one with gmlfm train"):
        load_run(tmp_path)
    path = folder / "run.json"
    text = path.read_text()
    path.write_text(text.replace(f'"format": {FORMAT}', '"format": 7'))
    with pytest.raises(DataError, match=f"has the format 7, this version reads up to {FORMAT}; update gmlfm"):
        load_run(folder)
    path.write_text(text.replace('"k": 8', '"k": 9'))
    with pytest.raises(DataError, match=r"run.json was changed after it was saved \(its checksum differs\)"):
        load_run(folder)
    path.write_text(text)
    reseal(folder, lambda about: about["settings"].update(k=9))
    with pytest.raises(DataError, match=r"the weights do not fit the model \(their rows have the shape"):
        load_run(folder)
    for nonsense, message in (("nonsense", "cannot be read"), ("[" * 100_000, "cannot be read"), ("[]", "has the format None")):
        path.write_text(nonsense)
        with pytest.raises(DataError, match=message):
            load_run(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:100],
        lambda content: content[:1000] + bytes(8192) + content[9192:],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: b"",
    ],
    ids=["cut", "zeros", "a bit", "empty"],
)
def test_files_that_are_not_those_that_were_written_are_refused(change: Callable[[bytes], bytes], folder: Path) -> None:
    files = [path for path in model_folder(folder).rglob("*") if path.is_file()]
    assert len(files) >= 11
    for path in files:
        content = path.read_bytes()
        path.write_bytes(change(content))
        if path.read_bytes() != content:
            with pytest.raises(DataError, match=rf"{path.name} is damaged, or not the file of this run") as caught:
                load_run(folder)
            assert "\n" not in str(caught.value)
        path.unlink()
        with pytest.raises(DataError, match=rf"{path.name} is missing or cannot be read"):
            load_run(folder)
        path.write_bytes(content)
    load_run(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about.pop("limits"), "has no 'limits'; it is damaged, train again"),
        (lambda about: about.update(refit="sometimes"), "is damaged .*'sometimes' is not a valid Refit"),
        (lambda about: about.update(limits=3), "is damaged"),
        (lambda about: about.update(limits=[None, 1]), "is damaged"),
        (lambda about: about.update(settings=["k"]), "is damaged"),
        (lambda about: about.update(extra_items=5), "is damaged"),
    ],
)
def test_a_damaged_description_is_one_sentence(change: Callable[[dict[str, Any]], Any], message: str, folder: Path) -> None:
    reseal(folder, change)
    with pytest.raises(DataError, match=message) as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)


def test_weights_of_another_table_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    Recommender(k=8, epochs=0, threads=1).fit(checkerboard(rows_per_user=3), "none", out=other)
    weights = model_folder(folder) / "weights.safetensors"
    weights.write_bytes((model_folder(other) / "weights.safetensors").read_bytes())
    with pytest.raises(DataError, match=r"weights.safetensors is damaged, or not the file of this run"):
        load_run(folder)
    reseal(folder)
    with pytest.raises(DataError, match=r"the weights do not fit the model \(their table has [\d,]+ rows, expected"):
        load_run(folder)


def test_a_disk_that_is_full_leaves_the_old_run_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _files(folder)
    recommender = Recommender.load(folder)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gmlfm.runs.generation.save_dataset", full)
    with pytest.raises(DataError, match="No space left on device"):
        recommender.save(folder)
    assert _files(folder) == before


def test_foreign_files_beside_the_model_are_never_lost(folder: Path) -> None:
    thesis = model_folder(folder) / "data" / "thesis.tex"
    thesis.write_text("years of work")
    Recommender.load(folder).save(folder)
    assert thesis.parent.parent != model_folder(folder)
    assert [path for path in thesis.parent.parent.rglob("*") if path.is_file()] == [thesis]
    Recommender.load(folder).forget("u1")
    assert thesis.read_text() == "years of work"


def test_a_model_without_a_name_is_loaded_with_its_class_alone(tmp_path: Path) -> None:
    board = checkerboard()
    recommender = Recommender(NotRegistered, k=2, epochs=1, threads=1).fit(board, out=tmp_path / "r")
    name = f"{__name__}:NotRegistered"
    assert json.loads((tmp_path / "r" / "run.json").read_text())["model"] == name
    with pytest.raises(OptionError) as caught:
        load_run(tmp_path / "r")
    assert f"model=NotRegistered), or --model {name}." in str(caught.value)
    for model in (NotRegistered, name):
        run, _ = load_run(tmp_path / "r", model)  # type: ignore[arg-type]
        assert isinstance(run.model, NotRegistered)
        assert run.settings.model == name
    for other in (MF, FM, "fm", _Holder.NotRegistered):
        with pytest.raises(OptionError, match=r"holds a run of '.*NotRegistered', not of '"):
            load_run(tmp_path / "r", other)  # type: ignore[arg-type]
    Recommender(k=2, epochs=0, threads=1).fit(board, out=tmp_path / "named")
    with pytest.raises(OptionError, match="holds a run of 'gml-fm', not of"):
        load_run(tmp_path / "named", NotRegistered)
    assert Recommender.load(tmp_path / "r", NotRegistered).predict([("u1", "i1")]).equals(recommender.predict([("u1", "i1")]))


def test_a_folder_decides_on_no_import(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("trap:Model", "trap"):
        reseal(folder, lambda about, name=name: about.update(model=name))  # type: ignore[misc]
        with pytest.raises(OptionError, match=f"holds a run of '{name}', which is no model of gmlfm's own; give its class"):
            load_run(folder)


def test_the_card_marks_what_was_trained_as_published(saved: Path, small_market: Path, tmp_path: Path) -> None:
    marked = "chosen on the TEST part"
    assert marked not in (model_folder(saved) / "card.md").read_text()
    published = Recommender("gml-fm-dnn", preset="paper", k=4, epochs=1, threads=1)
    published.fit(load_dataset(small_market), out=tmp_path / "r")
    assert published.settings.batches.fresh is False
    assert marked in (model_folder(tmp_path / "r") / "card.md").read_text()
    loaded = Recommender.load(tmp_path / "r")
    assert loaded.settings.as_published
    loaded.save(tmp_path / "copy")
    assert marked in (model_folder(tmp_path / "copy") / "card.md").read_text()


def test_a_run_of_before_there_were_histories_has_none(tmp_path: Path) -> None:
    """Though its model reads one by default today."""
    Recommender("fm", k=4, epochs=1, threads=1, history="none").fit(checkerboard(), out=tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    for name in ("history", "half_life", "history_length", "history_dropout", "piece", "user_id"):
        about["settings"].pop(name)
    (tmp_path / "run.json").write_text(json.dumps(about))
    reseal(tmp_path)
    assert load_run(tmp_path)[0].settings.history.history == "none"
