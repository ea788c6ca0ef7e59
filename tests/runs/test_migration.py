"""Runs that the versions of formats 2 and 3 wrote (runs-of-format-N.zip, each with what that version computed of it)."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmlfm import Recommender
from gmlfm.errors import OptionError
from gmlfm.fitting import Refit
from gmlfm.models.base import UserSide
from gmlfm.runs.description import read_about
from gmlfm.runs.migration import FORMAT, migrate

RUNS = ("deepfm", "ease", "fm-rating", "gml-fm", "gml-fm-md", "item-knn", "mamo", "mf-implicit", "ngcf")
NEW_IN_4 = {"files": {}, "generation": "", "version": "", "replayed": -1, "interrupted": False, "added_items": 0}
PAIRS = [(f"u{user}", f"i{item}") for user in range(4) for item in range(5)]


RUNS_OF_FORMAT_3 = ("ease", "gml-fm", "gml-fm-md")


@pytest.fixture(scope="module")
def old_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of format 2. Read-only."""
    return _extracted(2, tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def runs_of_format_3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read-only."""
    return _extracted(3, tmp_path_factory.mktemp("old"))


def _extracted(number: int, folder: Path) -> Path:
    with zipfile.ZipFile(Path(__file__).parent / f"runs-of-format-{number}.zip") as archive:
        archive.extractall(folder)
    return folder


def _check(recommender: Recommender, expected: dict[str, Any]) -> None:
    run = recommender.fitted
    if run.model.reads_history:
        # Those versions scored users by their training rows alone; now all that they did counts.
        users = run.encoder.user_numbers([user for user, _ in PAIRS])
        items = run.encoder.item_numbers([item for _, item in PAIRS])
        trained = UserSide(users.astype(np.int32), run.encoded.user_side(users))
        scores = run.model.score_pairs(trained, items[:, None].astype(np.int32))[:, 0]
        np.testing.assert_allclose(scores, expected["predict"], rtol=1e-6)
        assert (run.best_epoch, run.validation) == (expected["best_epoch"], expected["validation"])
        return
    np.testing.assert_allclose(recommender.predict(PAIRS)["score"], expected["predict"], rtol=1e-6)
    assert recommender.recommend(["u1", "u2", "nobody"], 5)["item"].to_list() == expected["recommend"]
    if recommender.fitted.refit is Refit.ALL:
        with pytest.raises(OptionError, match="learned from its test rows"):
            recommender.evaluate(protocol="full")
    else:
        metrics = recommender.evaluate(protocol="full").metrics
        assert {name: metrics[name] for name in expected["evaluate"]} == pytest.approx(expected["evaluate"], rel=1e-6)
    assert recommender.fitted.best_epoch == expected["best_epoch"]
    assert recommender.fitted.validation == expected["validation"]


def test_every_run_of_the_archives_is_tested(old_runs: Path, runs_of_format_3: Path) -> None:
    assert sorted(path.name for path in old_runs.iterdir()) == sorted(RUNS)
    assert sorted(path.name for path in runs_of_format_3.iterdir()) == sorted(RUNS_OF_FORMAT_3)


@pytest.mark.parametrize("name", RUNS_OF_FORMAT_3)
def test_a_run_of_format_3_keeps_its_marks_when_it_is_first_written(name: str, runs_of_format_3: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs_of_format_3 / name, tmp_path / name))
    expected = json.loads((folder / "expected.json").read_text())
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    recommender = Recommender.load(folder)
    _check(recommender, expected)
    assert _sold(recommender) == expected["sold"]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files  # reading changes nothing
    recommender.mark_sold(["i9"])
    assert _sold(Recommender.load(folder)) == sorted(
        [*expected["sold"], "i9"], key=recommender.fitted.data.items.ids.to_list().index
    )
    assert (folder / "model" / "run.json").exists()
    Recommender.load(folder).mark_back(["i9"])
    loaded = Recommender.load(folder)
    loaded.save(folder)
    assert not (folder / "model").exists()
    saved = Recommender.load(folder)
    _check(saved, expected)
    assert _sold(saved) == expected["sold"]
    assert (folder / "expected.json").exists()  # somebody's own


@pytest.mark.parametrize("name", ["gml-fm"])
def test_a_user_is_forgotten_in_a_run_of_format_3(name: str, runs_of_format_3: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs_of_format_3 / name, tmp_path / name))
    (folder / "expected.json").unlink()
    Recommender.load(folder).forget("u3")
    assert not (folder / "model").exists()
    assert Recommender.load(folder).fitted.encoder.user_numbers(["u3", "u7"]).tolist() == [-1, -1]
    assert _sold(Recommender.load(folder)) == ["i3", "n1"]


@pytest.mark.parametrize("file", ["weights.safetensors", "run.json"])
def test_two_old_runs_are_told_apart(file: str, runs_of_format_3: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs_of_format_3 / "gml-fm-md", tmp_path / "run"))
    checks = {read_about(folder)["check"]}
    path = folder / "model" / file
    path.write_bytes(path.read_bytes() + b" ")
    checks.add(read_about(folder)["check"])
    assert len(checks) == 2


def _sold(recommender: Recommender) -> list[str]:
    return recommender.fitted.data.items.ids.filter(~recommender.stock.is_available).to_list()


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_scores_as_it_did_is_saved_anew_and_forgets(name: str, old_runs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(old_runs / name, tmp_path / name))
    about = json.loads((folder / "model" / "run.json").read_text())
    assert about["format"] == 2
    expected = json.loads((folder / "expected.json").read_text())
    recommender = Recommender.load(folder)
    _check(recommender, expected)
    assert recommender.fitted.refit.label == about["regime"]
    assert len(recommender.fitted.curve) == len((folder / "model" / "history.jsonl").read_text().splitlines())
    is_sold = {"i3"} if name == "gml-fm" else set()
    assert {recommender.fitted.data.items.ids[int(item)] for item in np.flatnonzero(~recommender.stock.is_available)} == is_sold

    recommender.save(folder)
    written = json.loads((folder / "run.json").read_text())
    assert (written["format"], written["refit"]) == (FORMAT, recommender.fitted.refit.value)
    assert {"regime", "metrics"}.isdisjoint(written)
    assert {"hide", "tasks_a_batch"}.isdisjoint(written["settings"])
    assert not (folder / "model").exists()
    loaded = Recommender.load(folder)
    _check(loaded, expected)
    assert loaded.predict(PAIRS).equals(recommender.predict(PAIRS))
    assert loaded.stock.marks == recommender.stock.marks
    assert loaded.fitted.curve == recommender.fitted.curve
    assert loaded.settings == recommender.settings

    if name == "mf-implicit":
        with pytest.raises(OptionError, match="draws its instances from all users again"):
            loaded.forget("u3")
        return
    loaded.forget("u3")
    assert Recommender.load(folder).recommend(["u3"], 2)["known"].to_list() == [False] * 2


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [("gml-fm", "cold_start_rate", 0.2), ("mamo", "tasks_per_batch", 3), ("deepfm", "hidden", "8"), ("gml-fm", "seed", 1)],
)
def test_settings_are_found_under_their_present_names(name: str, setting: str, value: Any, old_runs: Path) -> None:
    recommender = Recommender.load(old_runs / name)
    assert recommender.settings.to_dict()["settings"][setting] == value
    assert recommender.clone().settings == recommender.settings


def test_an_old_run_goes_on_as_a_new_one(old_runs: Path) -> None:
    """Its settings train again on its data."""
    recommender = Recommender.load(old_runs / "gml-fm")
    retrained = recommender.clone().fit(recommender.fitted.data, refit=True)
    np.testing.assert_allclose(retrained.predict(PAIRS)["score"], recommender.predict(PAIRS)["score"], rtol=1e-5)


@pytest.mark.parametrize("refit", Refit)
def test_the_sentence_of_format_2_becomes_the_refit(refit: Refit) -> None:
    about = {"format": 2, "regime": refit.label, "metrics": {}, "model": "fm"}
    assert migrate(about) == {**NEW_IN_4, "format": FORMAT, "refit": refit.value, "model": "fm"}
    assert about["regime"] == refit.label  # the caller's stays


def test_the_form_that_was_gml_fm_up_to_format_4_is_gml_fm_unit() -> None:
    for name, present in (("gml-fm", "gml-fm-unit"), ("gml-fm-md", "gml-fm-md"), ("fm", "fm")):
        assert migrate({"format": 4, "model": name}) == {"format": FORMAT, "model": present}


def test_a_run_of_format_4_has_no_row_of_newcomers() -> None:
    of_then = {"format": 4, "model": "fm", "settings": {"history": "last", "k": 4}}
    assert migrate(of_then)["settings"] == {"history": "last", "k": 4, "newcomer_row": False}
    assert migrate({**of_then, "settings": {"k": 4}})["settings"] == {"k": 4}
    assert migrate({"format": FORMAT, "model": "gml-fm"})["model"] == "gml-fm"


def test_what_needs_no_migration_or_has_none_stays() -> None:
    for about in ({"format": FORMAT, "refit": "none"}, {"format": 7}, {"format": "2"}, {}):
        assert migrate(about) == about
    for sentence in ({}, {"regime": "sometimes"}):
        assert migrate({"format": 2, **sentence}) == {**NEW_IN_4, "format": FORMAT}  # the reader reports that refit is missing
