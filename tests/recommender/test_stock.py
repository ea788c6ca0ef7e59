from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.errors import DataError
from gmlfm.recommender.stock import Stock

NEW = pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [1.0], "tags": [["x"]]})


def test_a_sold_item_vanishes_at_once_and_comes_back(own_run: Recommender, own_folder: Path, tmp_path: Path) -> None:
    before = own_run.recommend(["u1"], 3)["item"].to_list()
    own_run.mark_sold(before[:1])
    assert own_run.recommend(["u1"], 2)["item"].to_list() == before[1:]
    loaded = Recommender.load(own_folder)  # written when marked, without save
    assert loaded.recommend(["u1"], 2)["item"].to_list() == before[1:]
    loaded.mark_back(before[:1])
    assert Recommender.load(own_folder).recommend(["u1"], 3)["item"].to_list() == before
    loaded.save(tmp_path / "copy")
    assert Recommender.load(tmp_path / "copy").recommend(["u1"], 3)["item"].to_list() == before
    with pytest.raises(DataError, match="nothing was marked"):
        loaded.mark_sold(["i1", "nothing"])
    assert loaded.recommend(["u1"], 3)["item"].to_list() == before


def test_marks_go_with_a_run_to_another_folder(own_run: Recommender, tmp_path: Path) -> None:
    own_run.mark_sold(["i1", "i2"])
    own_run.mark_back(["i2"])
    own_run.save(tmp_path / "copy")
    copy = Recommender.load(tmp_path / "copy")
    assert copy.stock.marks == own_run.stock.marks == {"i1": "sold", "i2": "back"}
    copy.mark_sold(["i2"])
    own_run.mark_back(["i1"])  # goes to the folder it was saved in last
    assert Recommender.load(tmp_path / "copy").stock.marks == {"i1": "back", "i2": "sold"}


def test_marks_before_the_first_save_are_saved_too(board: object, tmp_path: Path) -> None:
    recommender = Recommender("popularity").fit(board)  # type: ignore[arg-type]
    recommender.mark_sold("i1")
    recommender.save(tmp_path / "run")
    assert Recommender.load(tmp_path / "run").stock.marks == {"i1": "sold"}


def test_a_mark_cut_short_by_a_crash_does_not_count(own_run: Recommender, own_folder: Path) -> None:
    own_run.mark_sold(["i1"])
    log = own_folder / "events.jsonl"
    log.write_text(log.read_text() + '{"n": 2, "kind": "sold", "items": ["i3"')
    loaded = Recommender.load(own_folder)
    assert np.flatnonzero(~loaded.stock.is_available).tolist() == [1]
    loaded.mark_sold(["i5"])  # goes on a line of its own
    assert np.flatnonzero(~Recommender.load(own_folder).stock.is_available).tolist() == [1, 5]
    log.write_text("nonsense\n" + log.read_text())
    with pytest.raises(DataError, match="is damaged in line 1"):
        Recommender.load(own_folder)


def test_marks_reach_items_that_come_later(own_run: Recommender, own_folder: Path) -> None:
    own_run.add_items(NEW)
    own_run.mark_sold("n")
    loaded = Recommender.load(own_folder)
    loaded.add_items(NEW)
    assert "n" not in loaded.recommend(["u0"], 40)["item"].to_list()


def test_marks_of_two_recommenders_of_one_folder_are_both_kept(own_folder: Path) -> None:
    left, right = Recommender.load(own_folder), Recommender.load(own_folder)
    left.mark_sold(["i1"])
    assert not left.stock.is_available[1]
    assert right.stock.is_available.all()
    assert "i1" in right.recommend(["u1"], 40, seen=True)["item"].to_list()
    right.mark_sold(["i2"])  # and takes note of the other's
    assert right.stock.marks == Recommender.load(own_folder).stock.marks == {"i1": "sold", "i2": "sold"}
    left.mark_back(["i2"])
    assert Recommender.load(own_folder).stock.marks == {"i1": "sold", "i2": "back"}


def test_the_same_marks_over_a_larger_catalogue_leave_the_smaller_one_alone(own_run: Recommender) -> None:
    own_run.mark_sold(["i0", "i1"])
    before = own_run.stock
    own_run.add_items(NEW)
    own_run.mark_sold(["n"])
    own_run.mark_back(["i0"])
    assert np.flatnonzero(~before.is_available).tolist() == [0, 1]
    assert before.marks == {"i0": "sold", "i1": "sold"}
    assert np.flatnonzero(~own_run.stock.is_available).tolist() == [1, len(own_run.fitted.data.items) - 1]
    assert own_run.stock.back() == ["i0"]


def test_what_could_not_be_written_is_not_marked(own_run: Recommender, own_folder: Path) -> None:
    (own_folder / "events.jsonl").mkdir()
    with pytest.raises(DataError, match=r"events\.jsonl could not be"):
        own_run.mark_sold(["i1"])
    assert own_run.stock.is_available.all()
    assert own_run.stock.marks == {}


def test_marks_of_items_that_are_not_there_count_for_nothing(trained: Recommender) -> None:
    stock = Stock.over(trained.fitted.encoder, {"gone": "sold", "i2": "sold", "i3": "back"})
    assert np.flatnonzero(~stock.is_available).tolist() == [2]
    assert Stock.over(trained.fitted.encoder).marks == {}
