from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Schema, load_dataset
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.errors import DataError, GmlfmError, SchemaError
from gmlfm.fitting import fit
from gmlfm.training.settings import Settings


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("users.csv", "\n3,", "\n2,", "the id '2' occurs more than once"),
        ("rows.csv", ",web,", ",web,", None),
        (
            "rows.csv",
            "u,i,t,stars,n,device,mood\n",
            "u,i,t,stars,n,device,mood\n1,p1,5,inf,1,web,calm\n",
            "rows.csv line 2: the column 'stars' is infinite",
        ),
        (
            "rows.csv",
            "u,i,t,stars,n,device,mood\n",
            "u,i,t,stars,n,device,mood\n1,p1,-inf,5,1,web,calm\n",
            "rows.csv line 2: the column 't' is infinite",
        ),
        ("users.csv", ",21\n", ",inf\n", "users.csv line 3: the column 'age' is infinite; give a finite number"),
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


@pytest.mark.parametrize("year", ["2020", "20"])
def test_dates_whose_order_of_day_and_month_is_open_are_refused(tmp_path: Path, year: str) -> None:
    (tmp_path / "e.csv").write_text(f"u,i,t\n1,a,2020-01-01\n1,b,03/04/{year}\n")
    toml = '[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\ntime = "t"\n'
    (tmp_path / "dataset.toml").write_text(toml)
    with pytest.raises(DataError, match=rf"dates such as '03/04/{year}', .* set .interactions. time_format"):
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out")
    (tmp_path / "e.csv").write_text(f"u,i,t\n1,b,03/04/{year}\n")
    (tmp_path / "dataset.toml").write_text(toml + f'time_format = "%d/%m/{"%Y" if year == "2020" else "%y"}"\n')
    (tmp_path / "out2").mkdir()
    assert (
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out2", split="none").info.n_interactions == 1
    )


def test_broken_lines_and_positives_are_counted_over_all_chunks(tmp_path: Path) -> None:
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


def test_an_empty_side_is_refused(shop: Path, tmp_path: Path) -> None:
    (shop / "users.csv").write_text("u,city,age\n")
    with pytest.raises(DataError, match=r"users\.csv is empty"):
        prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "out")


EVENTS = '[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\ntime = "t"\nlabel = "stars"\npositive = "stars >= 3"\nevent = "e"\n'


