"""A prepared folder holds what encoding in memory gives, however finely it was partitioned and however often it was stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Encoder, Schema, load_dataset, make_split
from gmlfm.cli import main
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.prepared import PreparedData
from gmlfm.data.sources import chunks
from gmlfm.data.sources.preparing import prepare
from gmlfm.data.sources.preparing.run import _pieces
from gmlfm.errors import DataError, OptionError, SchemaError


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
    parts = np.zeros(data.n_interactions, int)
    parts[split.validation], parts[split.test] = 1, 2
    encoder = Encoder.fit(data, np.flatnonzero(parts == 0))
    encoded = encoder.encode(data)
    users, items, context = (
        readable(encoder.attribute_names, table) for table in (encoded.user, encoded.item, encoded.context)
    )
    rows = data.interactions.select("time", "label", "weight", "positive").rows()
    return sorted(
        (
            data.users.ids[int(user)],
            data.items.ids[int(item)],
            int(parts[row]),
            rows[row],
            users[user],
            items[item],
            context[row],
        )
        for row, (user, item) in enumerate(zip(data.user_numbers, data.item_numbers, strict=True))
    )


def from_prepared(prepared: PreparedData) -> list[Any]:
    values = pl.read_parquet(prepared.folder / "values.parquet")
    fields = prepared.info.fields
    texts = [values.filter(pl.col("field") == index)["value"] for index in range(len(fields))]
    ids: dict[str, pl.Series] = {}
    for side, part in (("users", "user"), ("items", "item")):
        numbers = pl.concat(pl.read_parquet(path)["number"] for path in sorted((prepared.folder / side).glob("*.parquet")))
        frame = prepared.side(side)  # type: ignore[arg-type]
        assert numbers.to_list() == list(range(frame.height))
        ids[part] = frame["id"]
        # An id row's text is the id of the entity that has it.
        index = next(index for index, field in enumerate(fields) if field.part == part and field.kind == "id")
        rows = (prepared.users if part == "user" else prepared.items).ids[:, 0] - fields[index].offset - 2
        named = {int(row): frame["id"][number] for number, row in enumerate(rows) if row >= 0}
        texts[index] = pl.Series([named[row] for row in range(len(named))], dtype=pl.String)
    no_ids = pl.Series([], dtype=pl.String)
    encoder = Encoder(fields, tuple(texts), no_ids, no_ids, "text", "text")
    users, items = (readable(encoder.attribute_names, table) for table in (prepared.users, prepared.items))
    result = []
    for shard in prepared.shards():
        context = readable(encoder.attribute_names, shard.context)
        rows = shard.columns.select("time", "label", "weight", "positive").rows()
        for row, (user, item) in enumerate(zip(shard.users, shard.items, strict=True)):
            result.append(
                (
                    ids["user"][int(user)],
                    ids["item"][int(item)],
                    int(shard.parts[row]),
                    rows[row],
                    users[user],
                    items[item],
                    context[row],
                )
            )
    return sorted(result)


@pytest.mark.parametrize("rows", [40, 300, 10_000])
def test_a_prepared_folder_holds_what_encoding_in_memory_gives(shop: Path, tmp_path: Path, rows: int) -> None:
    prepared = prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "out", rows_per_bucket=rows)
    assert from_prepared(prepared) == in_memory(shop)
    assert not (tmp_path / "out" / ".work").exists()
    assert prepared.info.user_id_type == "text"  # as every id from a text file: 007 is not 7
    notes = " ".join(prepared.info.notes)
    assert "5 users have no row in the users table" in notes
    assert "5 items have no row in the items table" in notes
    assert "1 row(s) of the interactions have no user or no item" in notes
    assert "repeated rows were merged" in notes


@pytest.mark.parametrize("rows", [40, 300, 10_000])
@pytest.mark.parametrize(
    "where", ["stars > 1 and device is not null", "t > 250 or (`u` in ('3', '7') and not mood contains 'calm')"]
)
def test_where_chooses_the_same_rows_as_in_memory(shop: Path, tmp_path: Path, rows: int, where: str) -> None:
    toml = shop / "dataset.toml"
    unfiltered = prepare(Schema.from_toml(toml), shop, tmp_path / "whole", rows_per_bucket=rows)
    toml.write_text(toml.read_text().replace("[users]", f'where = "{where}"\n[users]'))
    prepared = prepare(Schema.from_toml(toml), shop, tmp_path / "out", rows_per_bucket=rows)
    assert from_prepared(prepared) == in_memory(shop)
    notes = [note for note in prepared.info.notes if "are left out, as where" in note]
    assert notes == [warning for warning in load_dataset(shop).warnings if "are left out, as where" in warning]
    assert len(notes) == 1
    assert prepared.info.source_hash != unfiltered.info.source_hash


def test_chunks_of_which_nothing_is_used_do_not_change_types(tmp_path: Path) -> None:
    table = pl.DataFrame({"u": [n % 50 for n in range(1000)], "i": [n % 30 for n in range(1000)], "t": range(1000)})
    table.write_parquet(tmp_path / "e.parquet")
    toml = '[interactions]\npath = "e.parquet"\nuser = "u"\nitem = "i"\ntime = "t"\nwhere = "t >= 700"\n'
    (tmp_path / "dataset.toml").write_text(toml)
    prepared = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out", rows_per_bucket=100)
    assert prepared.info.n_interactions == load_dataset(tmp_path).n_interactions == 150
    assert (prepared.info.user_id_type, prepared.info.item_id_type) == ("integer", "integer")
    (tmp_path / "dataset.toml").write_text(toml.replace("700", "7000"))
    with pytest.raises(DataError, match=r'e.parquet: no row fulfils where = "t >= 7000", so nothing is left'):
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "new")


def test_keys_that_some_json_lines_lack_are_missing_and_keys_that_all_lack_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_BLOCK", 2000)
    lines = [{"u": f"u{n % 9}", "i": f"p{n % 7}", **({"bot": "yes"} if n > 480 else {})} for n in range(500)]
    (tmp_path / "e.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    toml = '[interactions]\npath = "e.jsonl"\nuser = "u"\nitem = "i"\nrepeats = "keep"\nwhere = "bot is null"\n'
    (tmp_path / "dataset.toml").write_text(toml)
    prepared = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out")
    assert prepared.info.n_interactions == load_dataset(tmp_path).n_interactions == 481
    (tmp_path / "dataset.toml").write_text(toml.replace("bot", "bott"))
    with pytest.raises(SchemaError, match="has no column 'bott', which where names"):
        load_dataset(tmp_path)
    with pytest.raises(SchemaError, match=r"e.jsonl has no value of 'bott', which a condition of \[interactions\] names"):
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "new")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


KILLED = """
import os, shutil, signal, sys
import polars as pl
from gmlfm import Schema
from gmlfm.data.sources.preparing import prepare
from pathlib import Path

