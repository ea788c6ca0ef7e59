from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gmlfm.data.prepared import PreparedData
from gmlfm.data.prepared_info import read_info
from gmlfm.errors import DataError


@pytest.fixture
def folder(small_prepared: PreparedData, tmp_path: Path) -> Path:
    """A folder with that prepared.json alone."""
    shutil.copy(small_prepared.folder / "prepared.json", tmp_path)
    return tmp_path


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object], keep_digest: bool = False) -> None:
    content = json.loads((folder / "prepared.json").read_text())
    change(content)
    if not keep_digest:
        content.pop("sha256", None)
    (folder / "prepared.json").write_text(json.dumps(content))


def test_what_is_written_is_read(small_prepared: PreparedData, folder: Path) -> None:
    assert read_info(folder) == small_prepared.info
    small_prepared.info.write(folder)
    assert read_info(folder) == small_prepared.info
    assert set(small_prepared.info.checksums) == {
        str(path.relative_to(small_prepared.folder)) for path in small_prepared.folder.rglob("*.parquet")
    }


def test_another_engine_need_not_write_checksums(small_prepared: PreparedData, folder: Path) -> None:
    rewrite(folder, lambda content: content.pop("checksums"))
    assert read_info(folder).checksums == {}
    assert read_info(folder).fields == small_prepared.info.fields


def test_a_changed_number_is_seen(folder: Path) -> None:
    rewrite(folder, lambda content: content["fields"][1].update(centre=7.0), keep_digest=True)
    with pytest.raises(
        DataError, match=r"prepared\.json cannot be understood \(it was changed after it was written\); prepare"
    ):
        read_info(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(n_users=5), "n_users is not what the shards hold"),
        (lambda content: content.update(n_items="many"), "n_items is 'many'"),
        (lambda content: content.update(users=[], n_users=0), "there are no users"),
        (lambda content: content["users"][0].update(name="../../x"), "the users' shard names"),
        (lambda content: content["users"][0].update(name=content["users"][1]["name"]), "two shards of users have one name"),
        (lambda content: content["items"][0].update(rows=-1), "the items' shard sizes"),
        (lambda content: content["items"][0].update(rows=True), "items[0].rows is True"),
        (lambda content: content["fields"][1].update(offset=3), "the rows of"),
        (lambda content: content["fields"][0].update(n_values=10**12), "the rows of"),
        (lambda content: content["fields"][-1].update(n_values=10**12), "more rows than int32 can number"),
        (lambda content: content["fields"][0].update(kind="ids"), "fields[0].kind is 'ids'; expected one of"),
        (lambda content: content["fields"][0].update(kind="category"), "the fields of ids"),
        (lambda content: content["fields"][0].update(scale=0), "the scale of user"),
        (lambda content: content["fields"][0].update(part="nobody"), "fields[0].part is 'nobody'"),
        (lambda content: content["fields"][0].update(weighting="most"), "fields[0].weighting is 'most'"),
        (lambda content: content["widths"].update(item=10**9), "the width of item"),
        (lambda content: content["widths"].update(user=0), "the width of user"),
        (lambda content: content["widths"].pop("user"), "'user'"),
        (lambda content: content.update(columns=["user"]), "columns"),
        (lambda content: content.update(min_count=3), "cannot be understood"),
        (lambda content: content.update(min_count={"item": -1}), "min_count"),
        (lambda content: content.update(user_id_type="float"), "user_id_type is 'float'"),
        (lambda content: content.update(sells_once="yes"), "sells_once is 'yes'; expected true or false"),
        (lambda content: content.update(name=None), "name is None; expected a text"),
        (lambda content: content.update(checksums={"values.parquet": 3}), "checksums"),
        (lambda content: content.update(surprise=1), "has 'surprise', which means nothing"),
        (lambda content: content.pop("fields"), "'fields'"),
        (lambda content: content.update(format=9), "was prepared in format 9, this version reads 4"),
        (lambda content: content.update(format=3), "was prepared in format 3, this version reads 4; prepare it again"),
        (lambda content: content.update(history=[{"name": "x", "rows": 1}]), "the history's shard names"),
        (lambda content: content.update(history=2 * [{"name": "00000", "rows": 1}]), "two shards of history have one name"),
        (lambda content: content.update(history=[{"name": "00000", "rows": -1}]), "the history's shard sizes"),
        (lambda content: content.update(targets="buy"), "targets is 'buy'"),
    ],
)
def test_what_contradicts_itself_is_refused(folder: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    rewrite(folder, change)
    with pytest.raises(DataError) as caught:
        read_info(folder)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[3]", b'"x"', b"[" * 50_000, b"\xff", b'{"format": ' + b"3" * 5_000 + b"}"])
def test_what_is_no_description_is_refused(folder: Path, content: bytes) -> None:
    (folder / "prepared.json").write_bytes(content)
    with pytest.raises(DataError, match=r"prepared\.json cannot be understood \(.*\); prepare the data again"):
        read_info(folder)


def test_a_folder_without_one_is_no_prepared_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no prepared folder: prepared\.json is missing"):
        read_info(tmp_path)
