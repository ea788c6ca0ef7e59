from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset, make_split
from gmlfm.data.splits import Split
from gmlfm.errors import DataError, OptionError
from tests.data.arbitrary import datasets, plain, random_plain


def named(data: Dataset, rows: np.ndarray, *columns: str) -> pl.DataFrame:
    """A table that names rows of the data, as somebody would publish them."""
    users, items = data.users.ids.gather(data.user_numbers[rows]), data.items.ids.gather(data.item_numbers[rows])
    spec = data.schema.interactions
    times = {spec.time: data.interactions["time"]} if spec.time else {}
    more = {**times, **{column.name: column for column in data.context.iter_columns()}}
    return pl.DataFrame(
        [users.alias(spec.user), items.alias(spec.item), *(more[name].gather(rows).alias(name) for name in columns)]
    )


def same_rows(left: Split, right: Split) -> bool:
    return all(np.array_equal(getattr(left, part), getattr(right, part)) for part in ("train", "validation", "test", "unused"))


@given(datasets(min_rows=3, few=True), st.integers(0, 3))
def test_a_split_written_out_comes_back(data: Dataset, seed: int) -> None:
    """Times and context tell the rows of one pair apart."""
    ours = make_split(data, "random", seed=seed)
    parts = {"train": ours.train, "validation": ours.validation, "test": ours.test}
    tables = {name: named(data, rows, "t", "device", "mood") for name, rows in parts.items() if len(rows)}
    assert same_rows(make_split(data, "files", **tables), ours)
    del tables["train"]
    if tables:
        assert same_rows(make_split(data, "files", **tables), ours)


def test_kept_repeats_are_told_apart_by_time() -> None:
    data = random_plain(10, 5, 200)
    is_repeated = pl.DataFrame({"p": data.user_numbers * 5 + data.item_numbers, "t": data.interactions["time"]}).is_duplicated()
    assert not is_repeated.any()
    ours = make_split(data, "leave-one-out")
    tables = {name: named(data, getattr(ours, name), "time") for name in ("train", "validation", "test")}
    assert same_rows(make_split(data, "files", **tables), ours)
    as_floats = tables["test"].with_columns(pl.col("time").cast(pl.Float64))
    assert same_rows(make_split(data, "files", **{**tables, "test": as_floats}), ours)


def test_rows_that_no_file_names_are_trained_on_only_where_train_is_not_given() -> None:
    data = plain([1, 1, 1, 2, 2], [1, 2, 3, 1, 2], [1, 2, 3, 4, 5])
    rest = make_split(data, "files", validation=named(data, np.array([1])), test=named(data, np.array([2])))
    assert (rest.train.tolist(), rest.validation.tolist(), rest.test.tolist(), rest.notes) == ([0, 3, 4], [1], [2], ())
    whole = make_split(data, "files", train=named(data, np.array([4, 0])), test=named(data, np.array([2])))
    assert (whole.train.tolist(), whole.test.tolist(), whole.unused.tolist()) == ([0, 4], [2], [1, 3])
    assert whole.notes == (
        "2 rows of the data are in no file: they are neither trained nor tested on.",
        "no validation rows are given: every epoch is trained and none is chosen.",
    )