market, out, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def counted(call, kill_first):
    def wrapper(*arguments, **options):
        global left
        left -= 1
        if left == 0 and kill_first:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*arguments, **options)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapper

pl.DataFrame.write_parquet = counted(pl.DataFrame.write_parquet, False)
shutil.rmtree = counted(shutil.rmtree, True)
prepare(Schema.from_toml(market / "dataset.toml"), market, out, rows_per_bucket=1_000, progress=lambda step, *_: print(step, flush=True))
"""


def test_killed_in_any_step_it_goes_on_to_the_same_folder(
    small_market: Path, small_prepared: PreparedData, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    steps = []
    for n_writes in (6, 32, 30, 44, 16, 14):
        command = [sys.executable, "-c", KILLED, str(small_market), str(out), str(n_writes)]
        killed = subprocess.run(command, check=False, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        steps.append(killed.stdout.splitlines()[-1])
    every_step = ["reading items", "reading interactions", "numbering items", "numbering users"]
    assert steps == [*every_step, "encoding users", "encoding interactions"]
    assert (out / "prepared.json").exists()  # only the intermediate files are left to be removed
    assert (out / ".work").exists()
    prepare(Schema.from_toml(small_market / "dataset.toml"), small_market, out, rows_per_bucket=1_000)
    assert tree(out) == tree(small_prepared.folder)


def test_what_must_not_be_mixed_is_refused(shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = Schema.from_toml(shop / "dataset.toml")
    prepare(schema, shop, tmp_path / "out")
    with pytest.raises(DataError, match="is prepared already"):
        prepare(schema, shop, tmp_path / "out")
    with pytest.raises(DataError, match="holds other files"):
        prepare(schema, shop, shop)
    with pytest.raises(OptionError, match="choose auto, leave-one-out, random, global-time or none"):
        prepare(schema, shop, tmp_path / "new", split="newcomers")
    (tmp_path / "half" / ".work").mkdir(parents=True)
    (tmp_path / "half" / ".work" / "stamp.json").write_text("{}")
    notes = prepare(schema, shop, tmp_path / "half").info.notes
    assert "an unfinished preparation of other data was thrown away." in notes
    with pytest.raises(DataError, match="is a file; name a folder"):
        prepare(schema, shop, shop / "users.csv")
    assert main(["data", "prepare", str(shop), "--out", str(tmp_path / "x"), "--rows-in-memory", "0"]) == 2
    assert "expected 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "items"), [("bazaar", 54_924), ("bazaar-v2", 54_908)])
def test_the_built_in_markets_can_be_prepared_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, items: int
) -> None:
    assert main(["data", "prepare", name, "--out", str(tmp_path / "p"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert (counts["items"], counts["interactions"]) == (items, 46_712)


def test_partitioned_otherwise_an_unfinished_preparation_begins_anew(tmp_path: Path) -> None:
    pl.DataFrame({"u": [n % 50 for n in range(1000)], "i": [n for n in range(1000)]}).write_parquet(tmp_path / "e.parquet")
    (tmp_path / "dataset.toml").write_text('[interactions]\npath = "e.parquet"\nuser = "u"\nitem = "i"\n')
    schema = Schema.from_toml(tmp_path / "dataset.toml")

    def stop(step: str, done: int, of: int) -> None:
        if (step, done) == ("reading interactions", 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(schema, tmp_path, tmp_path / "out", rows_per_bucket=500, progress=stop)
    assert prepare(schema, tmp_path, tmp_path / "out", rows_per_bucket=999).info.n_interactions == 1000


@pytest.mark.parametrize(("rows", "n_shards"), [(1, 6), (10**30, 1)])
def test_any_number_of_rows_in_memory_ends(tmp_path: Path, rows: int, n_shards: int) -> None:
    """A row at a time would be a file for each; more rows than a number holds are all."""
    table = pl.DataFrame({"u": [f"u{n % 50}" for n in range(800)], "i": [f"i{n * 7 % 300}" for n in range(800)]})
    table.write_parquet(tmp_path / "e.parquet")
    (tmp_path / "dataset.toml").write_text('[interactions]\npath = "e.parquet"\nuser = "u"\nitem = "i"\nrepeats = "keep"\n')
    arguments = ["data", "prepare", str(tmp_path), "--out", str(tmp_path / "p"), "--rows-in-memory", str(rows)]
    assert main(arguments) == 0
    prepared = PreparedData(tmp_path / "p")
    assert prepared.n_shards == n_shards
    assert sum(len(shard.users) for shard in prepared.shards()) == 800


@pytest.mark.parametrize("n_rows", [1, 19, 20, 10_000, 10**9])
@pytest.mark.parametrize("rows_per_bucket", [1, 7, 1_000_000, 10**400])
def test_pieces_are_few_enough_for_their_rows(n_rows: int, rows_per_bucket: int) -> None:
    n_buckets, rows_per_chunk = _pieces(n_rows, rows_per_bucket)
    assert 1 <= n_buckets <= 512
    n_files = n_buckets * max(n_buckets, -(-n_rows // rows_per_chunk))
    assert n_files <= max(1, n_rows // 10)
    assert rows_per_chunk <= max(n_rows, 20 * n_buckets)
    assert n_buckets == 1 or n_rows > rows_per_bucket


def test_what_a_damaged_earlier_try_left_is_named(small_market: Path, tmp_path: Path) -> None:
    schema = Schema.from_toml(small_market / "dataset.toml")

    def stop(step: str, *_: int) -> None:
        if step == "encoding items":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(schema, small_market, tmp_path / "p", rows_per_bucket=1_000, progress=stop)
    side = tmp_path / "p" / ".work" / "numbered-items" / "00000" / "side.parquet"
    whole = side.read_bytes()
    side.write_bytes(whole[:-9])
    with pytest.raises(
        DataError, match=r"side\.parquet, which an earlier try left, is damaged .*remove the folder and prepare"
    ):
        prepare(schema, small_market, tmp_path / "p", rows_per_bucket=1_000)
    side.write_bytes(whole)
    (tmp_path / "p" / ".work" / "interactions" / "done.json").write_text("{}")
    with pytest.raises(
        DataError, match=r"\.work, which an earlier try left, is damaged .*remove .* and prepare the data again"
    ):
        prepare(schema, small_market, tmp_path / "p", rows_per_bucket=1_000)


def test_places_that_are_no_folder_are_refused(shop: Path, tmp_path: Path) -> None:
    schema = Schema.from_toml(shop / "dataset.toml")
    for out, message in (
        ("/dev/null", "is a device; name a folder"),
        ("a" * 300, "cannot be a file's name"),
        ("a\0", "cannot be a"),
    ):
        with pytest.raises(DataError, match=message):
            prepare(schema, shop, tmp_path / out)
    with pytest.raises(OptionError, match="rows_per_bucket is 0; expected 1 or more"):
        prepare(schema, shop, tmp_path / "p", rows_per_bucket=0)


def test_a_full_disk_is_one_sentence_and_the_same_command_goes_on(small_market: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk."""
    code = """
import resource, signal, sys
from gmlfm.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.exit(main(["data", "prepare", sys.argv[1], "--out", sys.argv[2]]))
"""
    command = [sys.executable, "-c", code, str(small_market), str(tmp_path / "p")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    *_, sentence = done.stderr.strip().splitlines()
    assert "could not be written (" in sentence
    assert not [path for path in (tmp_path / "p").rglob(".*") if path.name != ".work"]
    assert main(["data", "prepare", str(small_market), "--out", str(tmp_path / "p")]) == 0
