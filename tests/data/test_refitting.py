"""A folder encoded anew for a refit holds what an encoder fitted in memory on the refit's rows gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Encoder, Schema, load_dataset, make_split
from gmlfm.data import refitting
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.prepared import PreparedData
from gmlfm.data.refitting import RefittedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.data.splits import TEST, TRAIN, VALIDATION
from gmlfm.errors import DataError
from tests.data.sources.preparing.conftest import shop as shop


@pytest.fixture
def prepared(shop: Path, tmp_path: Path) -> PreparedData:
    return prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "p", rows_per_bucket=200)


def readable(encoder: Encoder, table: AttributeTable) -> list[list[tuple[Any, ...]]]:
    """Each row's attributes by name, with x."""
    used = np.unique(table.ids[table.ids > 0])
    names = dict(zip(used.tolist(), encoder.attribute_names(used).rows(), strict=True))
    return [
        sorted((*names[int(row)], round(float(x), 5)) for row, x in zip(ids, values, strict=True) if row)
        for ids, values in zip(table.ids, table.values, strict=True)
    ]


def by_id(ids: pl.Series, attributes: list[Any]) -> dict[str, Any]:
    return dict(zip(ids.to_list(), attributes, strict=True))


@pytest.mark.parametrize("parts", [(TRAIN, VALIDATION), (TRAIN, VALIDATION, TEST)])
@pytest.mark.parametrize("rows_per_block", [7, 10**6])
def test_a_refit_reads_what_an_encoder_fitted_on_its_rows_gives(
    prepared: PreparedData, shop: Path, parts: tuple[int, ...], rows_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refitting, "_ROWS_PER_BLOCK", rows_per_block)
    refitted = RefittedData(prepared, parts)
    memory = load_dataset(shop)
    split = make_split(memory)
    others = np.flatnonzero(~memory.interactions["positive"].to_numpy())  # rated, of no part, but learned from by a rating
    rows = np.concatenate([(split.train, split.validation, split.test)[part] for part in parts])
    encoder = Encoder.fit(memory, np.sort(np.concatenate([rows, others])))
    expected = encoder.encode(memory)
    data, _, restored = restore(refitted)
    assert [(field.name, field.n_values) for field in restored.fields] == [
        (field.name, field.n_values) for field in encoder.fields
    ]
    assert [(field.centre, field.scale) for field in restored.fields] == [
        (field.centre, field.scale) for field in encoder.fields
    ]
    for table, whole, ids, ids_in_memory in (
        (refitted.users, expected.user, data.users.ids, memory.users.ids),
        (refitted.items, expected.item, data.items.ids, memory.items.ids),
    ):
        assert by_id(ids, readable(restored, table)) == by_id(ids_in_memory, readable(encoder, whole))
    context = [row for shard in refitted.shards() for row in readable(restored, shard.context)]
    assert sorted(context) == sorted(readable(encoder, expected.context))
    # What a run keeps at the end is what it was trained with.
    encoded = restored.encode(data)
    np.testing.assert_array_equal(encoded.item.ids, refitted.items.ids)
    np.testing.assert_array_equal(encoded.user.values, refitted.users.values)
    assert readable(restored, encoded.context) == context


def test_ids_that_only_held_out_rows_name_get_rows(small_prepared: PreparedData) -> None:
    """In the market most things are sold once: the items of the validation part have rows by the refit alone."""
    held_out = np.concatenate([shard.items[shard.parts == VALIDATION] for shard in small_prepared.shards()])
    shares = []
    for data in (small_prepared, RefittedData(small_prepared, (TRAIN, VALIDATION))):
        unknown = next(field.unknown_row for field in data.info.fields if field.part == "item" and field.kind == "id")
        shares.append(float((data.items.ids[held_out, 0] == unknown).mean()))
        assert isinstance(data.items.ids, np.memmap)
    assert shares[0] > 0.9
    assert shares[1] == 0.0


def test_the_folder_stays_as_it_was(prepared: PreparedData) -> None:
    before = {path: path.stat().st_mtime_ns for path in prepared.folder.rglob("*") if path.is_file()}
    refitted = RefittedData(prepared, (TRAIN, VALIDATION))
    _ = refitted.users, refitted.items, refitted.values
    after = {path: path.stat().st_mtime_ns for path in prepared.folder.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() - before.keys()} == {"users.ids.parts-0-1.npy", "items.ids.parts-0-1.npy"}
    assert all(after[path] == time for path, time in before.items())
    rows = np.array(refitted.items.ids)
    refitted.remove_cache()
    assert before.keys() == {path for path in prepared.folder.rglob("*") if path.is_file()}
    np.testing.assert_array_equal(refitted.items.ids, rows)  # mapped still


def test_a_full_disk_leaves_no_half_file(prepared: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(refitting, "write_header", full)
    with pytest.raises(DataError, match=r"could not be written \(No space left on device\)"):
        _ = RefittedData(prepared, (TRAIN, VALIDATION)).users
    assert not list((prepared.folder / "cache").glob("*parts*")) + list((prepared.folder / "cache").glob(".*"))
