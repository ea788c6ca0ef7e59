from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.errors import DataError
from gmlfm.runs import RunFolder, load_run, model_folder, save_run
from gmlfm.runs.layout import rests
from gmlfm.runs.locking import training_lock, writers_lock
from tests.contracts.checkerboard import checkerboard
from tests.runs.dying import Death, Dying

NEW = pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [1.0], "tags": [["x"]]})

# What is observed by a run without histories is kept, and said to change no score.
pytestmark = pytest.mark.filterwarnings("ignore:this run of .* does not read what users did before")


def _users(folder: Path) -> set[str]:
    return set(Recommender.load(folder).fitted.data.users.ids.to_list())


def test_what_one_forgot_another_does_not_bring_back(folder: Path) -> None:
    left, right = Recommender.load(folder), Recommender.load(folder)
    left.mark_sold(["i1"])
    left.forget("u1")
    right.forget("u2")
    assert _users(folder).isdisjoint({"u1", "u2"})
    assert Recommender.load(folder).stock.marks == {"i1": "sold"}
    left.mark_sold(["i2"])
    right.mark_back(["i1"])
    assert Recommender.load(folder).stock.marks == {"i1": "back", "i2": "sold"}
    with pytest.raises(DataError, match="the user 'u1' is unknown already"):
        left.forget("u1")
    right.forget("u1")  # whom it still has in memory
    assert right.fitted.encoder.user_numbers(["u1", "u2"]).tolist() == [-1, -1]


def test_new_items_are_saved_beside_what_others_forgot(folder: Path) -> None:
    left, right = Recommender.load(folder), Recommender.load(folder)
    left.add_items(NEW)
    right.forget("u1")
    right.mark_sold(["i2"])
    left.save(folder)
    loaded = Recommender.load(folder)
    assert "n" in loaded.fitted.data.items.ids.to_list()
    assert "u1" not in loaded.fitted.data.users.ids.to_list()
    assert "u1" not in left.fitted.data.users.ids.to_list()
    assert left.stock.marks == loaded.stock.marks == {"i2": "sold"}


def test_observed_rows_survive_whatever_others_do(folder: Path) -> None:
    left, right = Recommender.load(folder), Recommender.load(folder)
    left.observe({"user": "u1", "item": "i1", "time": 1_000})
    right.forget("u2")
    left.observe({"user": "u4", "item": "i2", "time": 1_000})  # into the log that was written anew
    right.add_items(NEW)
    right.observe({"user": "u1", "item": "n"})
    right.save(folder)
    left.observe({"user": "u5", "item": "i3"})
    loaded = Recommender.load(folder)
    assert sorted(row[0] for row in loaded.observed.rows()) == ["u1", "u1", "u4", "u5"]
    assert loaded.observed.of("u1") == ((1, 1_000), (42, None))
    right.save(folder, force=True)
    assert Recommender.load(folder).observed.n == 4


def test_what_somebody_else_changed_is_not_undone(folder: Path) -> None:
    left, right = Recommender.load(folder), Recommender.load(folder)
    left.add_items(NEW)
    left.save(folder)
    left.save(folder)  # one's own is no reason to refuse
    with pytest.raises(DataError, match=r"was changed by somebody else since it was read here; load it again"):
        right.save(folder)
    assert "n" in Recommender.load(folder).fitted.data.items.ids.to_list()
    right.forget("u1")  # which is replayed on what is there now
    loaded = Recommender.load(folder)
    assert "n" in loaded.fitted.data.items.ids.to_list()
    assert "u1" not in loaded.fitted.data.users.ids.to_list()
    with pytest.raises(DataError, match="was changed by somebody else"):
        right.save(folder)
    right.save(folder, force=True)
    assert "n" not in Recommender.load(folder).fitted.data.items.ids.to_list()
    assert "u1" not in _users(folder)


def test_forgetting_saves_nothing_else(folder: Path) -> None:
    recommender = Recommender.load(folder)
    recommender.add_items(NEW)
    recommender.forget("u1")
    assert "n" in recommender.fitted.data.items.ids.to_list()
    assert "n" not in Recommender.load(folder).fitted.data.items.ids.to_list()
    recommender.save(folder)
    assert "n" in Recommender.load(folder).fitted.data.items.ids.to_list()


