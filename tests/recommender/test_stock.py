from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.errors import DataError
from gmlfm.recommender.stock import Stock, read_marks

IDS = ["a", "b", "c"]


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


def test_a_mark_cut_short_by_a_crash_does_not_count(own_run: Recommender, own_folder: Path) -> None:
    own_run.mark_sold(["i1"])
    log = own_folder / "model" / "stock.jsonl"
    log.write_text(log.read_text() + '["sold", ["i3"')
    loaded = Recommender.load(own_folder)
    assert np.flatnonzero(~loaded.stock.is_available).tolist() == [1]
    loaded.mark_sold(["i5"])  # goes on a line of its own
    assert np.flatnonzero(~Recommender.load(own_folder).stock.is_available).tolist() == [1, 5]
    log.write_text("nonsense\n" + log.read_text())
    with pytest.raises(DataError, match="is damaged in line 1"):
        Recommender.load(own_folder)


def test_marks_reach_items_that_come_later(own_run: Recommender, own_folder: Path) -> None:
    new = pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [1.0], "tags": [["x"]]})
    own_run.add_items(new)
    own_run.mark_sold("n")
    loaded = Recommender.load(own_folder)
    loaded.add_items(new)
    assert "n" not in loaded.recommend(["u0"], 40)["item"].to_list()


def test_two_recommenders_of_one_folder_do_not_share_marks_in_memory(own_folder: Path) -> None:
    left, right = Recommender.load(own_folder), Recommender.load(own_folder)
    left.mark_sold(["i1"])
    assert not left.stock.is_available[1]
    assert right.stock.is_available.all()
    assert right.stock.log == []
    assert "i1" in right.recommend(["u1"], 40, seen=True)["item"].to_list()


def test_the_same_marks_over_a_larger_catalogue_leave_the_smaller_one_alone(tmp_path: Path) -> None:
    stock = Stock(IDS)
    stock.keep_in(tmp_path / "stock.jsonl")
    stock.mark(np.array([0, 1]), ["a", "b"], sold=True)
    larger = stock.over([*IDS, "d"])
    larger.mark(np.array([3]), ["d"], sold=True)
    larger.mark(np.array([0]), ["a"], sold=False)
    assert stock.is_available.tolist() == [False, False, True]
    assert stock.log == [("sold", ["a", "b"])]
    assert larger.is_available.tolist() == [True, False, True, False]
    assert read_marks(tmp_path / "stock.jsonl") == [("sold", ["a", "b"]), ("sold", ["d"]), ("back", ["a"])]
    assert Stock(IDS, read_marks(tmp_path / "stock.jsonl")).is_available.tolist() == [True, False, True]


def test_what_could_not_be_written_is_not_marked(tmp_path: Path) -> None:
    stock = Stock(IDS)
    stock.keep_in(tmp_path / "gone" / "stock.jsonl")
    with pytest.raises(DataError, match=r"stock.jsonl could not be written \(No such file or directory\); nothing was marked"):
        stock.mark(np.array([0]), ["a"], sold=True)
    assert stock.is_available.all()
    assert stock.log == []


@pytest.mark.parametrize("text", ['["lent", ["a"]]\n', '["sold", "a"]\n', "[]\n", "7\n"])
def test_a_mark_of_no_known_kind_is_damage(text: str, tmp_path: Path) -> None:
    path = tmp_path / "stock.jsonl"
    path.write_text('["sold", ["b"]]\n' + text)
    with pytest.raises(DataError, match="is damaged in line 2"):
        read_marks(path)


def test_no_file_holds_no_marks(tmp_path: Path) -> None:
    assert read_marks(tmp_path / "stock.jsonl") == []
    assert Stock(IDS).to_text() == ""
