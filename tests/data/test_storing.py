from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from polars.testing import assert_frame_equal, assert_series_equal

from gmlfm import Dataset, make_split
from gmlfm.data.storing import load_saved_dataset, load_split, save_dataset, save_split
from gmlfm.errors import DataError
from tests.data.arbitrary import build, datasets, random_plain
from tests.fuzz.cases import DAMAGES, damaged, generator


@given(data=datasets())
def test_a_dataset_is_loaded_as_it_was_saved(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data") / "data"
    save_dataset(data, folder)
    loaded = load_saved_dataset(folder)
    assert loaded.content_hash == data.content_hash
    assert (loaded.schema, loaded.warnings) == (data.schema, data.warnings)
    assert_frame_equal(loaded.interactions, data.interactions)
    assert_frame_equal(loaded.context, data.context)
    assert (folder / "history_rows.parquet").exists() == (data.history_rows.height > 0)
    if data.history_rows.height:
        assert_frame_equal(loaded.history_rows, data.history_rows)
    for left, right in ((loaded.users, data.users), (loaded.items, data.items)):
        assert (left.id_type, left.n_listed) == (right.id_type, right.n_listed)
        assert_frame_equal(left.fields, right.fields)
        assert_series_equal(left.ids, right.ids)


def test_titles_are_stored_too(tmp_path: Path) -> None:
    save_dataset(build(), tmp_path)
    titles = load_saved_dataset(tmp_path).items.titles
    assert titles is not None
    assert titles.to_list() == ["B", "A", "Z", None]


def test_kinds_of_events_are_stored_and_data_of_before_have_none(tmp_path: Path) -> None:
    table = {"u": ["a", "a", "b", "b"], "i": ["x", "y", "x", "y"], "e": ["see", "buy", "buy", "get"], "t": [1, 2, 3, 4]}
    kinds = {"event": "e", "targets": ["buy", "get"], "history_events": ["see", "buy"], "ties": "file"}
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "time": "t", **kinds}})
    save_dataset(data, tmp_path / "new")
    loaded = load_saved_dataset(tmp_path / "new")
    assert loaded.schema == data.schema
    assert loaded.counts_as_history.tolist() == [True, True, False]
    assert_frame_equal(loaded.history_rows, data.history_rows)
    (tmp_path / "new" / "history_rows.parquet").unlink()
    with pytest.raises(DataError, match="the content does not fit its hash"):
        load_saved_dataset(tmp_path / "new")
    before = random_plain(5, 5, 20)
    save_dataset(before, tmp_path / "old")
    path = tmp_path / "old" / "dataset.json"
    metadata = json.loads(path.read_text())
    for key in ("ties", "event", "targets", "history_events"):
        del metadata["schema"]["interactions"][key]
    path.write_text(json.dumps(metadata))
    loaded = load_saved_dataset(tmp_path / "old")
    assert (loaded.schema.interactions.ties, loaded.schema.interactions.event) == ("strict", None)
    assert loaded.content_hash == before.content_hash


@pytest.mark.parametrize("name", ["leave-one-out", "newcomers"])
def test_a_split_is_loaded_as_it_was_saved(name: str, tmp_path: Path) -> None:
    split = make_split(random_plain(40, 30, 800), name)
    save_split(split, tmp_path)
    loaded = load_split(tmp_path)
    assert loaded.hash == split.hash
    assert (loaded.options, loaded.group_names, loaded.notes) == (split.options, split.group_names, split.notes)
    for left, right in ((loaded.validation_groups, split.validation_groups), (loaded.test_groups, split.test_groups)):
        assert (left is None) == (right is None)
        assert left is None or right is None or np.array_equal(left, right)


def test_candidate_lists_are_stored_with_their_split(tmp_path: Path) -> None:
    data = random_plain(10, 10, 60)
    split = make_split(data, "leave-one-out")
    lists = np.arange(3 * len(split.test), dtype=np.int32).reshape(-1, 3)
    lists[0, 2] = -1
    for number, (validation, test) in enumerate(((None, lists), (lists[:0], lists), (None, None))):
        folder = tmp_path / str(number)
        folder.mkdir()
        brought = replace(split, validation_candidates=validation, test_candidates=test)
        save_split(brought, folder)
        loaded = load_split(folder)
        assert loaded.hash == brought.hash
        for left, right in ((loaded.validation_candidates, validation), (loaded.test_candidates, test)):
            assert (left is None) == (right is None)
            assert left is None or right is None or (left.dtype == np.int32 and np.array_equal(left, right))
    save_split(replace(split, test_candidates=lists[:, ::-1]), tmp_path / "0")
    (tmp_path / "1" / "test_candidates.parquet").replace(tmp_path / "0" / "test_candidates.parquet")
    with pytest.raises(DataError, match="damaged split: its rows do not fit its hash"):
        load_split(tmp_path / "0")
    (tmp_path / "0" / "test_candidates.parquet").unlink()
    with pytest.raises(DataError, match="no readable split"):
        load_split(tmp_path / "0")


def test_a_split_saved_before_there_were_candidate_lists_is_loaded(tmp_path: Path) -> None:
    split = make_split(random_plain(10, 10, 60), "leave-one-out")
    save_split(split, tmp_path)
    metadata = json.loads((tmp_path / "split.json").read_text())
    del metadata["candidates"]
    (tmp_path / "split.json").write_text(json.dumps(metadata))
    assert load_split(tmp_path).hash == split.hash


def test_what_is_damaged_or_gone_is_refused(tmp_path: Path) -> None:
    data = random_plain(10, 10, 60)
    save_dataset(data, tmp_path)
    save_split(make_split(data), tmp_path)
    save_dataset(random_plain(10, 10, 60, seed=1), tmp_path / "other")
    (tmp_path / "other" / "interactions.parquet").replace(tmp_path / "interactions.parquet")
    with pytest.raises(DataError, match="damaged data: the content does not fit its hash"):
        load_saved_dataset(tmp_path)
    path = tmp_path / "split.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(DataError, match="damaged split: its rows do not fit its hash"):
        load_split(tmp_path)
    path.write_text("{")
    with pytest.raises(DataError, match="no readable split"):
        load_split(tmp_path)
    with pytest.raises(DataError, match="no readable data"):
        load_saved_dataset(tmp_path / "gone")


def test_any_damage_is_harmless_or_refused(tmp_path: Path) -> None:
    """Flips, cuts and edits of each file: what is loaded is what was saved, or a DataError comes."""
    data = build()
    save_dataset(data, tmp_path)
    save_split(make_split(data, "random"), tmp_path)
    split_hash = load_split(tmp_path).hash
    n_refused = 0
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        for number in range(2 * len(DAMAGES)):
            path.write_bytes(damaged(content, DAMAGES[number % len(DAMAGES)], generator(path.name, number)))
            try:
                assert load_saved_dataset(tmp_path).content_hash == data.content_hash
                assert load_split(tmp_path).hash == split_hash
            except DataError:
                n_refused += 1
        path.write_bytes(content)
    assert n_refused > 50


@pytest.mark.parametrize("content", ["[]", "3", "null", "[" * 50_000, '{"schema": 3}', '{"group_names": 5}'])
def test_json_of_nonsense_is_refused(tmp_path: Path, content: str) -> None:
    data = build()
    save_dataset(data, tmp_path)
    save_split(make_split(data, "random"), tmp_path)
    for name, load in (("dataset.json", load_saved_dataset), ("split.json", load_split)):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match="holds no readable"):
            load(tmp_path)