def test_another_run_is_replaced_on_purpose_alone(folder: Path, tmp_path: Path) -> None:
    other = Recommender("popularity").fit(checkerboard())
    with pytest.raises(DataError, match=r"holds another run; choose a new folder, or replace it on purpose \(force\)"):
        other.save(folder)
    Recommender.load(folder).forget("u3")
    other.save(folder, force=True)
    loaded = Recommender.load(folder)
    assert loaded.settings.model == "popularity"
    assert "u3" not in loaded.fitted.data.users.ids.to_list()  # a folder does not forget whom it forgot
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(DataError, match=r"holds 'chapter\.tex', which gmlfm did not write"):
        other.save(tmp_path / "thesis")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]


def test_a_copy_of_a_run_knows_whom_it_forgot(folder: Path, tmp_path: Path) -> None:
    recommender = Recommender.load(folder)
    recommender.forget("u3")
    recommender.save(tmp_path / "copy")
    with pytest.warns(UserWarning, match="1 user who was forgotten in .*copy will be left out"):
        Recommender("popularity").fit(checkerboard(), out=tmp_path / "copy", force=True)
    assert "u3" not in _users(tmp_path / "copy")


@pytest.mark.parametrize("resume", [True, False], ids=["resumed", "replaced"])
def test_training_in_place_keeps_marks_and_leaves_out_who_was_forgotten(resume: bool, folder: Path) -> None:
    recommender = Recommender.load(folder)
    recommender.mark_sold(["i1"])
    recommender.forget("u3")
    with pytest.warns(UserWarning, match="1 user who was forgotten"):
        Recommender(k=8, epochs=1, threads=1).fit(checkerboard(), out=folder, resume=resume, force=not resume)
    loaded = Recommender.load(folder)
    assert loaded.stock.marks == {"i1": "sold"}
    assert "u3" not in loaded.fitted.data.users.ids.to_list()


def test_readers_see_one_whole_generation_while_it_is_replaced(folder: Path) -> None:
    """Two runs with marked weights take turns in the folder; every load has the weights, data and card of one of them."""
    runs = [load_run(folder)[0]]
    grown = Recommender.load(folder)
    grown.add_items(NEW)
    grown.fitted.model.table.fill_(1.0)  # type: ignore[attr-defined]
    runs.append(grown.fitted)
    stop, errors, n_loads = threading.Event(), [], [0]

    def read() -> None:
        while not stop.is_set():
            try:
                run, about = load_run(folder)
                is_grown = bool((run.model.table == 1.0).all())  # type: ignore[attr-defined]
                assert len(run.data.items) == (43 if is_grown else 42)
                assert about["added_items"] == run.n_added_items == is_grown
                n_loads[0] += 1
            except BaseException as error:
                errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    n_saves = 0
    while (n_loads[0] < 30 or n_saves < 10) and not errors:
        with writers_lock(folder):
            save_run(runs[n_saves % 2], folder)
        n_saves += 1
    stop.set()
    for reader in readers:
        reader.join()
    assert not errors
    Recommender.load(folder)  # nobody reads the others any more
    assert len(list((folder / "generations").iterdir())) == 1


def _forget(folder: Path) -> None:
    Recommender.load(folder).forget("u1")


def _mark(folder: Path) -> None:
    Recommender.load(folder).mark_sold(["i1", "i2"])


def _add(folder: Path) -> None:
    recommender = Recommender.load(folder)
    recommender.add_items(NEW)
    recommender.save(folder)


def _observe(folder: Path) -> None:
    Recommender.load(folder).observe({"user": ["u1", "visitor"], "item": ["i1", "i2"], "time": [1_000, None]})


def _forget_a_visitor(folder: Path) -> None:
    recommender = Recommender.load(folder)
    if "early" in recommender.observed:
        recommender.forget("early")