def write_events(folder: Path, *lines: str, suffix: str = "csv") -> Schema:
    """Three kinds of events; only purchases have stars. The first hundred rows and some users and items have none."""
    rng = np.random.default_rng(0)
    n = 600
    kinds = np.where(np.arange(n) < 100, "click", rng.choice(["click", "cart", "buy", "look"], n, p=[0.5, 0.2, 0.2, 0.1]))
    stars = [int(star) if kind == "buy" else None for kind, star in zip(kinds, rng.integers(1, 6, n), strict=True)]
    table = pl.DataFrame(
        {"u": rng.integers(40, size=n), "i": rng.integers(150, size=n), "t": rng.integers(50, size=n), "stars": stars}
    )
    table = table.with_columns(pl.Series("e", kinds.tolist()), on=pl.Series([["a", None][row % 2] for row in range(n)]))
    if suffix == "csv":
        table.write_csv(folder / "e.csv")
    else:  # a key without a value is left out
        rows = [{key: value for key, value in row.items() if value is not None} for row in table.iter_rows(named=True)]
        (folder / "e.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    text = EVENTS.replace("e.csv", f"e.{suffix}") + "\n".join(lines) + '\ncontext = { on = "category" }\n'
    (folder / "dataset.toml").write_text(text)
    return Schema.from_toml(folder / "dataset.toml")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("repeats", ["merge", "keep"])
@pytest.mark.parametrize("history_events", [(), ("click",), ("click", "buy")])
def test_targets_are_those_of_memory(tmp_path: Path, suffix: str, repeats: str, history_events: tuple[str, ...]) -> None:
    listed = [f"history_events = {json.dumps(history_events)}"] if history_events else []
    schema = write_events(tmp_path, 'targets = ["buy"]', f'repeats = "{repeats}"', 'ties = "file"', *listed, suffix=suffix)
    prepared = prepare(schema, tmp_path, tmp_path / "out", split="none", rows_per_bucket=100)
    assert prepared.n_shards > 1
    restored, data = restore(prepared)[0], load_dataset(tmp_path)
    for side in ("users", "items"):
        assert sorted(getattr(restored, side).ids) == sorted(getattr(data, side).ids)

    def named(some: Dataset) -> list[tuple[object, ...]]:
        frame = some.interactions.with_columns(
            some.users.ids.gather(some.interactions["user"]).alias("user"),
            some.items.ids.gather(some.interactions["item"]).alias("item"),
            pl.Series("counts", some.counts_as_history),
            some.context["on"],
        )
        return sorted(frame.select(sorted(frame.columns)).rows(), key=repr)

    assert named(restored) == named(data)
    spec = restored.schema.interactions
    assert spec.ties == "file"
    of_kinds = (spec.event is not None, spec.targets, spec.history_events)
    assert of_kinds == (True, data.schema.interactions.targets, data.schema.interactions.history_events)
    assert data.history_rows.height > int(data.history_rows["is_had"].sum())
    assert history_of(restored) == history_of(data)
    assert set(data.warnings) - {warning for warning in data.warnings if "label" in warning} <= set(prepared.info.notes)


def history_of(data: Dataset) -> list[tuple[object, ...]]:
    """The rows that count as history alone, by ids, each with how many rows of its user stand before it."""
    rows = []
    for user, item, before, is_had, time in data.history_rows.select("user", "item", "before", "is_had", "time").iter_rows():
        n_own = int((data.user_numbers[:before] == user).sum())
        rows.append((data.users.ids[user], data.items.ids[item], n_own, is_had, time))
    return sorted(rows, key=repr)


def test_users_with_history_alone_are_kept_in_a_shard_of_their_own(tmp_path: Path) -> None:
    """Their bucket has no interactions, and its shard is read as any."""
    buyers = [f"u{user}" for user in range(90) if zlib.crc32(f"u{user}".encode()) % 4 == 1]
    rows = [(user, f"i{n}", n, "buy") for user in buyers for n in range(len(user) % 3 + 3)]
    rows += [(f"c{user}", f"i{n}", n, "click") for user in range(400) for n in range(4)]
    frame = pl.DataFrame(rows, schema=["u", "i", "t", "e"], orient="row")
    with_time = frame.with_columns(stars=pl.lit(5), on=pl.lit("a"))
    schema = write_events(tmp_path, 'targets = ["buy"]')
    with_time.write_csv(tmp_path / "e.csv")
    prepared = prepare(schema, tmp_path, tmp_path / "out", split="leave-one-out", rows_per_bucket=-(-len(rows) // 4))
    n_rows = [shard.rows for shard in prepared.info.interactions]
    assert [n > 0 for n in n_rows] == [False, True, False, False]
    restored, data = restore(prepared)[0], load_dataset(tmp_path)
    assert history_of(restored) == history_of(data)
    assert restored.history_rows.height == 1600
    settings = Settings.make("fm", "topn", {"k": 2, "epochs": 1, "threads": 1, "history": "last"})
    run = fit(prepared, settings)
    assert np.isfinite(run.curve[0]["loss"])
    clicked = run.histories.complete(run.encoder.user_numbers(["c7"])).items
    assert sorted(run.data.items.ids.gather(clicked).to_list()) == ["i0", "i1", "i2", "i3"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_wrong_kinds_are_refused(tmp_path: Path, suffix: str) -> None:
    schema = write_events(tmp_path, 'targets = ["bouy"]', suffix=suffix)
    with pytest.raises(DataError, match=r"targets names 'bouy', but no row of e\..* has it in 'e'; did you mean 'buy'"):
        prepare(schema, tmp_path, tmp_path / "out", rows_per_bucket=100)
    schema = replace(schema, interactions=replace(schema.interactions, event="kind", targets=("buy",)))
    with pytest.raises(SchemaError, match="'kind', which event "):
        prepare(schema, tmp_path, tmp_path / "two", rows_per_bucket=100)
