from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import polars as pl
import pytest

from gmlfm import Dataset, make_split
from gmlfm.data.split_reading import id_numbers, read_candidates, read_rows
from gmlfm.errors import DataError
from tests.data.arbitrary import plain

DATA = plain([1, 1, 2, 3], [1, 2, 2, 3])
ROWS = pl.DataFrame({"user": ["u1", "u2"], "item": ["i2", "i2"]})


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl", "rows.parquet", "rows.csv.gz"])
def test_any_table_is_read_and_named_by_its_content(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        ROWS.write_parquet(path)
    elif name.endswith("jsonl"):
        ROWS.write_ndjson(path)
    else:
        text = ROWS.write_csv(separator="\t" if name.endswith("tsv") else ",").encode()
        path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    table = read_rows(path, "test", DATA)
    assert table.frame.equals(ROWS)
    raw = path.read_bytes()
    assert table.sha256 == hashlib.sha256(gzip.decompress(raw) if name.endswith("gz") else raw).hexdigest()


def test_a_table_of_the_caller_has_a_hash_of_its_content() -> None:
    assert read_rows(ROWS, "test", DATA).sha256 == read_rows(ROWS.to_pandas(), "test", DATA).sha256
    assert read_rows(ROWS, "test", DATA).sha256 != read_rows(ROWS.reverse(), "test", DATA).sha256
    with pytest.raises(DataError, match="the test rows table is a int; expected"):
        read_rows(3, "test", DATA)


def test_a_file_without_a_header_is_read_by_position_where_it_begins_with_ids_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "test.rating"
    path.write_text("u1\ti2\t5\t978\nu2\ti2\t4\t978\n")
    table = read_rows(str(path), "test", DATA)
    assert table.frame.select("user", "item").equals(ROWS)
    assert table.origin.locate(0).endswith("test.rating line 1")
    same_id = plain([1], [1])
    path.write_text("u1\tu1\n")
    with pytest.raises(DataError, match="occurs twice in the header"):
        read_rows(path, "test", same_id)  # no item is called u1: the line cannot be a row
    path.write_text("i2,u1\n")
    with pytest.raises(
        DataError, match=r"test.rating has no column 'user', only i2, u1; expected 'user', 'item' in its header"
    ):
        read_rows(path, "test", DATA)


def test_a_header_is_replaced_as_it_is_for_the_data(tmp_path: Path) -> None:
    schema = {"interactions": {"user": "user", "item": "item", "read": {"header": True, "columns": ["user", "item", "stars"]}}}
    data = Dataset.from_tables(ROWS, schema=schema)
    (tmp_path / "part.inter").write_text("user_id:token\titem_id:token\trating:float\nu1\ti2\t5\nu2\ti2\t4\n")
    assert read_rows(tmp_path / "part.inter", "test", data).frame.select("user", "item").equals(ROWS)
    (tmp_path / "part.inter").write_text("u1\ti2\t5\nu2\ti2\t4\n")
    assert read_rows(tmp_path / "part.inter", "test", data).frame.select("user", "item").equals(ROWS)


def test_equal_ids_of_user_and_item_in_the_first_line_are_a_row(tmp_path: Path) -> None:
    data = Dataset.from_tables(
        pl.DataFrame({"user": ["5", "6"], "item": ["5", "7"]}), schema={"interactions": {"user": "user", "item": "item"}}
    )
    (tmp_path / "t.tsv").write_text("5\t5\t3\n6\t7\t3\n")
    assert read_rows(tmp_path / "t.tsv", "test", data).frame["item"].to_list() == ["5", "7"]


def test_the_columns_that_the_data_declare_for_their_own_file_are_known(tmp_path: Path) -> None:
    read = {"columns": ["when", "item", "user"]}
    schema = {"interactions": {"user": "user", "item": "item", "time": "when", "read": read}}
    data = Dataset.from_tables(pl.DataFrame({"when": [1, 2], "item": ["a", "b"], "user": ["x", "y"]}), schema=schema)
    (tmp_path / "t.dat").write_text("1::a::x\n2::b::y\n")
    table = read_rows(tmp_path / "t.dat", "test", data)
    assert table.frame.rows() == [("1", "a", "x"), ("2", "b", "y")]
    assert table.frame.columns == ["when", "item", "user"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item\nu1,i2\nu9,i2\nu8,i2\n", r"t.csv line 3: the user 'u9' is not in the data \(2 such rows\); ids must be"),
        ("user,item\nu1,i9\n", r"t.csv line 2: the item 'i9' is not in the data"),
        ("user,item\nu1,\n", r"t.csv line 2: the item is missing; every row needs it"),
        ("user,item\n", r"t.csv has no rows; leave it out where a part is empty"),
        ("buyer,item\nu1,i2\n", r"t.csv has no column 'user', only buyer, item; expected 'user', 'item' in its header, or no"),
    ],
)
def test_what_the_data_do_not_know_is_one_sentence_with_the_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        make_split(DATA, "files", test=path)


def test_ids_become_numbers_of_the_data_whatever_their_type() -> None:
    data = Dataset.from_tables({"u": [7, 9], "i": ["a", "b"]}, schema={"interactions": {"user": "u", "item": "i"}})
    table = read_rows({"u": ["9", "7", "9"], "i": ["a", "a", "b"]}, "test", data)
    assert id_numbers(table, "u", data.users, "user").tolist() == [1, 0, 1]


def test_both_forms_of_candidate_lists_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "test.negative").write_text("(u1,i2)\ti1\ti3\n\n('u2', 'i2')\ti3\n")
    (tmp_path / "long.csv").write_text("user,item,candidate\nu1,i2,i1\nu1,i2,i3\nu2,i2,i3\n")
    (tmp_path / "bare.tsv").write_text("u1\ti2\ti1\nu1\ti2\ti3\nu2\ti2\ti3\n")
    folded, long, bare = (read_candidates(tmp_path / name, "test", DATA) for name in ("test.negative", "long.csv", "bare.tsv"))
    assert folded.frame.equals(long.frame)
    assert folded.frame.equals(bare.frame)
    assert [folded.origin.locate(row)[-6:] for row in range(3)] == ["line 1", "line 1", "line 3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(u1,i2)\ti1\nu2\ti3\n", r"line 2 begins with 'u2'; expected \(user,item\), a tab and the candidates"),
        ("(u1,i2,i3)\ti1\n", r"line 1 begins with '\(u1,i2,i3\)'; expected"),
        ("(u1,i2)\ti1\n(u1,i2)\ti3\n", "line 2: user 'u1' and item 'i2' have a list at line 1 already; give one list a pair"),
        ("(u1,i2)\n", "line 1: user 'u1' and item 'i2' have an empty list"),
    ],
)
def test_a_folded_line_that_is_none_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.negative").write_text(text)
    with pytest.raises(DataError, match=message):
        read_candidates(tmp_path / "t.negative", "test", DATA)