@pytest.mark.parametrize("change", [_forget, _forget_a_visitor, _mark, _observe, _add])
def test_a_death_at_any_instant_leaves_the_old_or_the_new_one(
    change: Callable[[Path], None], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change is _forget_a_visitor:
        Recommender.load(folder).observe({"user": ["early", "u5"], "item": ["i1", "i2"]})
    before = _state(folder)
    with monkeypatch.context() as patch:
        dying = Dying(0, patch)
        copy = shutil.copytree(folder, tmp_path / "whole")
        dying.n = 0
        change(copy)
    after, n_instants = _state(copy), dying.n
    assert before != after
    assert n_instants > 3
    seen = []
    for instant in range(1, n_instants + 1):
        copy = shutil.copytree(folder, tmp_path / "dying", dirs_exist_ok=False)
        with monkeypatch.context() as patch:
            Dying(instant, patch)
            with pytest.raises(Death):
                change(copy)
        state = _state(copy)  # loading clears what is left
        assert state in (before, after), instant
        seen.append(state)
        assert rests(copy, json.loads((copy / "run.json").read_text())["generation"]) == []
        if state == after and change is _forget:
            assert not any(b"u1" in path.read_bytes().split(b'"') for path in copy.rglob("*") if path.is_file())
        change(copy) if state == before else None
        assert _state(copy) == after
        shutil.rmtree(copy)
    assert before in seen
    assert after in seen


def _state(folder: Path) -> tuple[object, ...]:
    run = Recommender.load(folder)
    data = run.fitted.data
    rows = tuple(sorted(run.observed.rows()))
    return (tuple(data.users.ids), tuple(data.items.ids), tuple(sorted(run.stock.marks.items())), data.content_hash, rows)


def test_a_write_that_fails_leaves_the_user_in_memory_and_on_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender.load(folder)
    recommender.mark_sold(["i1"])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.name.endswith("lock")}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("save_dataset", "save_file", "checksums"):
        with monkeypatch.context() as patch:
            patch.setattr(f"gmlfm.runs.generation.{name}", full)
            with pytest.raises(DataError, match=r"could not be written \(No space left on device\); what was there before is"):
                recommender.forget("u1")
        after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.name.endswith("lock")}
        assert after == before
        assert recommender.fitted.encoder.user_numbers(["u1"])[0] >= 0
        assert Recommender.load(folder).fitted.encoder.user_numbers(["u1"])[0] >= 0
    recommender.forget("u1")
    assert "u1" not in _users(folder)


def test_a_folder_that_can_only_be_read_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With somebody to forget and a rest to clear, both of which have to wait."""
    text, _ = RunFolder(folder)._log.text_without("u1")
    (folder / "events.jsonl").write_text(text)
    (folder / "generations" / "000009").mkdir()

    def refuse(path: object, flags: int, *_: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert "u1" not in _users(folder)
        assert (folder / "generations" / "000009").exists()
    assert "u1" not in _users(folder)
    assert not (folder / "generations" / "000009").exists()
    assert load_run(folder)[0].encoder.user_numbers(["u1"])[0] < 0  # by now in the files, too


def test_a_user_forgotten_while_a_training_runs_is_not_in_its_result(folder: Path) -> None:
    from gmlfm.training.trainer import EpochReport, NullObserver, Resumable

    class Forgetting(NullObserver):
        def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
            if report.epoch == 1:
                Recommender.load(folder).forget("u1")
                assert list((folder / "checkpoints").iterdir())  # they are the training's

    Recommender(k=8, epochs=2, threads=1).fit(checkerboard(), out=folder, force=True, observer=Forgetting())
    assert "u1" not in _users(folder)
    assert not (folder / "checkpoints").exists()
    assert not (folder / "fit.json").exists()


def test_items_added_while_a_training_runs_are_not_lost(folder: Path) -> None:
    from gmlfm.training.trainer import EpochReport, NullObserver, Resumable

    class Adding(NullObserver):
        def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
            if report.epoch == 1:
                _add(folder)

    training = Recommender(k=8, epochs=2, threads=1)
    with pytest.raises(DataError, match="was changed by somebody else since it was read here"):
        training.fit(checkerboard(), out=folder, force=True, observer=Adding())
    assert "n" in Recommender.load(folder).fitted.data.items.ids.to_list()
    again = Recommender(k=8, epochs=2, threads=1)
    with pytest.raises(DataError, match=r"items were added to the run in .* going on would lose them"):
        again.fit(checkerboard(), out=folder, resume=True)
    with pytest.warns(UserWarning, match="1 item that was added .* will be gone"):
        again.fit(checkerboard(), out=folder, resume=True, force=True)  # nothing has to be trained again
    assert [entry["epoch"] for entry in again.fitted.curve] == [1, 2]
    assert "n" not in Recommender.load(folder).fitted.data.items.ids.to_list()


def test_a_lock_held_by_a_training_does_not_keep_marks_out(folder: Path) -> None:
    with training_lock(folder):
        Recommender.load(folder).mark_sold(["i1"])
    assert Recommender.load(folder).stock.marks == {"i1": "sold"}


def test_the_current_generation_is_all_that_is_left(folder: Path) -> None:
    recommender = Recommender.load(folder)
    for user in ("u1", "u2", "u3"):
        recommender.forget(user)
    assert model_folder(folder).name == "000004"
    assert [path.name for path in (folder / "generations").iterdir()] == ["000004"]
