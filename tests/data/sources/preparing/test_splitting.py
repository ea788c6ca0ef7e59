"""Parts are those of the same split in memory, however finely the rows are partitioned; random ones have its shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Schema, load_dataset, make_split
from gmlfm.cli import main
from gmlfm.data.dataset import Dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.data.splits import Split
from gmlfm.errors import DataError, GmlfmError, OptionError


def write(folder: Path, columns: dict[str, Any], declared: str = 'time = "t"\n', sides: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    pl.DataFrame(columns).write_csv(folder / "rows.csv")
    toml = f'[interactions]\npath = "rows.csv"\nuser = "u"\nitem = "i"\n{declared}{sides}'
    (folder / "dataset.toml").write_text(toml)
    return folder


def prepared_from(folder: Path, name: str = "p", **options: Any) -> PreparedData:
    options = {"rows_per_bucket": 100, **options}
    return prepare(Schema.from_toml(folder / "dataset.toml"), folder, folder / name, **options)


def parts(data: Dataset, split: Split) -> list[list[tuple[Any, ...]]]:
    """Each part's rows by the caller's own ids."""
    users, items = data.users.ids.gather(data.user_numbers), data.items.ids.gather(data.item_numbers)
    frame = pl.DataFrame({"user": users, "item": items}).hstack(data.interactions.drop("user", "item"))
    frame = frame.select(sorted(frame.columns))
    return [sorted(frame[rows].rows(), key=repr) for rows in (split.train, split.validation, split.test, split.unused)]


def market(rng: np.random.Generator, n: int = 600) -> dict[str, Any]:
    return {
        "u": rng.integers(0, 40, n),
        "i": [f"i{item}" for item in rng.integers(0, 90, n)],
        "t": rng.integers(-50, 200, n),  # some moments are those of several rows
    }


@pytest.mark.parametrize("split", ["auto", "leave-one-out", "global-time", "none"])
@pytest.mark.parametrize("rows", [70, 10**6])
def test_parts_are_those_of_memory(shop: Path, tmp_path: Path, split: str, rows: int) -> None:
    prepared = prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "p", split=split, rows_per_bucket=rows)
    memory = load_dataset(shop)
    expected = make_split(memory, split)
    assert prepared.info.split == expected.name
    data, restored, _ = restore(prepared)
    assert parts(data, restored) == parts(memory, expected)


@pytest.mark.parametrize("times", ["float", "date", "mixed"])
def test_time_is_cut_at_the_same_moments_in_every_form_of_time(tmp_path: Path, times: str) -> None:
    columns = market(np.random.default_rng(1))
    moments = columns["t"].tolist()
    if times == "date":
        columns["t"] = [f"2020-01-01 {abs(t) // 60:02d}:{abs(t) % 60:02d}:00" for t in moments]
    else:  # mixed: whole numbers in the first chunks, fractions in the last
        columns["t"] = [str(t + 0.25 if times == "float" or row > 500 else t) for row, t in enumerate(moments)]
    folder = write(tmp_path / "d", columns)
    data, restored, _ = restore(prepared_from(folder, split="global-time"))
    memory = load_dataset(folder)
    assert parts(data, restored) == parts(memory, make_split(memory, "global-time"))
    assert data.interactions["time"].dtype == memory.interactions["time"].dtype


def test_random_parts_are_seeded_and_in_the_shares_of_memory(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", market(np.random.default_rng(2)))
    twice = [restore(prepared_from(folder, name, split="random")) for name in ("p", "q")]
    assert parts(*twice[0][:2]) == parts(*twice[1][:2])
    split, memory = twice[0][1], make_split(load_dataset(folder), "random")
    for name in ("train", "validation", "test"):
        # Shares are rounded in each of seven shards.
        assert len(getattr(split, name)) == pytest.approx(len(getattr(memory, name)), abs=4)


def test_without_times_auto_is_random_and_leave_one_out_says_what_is_the_latest(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", market(np.random.default_rng(3)), declared="")
    prepared = prepared_from(folder)
    assert prepared.info.split == make_split(load_dataset(folder)).name == "random"
    assert any("no time is declared, so the rows are split at random" in note for note in prepared.info.notes)
    asked = prepared_from(folder, "q", split="leave-one-out")
    assert any("the order of the file decides" in note for note in asked.info.notes)


@pytest.mark.parametrize(
    ("sides", "repeats_of_item", "expected"),
    [
        ("", 1, "global-time"),
        ("", 3, "leave-one-out"),
        ("sells_once = true\n", 3, "global-time"),
        ("sells_once = false\n", 1, "leave-one-out"),
    ],
)
def test_auto_is_by_time_where_items_sell_once(tmp_path: Path, sides: str, repeats_of_item: int, expected: str) -> None:
    """Decided over merged rows: who buys the same thing twice makes no second unit of it."""
    rng = np.random.default_rng(4)
    n = 300
    items = np.arange(n) // repeats_of_item
    columns = {"u": rng.permutation(n) % 30, "i": [f"i{item}" for item in items], "t": rng.integers(0, 99, n)}
    columns = {name: [*values, *values[:100]] for name, values in columns.items()}
    folder = tmp_path / "d"
    folder.mkdir()
    pl.DataFrame({"i": [f"i{item}" for item in range(n + 50)]}).write_parquet(folder / "items.parquet")
    write(folder, columns, sides=f'[items]\npath = "items.parquet"\nid = "i"\n{sides}')
    prepared, memory = prepared_from(folder), load_dataset(folder)
    assert prepared.info.split == make_split(memory).name == expected
    data, split, _ = restore(prepared)
    assert data.sells_once == memory.sells_once == prepared.info.sells_once
    assert parts(data, split) == parts(memory, make_split(memory))
    single = [dict(zip(side.items.ids, side.single_unit_items, strict=True)) for side in (data, memory)]
    assert single[0] == single[1]


def test_a_missing_time_makes_auto_leave_one_out_and_refuses_a_cut(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    columns = {"u": rng.integers(0, 20, 200), "i": np.arange(200), "t": [None, *range(199)]}
    folder = write(tmp_path / "d", columns)
    assert prepared_from(folder).info.split == make_split(load_dataset(folder)).name == "leave-one-out"
    with pytest.raises(DataError, match="needs a time in every row; 1 rows have none"):
        prepared_from(folder, "q", split="global-time")
    folder = write(tmp_path / "e", columns, declared="")
    with pytest.raises(DataError, match="needs times, but dataset 'tables' declares none"):
        prepared_from(folder, split="global-time")


def test_times_too_much_alike_are_noted(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", {**market(np.random.default_rng(6)), "t": [7] * 600})
    prepared = prepared_from(folder, split="global-time")
    assert any("too much alike" in note for note in prepared.info.notes)


def test_tested_pairs_that_are_trained_on_are_counted(tmp_path: Path) -> None:
    columns = {"u": [1] * 5 + [2] * 5, "i": list("abcca") + list("vwxyz"), "t": range(10)}
    folder = write(tmp_path / "d", columns, declared='time = "t"\nrepeats = "keep"\n')
    prepared = prepared_from(folder, split="leave-one-out")
    expected = make_split(load_dataset(folder), "leave-one-out").notes
    assert [note for note in prepared.info.notes if "tested pairs" in note] == list(expected)
    assert expected[0].startswith("1 of 2")
    assert restore(prepared)[0].schema.interactions.repeats == "keep"


@pytest.mark.parametrize("split", ["newcomers", "cold-start", "globaltime"])
def test_other_splits_are_refused_in_one_sentence(
    shop: Path, tmp_path: Path, split: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GmlfmError) as caught:
        prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "p", split=split)
    assert isinstance(caught.value, OptionError)
    assert main(["data", "prepare", str(shop), "--out", str(tmp_path / "p"), "--split", split, "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"] == str(caught.value)
    assert "global-time" in captured.err
    assert not (tmp_path / "p").exists()