def test_the_contents_hashes_are_recorded_and_the_paths_are_not(tmp_path: Path) -> None:
    data = plain([1, 1, 1, 2, 2], [1, 2, 3, 1, 2])
    splits = []
    for name, item in (("a", "i3"), ("b", "i3"), ("c", "i2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.csv").write_text(f"user,item\nu1,{item}\n")
        splits.append(make_split(data, "files", test=tmp_path / name / "test.csv"))
    assert splits[0].hash == splits[1].hash != splits[2].hash
    assert set(splits[0].options) == {"seed", "task", "test"}
    assert splits[0].options["test"].startswith("sha256:")
    assert str(tmp_path) not in repr(splits[0])
    other = plain([1, 1, 1, 2, 2], [1, 2, 3, 1, 3])
    assert make_split(other, "files", test=tmp_path / "a" / "test.csv").hash != splits[0].hash


def test_candidates_are_of_the_split_and_of_its_hash(tmp_path: Path) -> None:
    data = plain([1, 1, 1, 2, 2], [1, 2, 3, 1, 4])
    test = named(data, np.array([4, 2]))
    (tmp_path / "test.negative").write_text("(u2,i4)\ti2\ti3\n(u1,i3)\ti4\n")
    split = make_split(data, "files", test=test, test_candidates=tmp_path / "test.negative")
    assert split.test.tolist() == [2, 4]
    assert split.test_candidates is not None
    assert split.test_candidates.tolist() == [[3, -1], [1, 2]]
    assert split.validation_candidates is None
    assert split.notes[-1] == "test rows are ranked among the lists that were brought, of 1 to 2 candidates each."
    assert set(split.options) == {"seed", "task", "test", "test_candidates"}
    assert make_split(data, "files", test=test).hash != split.hash
    lists = pl.DataFrame({"user": ["u1"], "item": ["i3"], "candidate": ["i4"]})
    held = make_split(
        data, "files", validation=test.filter(item="i3"), test=test.filter(item="i4"), validation_candidates=lists
    )
    assert held.validation_candidates is not None
    assert (held.validation_candidates.tolist(), held.test_candidates) == ([[3]], None)


def test_rows_that_the_task_does_not_learn_from_are_left_out_and_counted() -> None:
    table = pl.DataFrame({"u": ["a"] * 4 + ["b"], "i": list("wxyzw"), "stars": [5.0, 4, 1, 5, None]})
    schema = {"interactions": {"user": "u", "item": "i", "label": "stars", "positive": "stars >= 4"}}
    data = Dataset.from_tables(table, schema=schema)
    test = table.select("u", "i").slice(2)
    lists = pl.DataFrame({"u": ["a", "a", "b"], "i": ["y", "z", "w"], "candidate": ["w", "x", "z"]})
    split = make_split(data, "files", test=test, test_candidates=lists)
    assert (split.train.tolist(), split.test.tolist()) == ([0, 1], [3])
    assert split.test_candidates is not None
    assert split.test_candidates.tolist() == [[1]]
    assert "2 of 3 test rows are no positives and are left out." in split.notes
    rating = make_split(data, "files", test=test, task="rating")
    assert (rating.train.tolist(), rating.test.tolist()) == ([0, 1], [2, 3])
    assert "1 of 3 test rows have no label and are left out." in rating.notes
    with pytest.raises(OptionError, match="test_candidates are lists to rank, but the task 'rating' ranks nothing"):
        make_split(data, "files", test=test, test_candidates=lists, task="rating")


def test_merged_rows_may_be_named_as_often_as_they_were() -> None:
    schema = {"interactions": {"user": "u", "item": "i", "time": "t"}}
    table = pl.DataFrame({"u": ["a", "a", "a"], "i": ["x", "x", "y"], "t": [1, 2, 3]})
    data = Dataset.from_tables(table, schema=schema)
    split = make_split(data, "files", train=table.head(2), test=table.tail(1))
    assert (split.train.tolist(), split.test.tolist()) == ([0], [1])
    assert split.notes[0] == '1 train rows name an interaction again and count once (repeats = "merge").'
    with pytest.raises(
        DataError, match=r"are a row of train already .*\(rows of a pair are merged; repeats = \"keep\" keeps them"
    ):
        make_split(data, "files", train=table.head(1), test=table.tail(2))


# Rows 0 to 2 are the pair (u1, i1) at the times 1, 1 and 2.
REPEATED = plain([1, 1, 1, 1, 2], [1, 1, 1, 2, 1], [1, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"test": "user,item\nu2,i1\nu2,i2\n"},
            r"test.csv line 3: user 'u2' and item 'i2' are no interaction of the data \(1 such",
        ),
        (
            {"test": "user,item\nu1,i1\n"},
            "line 2: user 'u1' and item 'i1' are 3 rows of the data, of which the table names 1: add th",
        ),
        (
            {"test": "user,item,time\nu1,i1,1\n"},
            "are 2 rows of the data, of which the table names 1: nothing in the data tells",
        ),
        (
            {"test": "user,item,time\nu1,i1,7\n"},
            "are interactions of the data, but none with this 'time'; write it as in the data",
        ),
        ({"test": "user,item\nu2,i1\nu2,i1\n"}, r"are named 2 times, but the data have 1 such row\(s\); name each row once"),
        (
            {"train": "user,item\nu1,i2\nu2,i1\n", "test": "user,item\nu2,i1\n"},
            r"test.csv line 2: user 'u2' and item 'i1' are a row of train already \(.*train.csv line 3; 1 such rows\)",
        ),
    ],
)
def test_rows_that_cannot_be_told_are_one_sentence_with_the_line(files: dict[str, str], message: str, tmp_path: Path) -> None:
    paths: dict[str, Any] = {}
    for name, text in files.items():
        paths[name] = tmp_path / f"{name}.csv"
        paths[name].write_text(text)
    with pytest.raises(DataError, match=message):
        make_split(REPEATED, "files", **paths)


def test_rows_that_nothing_tells_apart_may_stand_in_one_part_together() -> None:
    table = named(REPEATED, np.array([0, 1]), "time")
    assert make_split(REPEATED, "files", test=table).test.tolist() == [0, 1]
    assert make_split(REPEATED, "files", test=named(REPEATED, np.arange(3))).test.tolist() == [0, 1, 2]


def test_requests_that_make_no_split_are_one_sentence() -> None:
    rows = named(REPEATED, np.array([3]))
    with pytest.raises(OptionError, match="the split 'files' got no rows; give the table of test"):
        make_split(REPEATED, "files")
    with pytest.raises(OptionError, match="test_candidates are given without test rows; give the table of test, too"):
        make_split(REPEATED, "files", train=rows, test_candidates=rows)
    with pytest.raises(OptionError, match="the task 'implicit' splits its drawn instances at random"):
        make_split(REPEATED, "files", test=rows, task="implicit")
    with pytest.raises(OptionError, match="has no option 'tests'; did you mean 'test'"):
        make_split(REPEATED, "files", tests=rows)
    with pytest.raises(DataError, match=r"gone.csv does not exist; check path"):
        make_split(REPEATED, "files", test="gone.csv")


def test_the_time_of_a_pair_with_one_row_does_not_matter() -> None:
    """A published file may have rounded it; beside a pair that needs its time, too."""
    table = pl.DataFrame({"user": ["u1", "u2"], "item": ["i1", "i1"], "time": [2, 99]})
    assert make_split(REPEATED, "files", test=table).test.tolist() == [2, 4]
