"""A prepared folder holds what the in-memory walk gives, however finely it was cut and however often it was stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Encoder, Schema, load_dataset, make_split
from gmlfm.cli import main
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.prepared import PreparedData, padded, unpadded
from gmlfm.data.sources.bazaar import Market, write_bazaar
from gmlfm.data.sources.preparing import prepare
from gmlfm.errors import DataError, GmlfmError, OptionError

TOML = """name = "shop"
[interactions]
path = "rows.csv"
user = "u"
item = "i"
time = "t"
label = "stars"
positive = "stars >= 2"
weight = "n"
context = { device = "category", mood = { kind = "set", separator = "|" } }
read = { tolerate = 3 }
[users]
path = "users.csv"
id = "u"
fields = { city = "category", age = "number" }
[items]
path = "items.jsonl"
id = "i"
fields = { tags = { kind = "set", weighting = "sqrt" }, price = "number" }
title = "name"
[encoding]
min_count = { item = 2, tags = 3 }
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Every feature at once: repeats, unlisted ids, missing cells, negatives, context, rare values, rows without ids."""
    rng = np.random.default_rng(5)
    n = 900
    folder = tmp_path / "shop"
    folder.mkdir()
    moods = ["calm", "calm|busy", "", "late|busy|calm"]
    rows = [
        f"{rng.integers(40)},p{int(rng.integers(60))},{rng.integers(300)},{rng.integers(1, 6)},{rng.integers(1, 4)},"
        f"{['web', 'app', ''][rng.integers(3)]},{moods[rng.integers(4)]}"
        for _ in range(n)
    ]
    rows[17] = ",p3,1,5,1,web,calm"
    (folder / "rows.csv").write_text("u,i,t,stars,n,device,mood\n" + "\n".join(rows) + "\n")
    users = [f"{u},{['Rome', 'Oslo', ''][u % 3]},{20 + u if u % 5 else ''}" for u in range(35)]
    (folder / "users.csv").write_text("u,city,age\n" + "\n".join(users) + "\n")
    items: list[dict[str, Any]] = [
        {"i": f"p{i}", "tags": [f"t{i % 7}", f"t{i % 3}", f"rare{i}"], "price": float(i * i), "name": f"Thing {i}"}
        for i in range(55)
    ]
    items[3].pop("tags")
    items[4]["price"] = None
    (folder / "items.jsonl").write_text("\n".join(json.dumps(item) for item in items))
    (folder / "dataset.toml").write_text(TOML)
    return folder


def readable(
    describe: Callable[[np.ndarray], pl.DataFrame], table: AttributeTable
) -> list[tuple[tuple[str, str, str, float], ...]]:
    """Each row's attributes by name, with x, in an order that does not depend on row numbers."""
    used = np.unique(table.ids[table.ids > 0])
    names = dict(zip(used.tolist(), describe(used).rows(), strict=True)) if len(used) else {}
    return [
        tuple(sorted((*names[int(row)], round(float(x), 5)) for row, x in zip(ids, values, strict=True) if row))
        for ids, values in zip(table.ids, table.values, strict=True)
    ]


def in_memory(folder: Path) -> list[Any]:
    data = load_dataset(folder)
    split = make_split(data)
    part = np.zeros(data.n_interactions, int)
    part[split.validation], part[split.test] = 1, 2
    train = np.flatnonzero(part == 0)
    encoder = Encoder.fit(data, train)
    encoded = encoder.encode(data)
    users, items, context = (
        readable(encoder.attribute_names, table) for table in (encoded.user, encoded.item, encoded.context)
    )
    rows = data.interactions.select("time", "label", "weight", "positive").rows()
    return sorted(
        (data.users.ids[int(user)], data.items.ids[int(item)], int(part[at]), rows[at], users[user], items[item], context[at])
        for at, (user, item) in enumerate(zip(data.user_numbers, data.item_numbers, strict=True))
    )


def from_prepared(prepared: PreparedData) -> list[Any]:
    values = pl.read_parquet(prepared.folder / "values.parquet")
    fields = prepared.info.fields
    texts = [values.filter(pl.col("field") == at)["value"] for at in range(len(fields))]
    ids: dict[str, pl.Series] = {}
    for side, part in (("users", "user"), ("items", "item")):
        numbers = pl.concat(pl.read_parquet(path)["number"] for path in sorted((prepared.folder / side).glob("*.parquet")))
        frames = prepared.side(side)  # type: ignore[arg-type]
        assert numbers.to_list() == list(range(frames.height))
        ids[part] = frames["id"]
        # An id row's text is the id of the entity that has it.
        at = next(at for at, one in enumerate(fields) if one.part == part and one.kind == "id")
        rows = (prepared.users if part == "user" else prepared.items).ids[:, 0] - fields[at].offset - 2
        named = {int(row): frames["id"][number] for number, row in enumerate(rows) if row >= 0}
        texts[at] = pl.Series([named[row] for row in range(len(named))], dtype=pl.String)
    nobody = pl.Series([], dtype=pl.String)
    encoder = Encoder(fields, tuple(texts), nobody, nobody, "text", "text")
    users, items = (readable(encoder.attribute_names, table) for table in (prepared.users, prepared.items))
    result = []
    for shard in prepared.shards():
        context = readable(encoder.attribute_names, shard.context)
        rows = shard.columns.select("time", "label", "weight", "positive").rows()
        for at, (user, item) in enumerate(zip(shard.users, shard.items, strict=True)):
            result.append(
                (
                    ids["user"][int(user)],
                    ids["item"][int(item)],
                    int(shard.parts[at]),
                    rows[at],
                    users[user],
                    items[item],
                    context[at],
                )
            )
    return sorted(result)


