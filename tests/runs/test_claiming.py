from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.errors import DataError, OptionError
from gmlfm.locking import LockedError
from gmlfm.runs.claiming import claimed, run_path
from gmlfm.runs.migration import FORMAT
from tests.contracts.checkerboard import checkerboard

QUICK: dict[str, Any] = {"k": 4, "epochs": 1, "threads": 1}


def _train(folder: Path, **options: Any) -> Recommender:
    return Recommender("fm", **QUICK).fit(checkerboard(), out=folder, **options)


@pytest.mark.parametrize("path", ["", " ", ".", Path()])
def test_a_path_that_was_never_set_is_refused(path: str | Path) -> None:
    with pytest.raises(OptionError, match="give the path of a folder of its own, such as runs/first"):
        run_path(path)
    with pytest.raises(OptionError, match="give the path of a folder of its own"):
        Recommender("fm", **QUICK).fit(checkerboard(), out=path)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "thesis.tex",
        "checkpoints/bert.pt",
        "checkpoints-refit/epoch-00001.pt",
        "generations/000001/thesis.tex",
        "generations/mine/a",
        "model/thesis.tex",
        "model/data/thesis.tex",
        "run.json/inner",
        "data/interactions.parquet",
    ],
)
def test_a_folder_with_somebodys_files_is_refused_and_left_alone(name: str, force: bool, tmp_path: Path) -> None:
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    path.write_text("years of work")
    with pytest.raises(DataError, match=r"holds '.*', which gmlfm did not write; choose a new folder for the run"):
        _train(tmp_path / "run", force=force)
    assert [file for file in (tmp_path / "run").rglob("*") if file.is_file()] == [path]
    assert path.read_text() == "years of work"


@pytest.mark.parametrize("name", ["run.json", "checkpoints", "checkpoints/epoch-00001.json", "generations", "curve.jsonl"])
def test_nothing_is_deleted_or_written_through_a_link(name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in ("epoch-00001.json", "epoch-00001.safetensors", "run.json"):
        (elsewhere / file).write_text("keep")
    link = tmp_path / "run" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere / "run.json" if "." in name else elsewhere)
    with pytest.raises(DataError, match="which gmlfm did not write"):
        _train(tmp_path / "run", force=True)
    assert sorted(path.read_text() for path in elsewhere.iterdir()) == ["keep"] * 3


def test_a_file_or_a_link_to_nowhere_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("keep")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, message in (
        ("file", "is a file"),
        ("link", "leads nowhere"),
        ("x" * 300, "File name too long"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            _train(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "keep"
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_behind_a_link_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    _train(tmp_path / "run")
    assert (tmp_path / "disk" / "run.json").is_file()
    assert (tmp_path / "run").is_symlink()


def test_a_finished_run_is_replaced_on_purpose_alone(tmp_path: Path) -> None:
    _train(tmp_path / "run")
    with pytest.raises(DataError, match="holds a finished run; choose a new folder, or replace it with --force"):
        _train(tmp_path / "run")
    _train(tmp_path / "run", resume=True)
    _train(tmp_path / "run", force=True)


def test_a_training_that_has_not_ended_is_not_begun_anew_by_mistake(tmp_path: Path) -> None:
    _train(tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    with pytest.raises(DataError, match="holds a training that has not ended; go on with --resume, or begin anew with --force"):
        _train(tmp_path / "run")
    _train(tmp_path / "run", resume=True)


def test_what_was_interrupted_is_a_run_and_goes_on(tmp_path: Path) -> None:
    from gmlfm.training.trainer import NullObserver, TrainingInterrupted

    class Stops(NullObserver):
        def on_epoch(self, *_: Any) -> None:
            raise KeyboardInterrupt

    options: dict[str, Any] = {**QUICK, "epochs": 3}
    stopped = Recommender("fm", **options)
    with pytest.raises(TrainingInterrupted, match="interrupted; the best epoch so far, 1, is kept"):
        stopped.fit(checkerboard(), out=tmp_path / "run", observer=Stops())
    loaded = Recommender.load(tmp_path / "run")
    assert loaded.recommend(["u1"], 3).equals(stopped.recommend(["u1"], 3))
    assert loaded.fitted.report.interrupted
    with pytest.raises(DataError, match="holds a training that was interrupted; go on with --resume"):
        Recommender("fm", **options).fit(checkerboard(), out=tmp_path / "run")
    Recommender("fm", **options).fit(checkerboard(), out=tmp_path / "run", resume=True)
    whole = Recommender("fm", **options).fit(checkerboard(), out=tmp_path / "whole")
    resumed = Recommender.load(tmp_path / "run")
    assert not resumed.fitted.report.interrupted
    assert resumed.recommend(["u1"], 5).equals(whole.recommend(["u1"], 5))


def test_where_nothing_came_of_a_training_nothing_is_left(tmp_path: Path) -> None:
    for options in ({"split": "nonsense"}, {"refit": "sometimes"}):
        with pytest.raises(OptionError):
            _train(tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError):
        _train(tmp_path / "empty", split="nonsense")
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_training_that_fails_leaves_the_run_that_was_there(tmp_path: Path) -> None:
    before = _train(tmp_path / "run").recommend(["u1"], 5)
    with pytest.raises(OptionError):
        _train(tmp_path / "run", force=True, split="nonsense")
    assert Recommender.load(tmp_path / "run").recommend(["u1"], 5).equals(before)


def test_a_second_training_in_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    with claimed(tmp_path / "run", None, resume=False, force=False):
        for options in ({}, {"resume": True}, {"force": True}):
            with pytest.raises(LockedError, match=r"is being trained in by process \d+ on .*; try again when it is done"):
                _train(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_damaged_run_is_replaced_by_force_alone(tmp_path: Path) -> None:
    _train(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("nonsense")
    for options in ({}, {"resume": True}):
        with pytest.raises(DataError, match="cannot be read"):
            _train(tmp_path / "run", **options)
    _train(tmp_path / "run", force=True)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["format"] == FORMAT


def test_items_that_were_added_are_not_lost_without_a_word(tmp_path: Path) -> None:
    recommender = Recommender("fm", k=2, epochs=1, threads=1).fit(checkerboard(), out=tmp_path / "run")
    recommender.add_items(recommender.fitted.data.items.fields.head(1).with_columns(item=pl.lit("new")))
    recommender.save(tmp_path / "run")
    with pytest.warns(UserWarning, match="1 item that was added to the run in .* will be gone unless the data have them"):
        Recommender("fm", k=2, epochs=1, threads=1).fit(checkerboard(), out=tmp_path / "run", force=True)