@pytest.mark.parametrize("rows", [40, 300, 10_000])
def test_prepared_it_is_what_the_walk_in_memory_gives(shop: Path, tmp_path: Path, rows: int) -> None:
    prepared = prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "out", rows_per_bucket=rows)
    assert from_prepared(prepared) == in_memory(shop)
    assert not (tmp_path / "out" / ".work").exists()
    assert prepared.info.user_id_type == "text"  # as every id from a text file: 007 is not 7
    notes = " ".join(prepared.info.notes)
    assert "5 users have no row in the users table" in notes
    assert "5 items have no row in the items table" in notes
    assert "1 row(s) of the interactions have no user or no item" in notes
    assert "repeated rows were merged" in notes


def test_all_rows_of_a_user_are_in_one_shard_and_readers_share_them(shop: Path, tmp_path: Path) -> None:
    prepared = prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "out", rows_per_bucket=100)
    assert prepared.n_shards > 3
    users = [set(shard.users.tolist()) for shard in prepared.shards()]
    assert sum(len(one) for one in users) == len(set.union(*users))
    rows = [sum(len(shard.users) for shard in prepared.shards(rank, 3)) for rank in range(3)]
    assert sum(rows) == prepared.info.n_interactions
    again = PreparedData(tmp_path / "out")
    assert isinstance(again.items.ids, np.memmap)
    assert np.array_equal(again.items.ids, prepared.items.ids)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_killed_at_any_moment_it_goes_on_to_the_same_folder(tmp_path: Path) -> None:
    write_bazaar(Market(n_users=2_000, n_purchases=24_000), tmp_path / "market")
    command = [
        sys.executable,
        "-m",
        "gmlfm",
        "data",
        "prepare",
        str(tmp_path / "market"),
        "--rows-in-memory",
        "2000",
        "--json",
        "--out",
    ]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    kills = 0
    for wait in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        process = subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        if process.wait() == 0:
            break
    assert kills > 0
    if not (tmp_path / "killed" / "prepared.json").exists() or (tmp_path / "killed" / ".work").exists():
        told = subprocess.run([*command, str(tmp_path / "killed")], check=False, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")


def test_what_must_not_be_mixed_is_refused(shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = Schema.from_toml(shop / "dataset.toml")
    prepare(schema, shop, tmp_path / "out")
    with pytest.raises(DataError, match="is prepared already"):
        prepare(schema, shop, tmp_path / "out")
    with pytest.raises(DataError, match="holds other files"):
        prepare(schema, shop, shop)
    with pytest.raises(OptionError, match="leave-one-out or none"):
        prepare(schema, shop, tmp_path / "new", split="random")
    (tmp_path / "half" / ".work").mkdir(parents=True)
    (tmp_path / "half" / ".work" / "stamp.json").write_text("{}")
    notes = prepare(schema, shop, tmp_path / "half").info.notes
    assert "an unfinished preparation of other data was thrown away." in notes
    assert main(["data", "prepare", str(shop), "--out", str(tmp_path / "x"), "--rows-in-memory", "0"]) == 2
    assert "expected 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("users.csv", "\n3,", "\n2,", "the id '2' occurs more than once"),
        ("rows.csv", ",web,", ",web,", None),
        ("dataset.toml", "tolerate = 3", "tolerate = 0", "rows.csv line 19: 1 row(s) so far have no user or no item"),
        ("dataset.toml", 'time = "t"', 'time = "tt"', "has no column 'tt'"),
        ("dataset.toml", "rows.csv", "gone.csv", "does not exist"),
    ],
)
def test_bad_tables_are_refused(shop: Path, tmp_path: Path, file: str, old: str, new: str, message: str | None) -> None:
    text = (shop / file).read_text()
    assert old in text
    (shop / file).write_text(text.replace(old, new, 1))
    schema = Schema.from_toml(shop / "dataset.toml")
    if message is None:
        assert prepare(schema, shop, tmp_path / "out").info.split == "leave-one-out"
        return
    with pytest.raises(GmlfmError) as caught:
        prepare(schema, shop, tmp_path / "out")
    assert message in str(caught.value)
    assert not (tmp_path / "out" / "prepared.json").exists()


def test_dates_whose_order_cannot_be_told_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("u,i,t\n1,a,03/04/2020\n")
    toml = '[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\ntime = "t"\n'
    (tmp_path / "dataset.toml").write_text(toml)
    with pytest.raises(DataError, match=r"set .interactions. time_format"):
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out")
    (tmp_path / "dataset.toml").write_text(toml + 'time_format = "%d/%m/%Y"\n')
    (tmp_path / "out2").mkdir()
    assert (
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out2", split="none").info.n_interactions == 1
    )


def test_a_damaged_prepared_folder_is_refused(shop: Path, tmp_path: Path) -> None:
    prepared = prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "out")
    (tmp_path / "out" / "interactions" / "00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="missing or damaged"):
        prepared.shard(0)
    path = tmp_path / "out" / "prepared.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 9'))
    with pytest.raises(DataError, match="format 9, this version reads 2"):
        PreparedData(tmp_path / "out")
    path.write_text("{")
    with pytest.raises(DataError, match="cannot be understood"):
        PreparedData(tmp_path / "out")
    with pytest.raises(DataError, match="is no prepared folder"):
        PreparedData(tmp_path)


def test_padding_and_lists_are_two_forms_of_the_same() -> None:
    table = AttributeTable(np.array([[3, 4], [5, 0], [0, 0]], np.int32), np.array([[1, 0.5], [2, 0], [0, 0]], np.float32))
    rows, x = unpadded(table)
    assert rows.to_list() == [[3, 4], [5], []]
    again = padded(rows, x, 2)
    assert np.array_equal(again.ids, table.ids)
    assert np.array_equal(again.values, table.values)


def test_the_built_in_market_can_be_prepared_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", "bazaar", "--out", str(tmp_path / "p"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["interactions"] == 46_712


def test_cut_otherwise_an_unfinished_preparation_begins_anew(tmp_path: Path) -> None:
    pl.DataFrame({"u": [n % 50 for n in range(1000)], "i": [n for n in range(1000)]}).write_parquet(tmp_path / "e.parquet")
    (tmp_path / "dataset.toml").write_text('[interactions]\npath = "e.parquet"\nuser = "u"\nitem = "i"\n')
    schema = Schema.from_toml(tmp_path / "dataset.toml")

    def stop(step: str, done: int, of: int) -> None:
        if (step, done) == ("reading interactions", 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(schema, tmp_path, tmp_path / "out", rows_per_bucket=500, progress=stop)
    assert prepare(schema, tmp_path, tmp_path / "out", rows_per_bucket=999).info.n_interactions == 1000


def test_fields_may_have_the_names_of_our_own_columns(tmp_path: Path) -> None:
    items = pl.DataFrame(
        {"sku": [f"p{n}" for n in range(40)], "listed": ["l0", "l1"] * 20, "id": ["a", "b"] * 20, "title": ["x"] * 40}
    )
    items.with_columns(name=pl.lit("N")).write_parquet(tmp_path / "items.parquet")
    pl.DataFrame({"u": [n % 9 for n in range(80)], "i": [f"p{n % 45}" for n in range(80)]}).write_parquet(
        tmp_path / "e.parquet"
    )
    fields = 'fields = { listed = "category", id = "category", title = "category" }'
    (tmp_path / "dataset.toml").write_text(
        '[interactions]\npath = "e.parquet"\nuser = "u"\nitem = "i"\n[items]\npath = "items.parquet"\nid = "sku"\ntitle = "name"\n'
        + fields
    )
    prepared = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out", rows_per_bucket=20)
    assert {field.name: field.n_values for field in prepared.info.fields if field.kind == "category"} == {
        "listed": 2,
        "id": 2,
        "title": 1,
    }


def test_broken_lines_and_positives_are_counted_over_all_pieces(tmp_path: Path) -> None:
    rows = [f"{n % 9},p{n},{1 if n < 150 else 5}" for n in range(300)]
    rows[7] = "broken"
    (tmp_path / "e.csv").write_text("u,i,stars\n" + "\n".join(rows))
    toml = '[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\npositive = "stars >= 4"\nread = { tolerate = 1 }\n'
    (tmp_path / "dataset.toml").write_text(toml)
    pl.read_csv(tmp_path / "e.csv", ignore_errors=True, truncate_ragged_lines=True).drop_nulls().write_parquet(
        tmp_path / "e.parquet"
    )
    notes = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out", rows_per_bucket=100).info.notes
    assert "e.csv: 1 broken line(s) left out, the first is line 9 (1 fields instead of 3)." in notes
    (tmp_path / "dataset.toml").write_text(toml.replace("e.csv", "e.parquet"))
    assert (
        prepare(
            Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "two", rows_per_bucket=100
        ).info.n_interactions
        == 299
    )
    (tmp_path / "dataset.toml").write_text(toml.replace(">= 4", ">= 9"))
    with pytest.raises(DataError, match="no row fulfils positive"):
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "three")


def test_an_empty_side_is_refused_and_a_file_is_no_folder(shop: Path, tmp_path: Path) -> None:
    (shop / "users.csv").write_text("u,city,age\n")
    with pytest.raises(DataError, match=r"users\.csv is empty"):
        prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "out")
    with pytest.raises(DataError, match="is a file; name a folder"):
        prepare(Schema.from_toml(shop / "dataset.toml"), shop, shop / "users.csv")
