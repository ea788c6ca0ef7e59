from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import polars as pl
import pytest

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.tables import read_table
from gmlfm.errors import DataError

ANY = ReadOptions()


def test_csv_tsv_jsonl_gz_parquet_and_zip_give_the_same_table(tmp_path: Path) -> None:
    rows = [("1", "x"), ("2", "y")]
    csv_text = "id,a\n1,x\n2,y\n"
    (tmp_path / "t.csv").write_text(csv_text)
    (tmp_path / "t.tsv").write_text(csv_text.replace(",", "\t"))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(csv_text.encode()))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"id": row_id, "a": value}) + "\n" for row_id, value in rows))
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    pl.DataFrame(rows, schema=["id", "a"], orient="row").write_parquet(tmp_path / "t.parquet")
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("inner/t.csv", csv_text)
    for name in ("t.csv", "t.tsv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.parquet", "t.zip!inner/t.csv"):
        assert read_table(name, tmp_path, ANY).frame.rows() == rows, name


def test_a_glob_is_read_in_the_order_of_names_and_places_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("id,a\n3,z\n")
    (tmp_path / "a.csv").write_text("id,a\n1,x\n2,y\n")
    table = read_table("*.csv", tmp_path, ANY)
    assert table.frame["id"].to_list() == ["1", "2", "3"]
    assert table.origin.locate(2).endswith("b.csv line 2")
    (tmp_path / "c.csv").write_text("id,other\n1,x\n")
    with pytest.raises(DataError, match=r"c\.csv has the columns"):
        read_table("*.csv", tmp_path, ANY)


def test_json_lines_with_lists_numbers_and_gaps(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": 1, "s": ["a", "b"]}\n{"id": 2, "n": 0.5, "m": {"k": 1}}\n\n{"id": "x"}\n')
    frame = read_table("t.jsonl", tmp_path, ANY).frame
    assert frame["id"].to_list() == ["1", "2", "x"]
    assert frame["s"].to_list() == [["a", "b"], None, None]
    assert frame["n"].to_list() == [None, 0.5, None]
    assert frame["m"].to_list() == [None, '{"k": 1}', None]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_broken_lines_are_refused_unless_tolerated_and_then_counted(tmp_path: Path, name: str) -> None:
    lines = ["id,a", "1,x", "2", "3,y"] if name == "t.csv" else ['{"id": 1}', "{broken", '{"id": 3}']
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"line [23] is broken .*1 such line\(s\) in all.*tolerate = 1"):
        read_table(name, tmp_path, ANY)
    table = read_table(name, tmp_path, ReadOptions(tolerate=1))
    assert table.frame.height == 2
    assert "1 broken line(s) left out" in table.warnings()[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.csv", None, "gone.csv does not exist"),
        ("gone.parquet", None, "gone.parquet does not exist"),
        ("*.csv", None, "no file matches"),
        ("cut.csv.gz", gzip.compress(b"id,a\n1,2\n" * 1000, mtime=0)[:-20], "truncated"),
        ("no.csv.gz", b"id,a\n1,2\n", "damaged or not what its name says"),
        ("cut.parquet", b"PAR1abcdefgh", "not a readable Parquet file"),
        ("no.zip!t.csv", None, "does not exist"),
        ("one.csv", b"word\nword\n", "no separator was found"),
        ("empty.csv", b"", "is empty"),
        ("head.csv", b"id,a\n1,\xff\xfe\n", None),
    ],
)
def test_unreadable_files_are_refused_by_name(tmp_path: Path, name: str, content: bytes | None, message: str | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    if message is None:
        assert read_table(name, tmp_path, ANY).frame.height == 1
        return
    with pytest.raises(DataError) as caught:
        read_table(name, tmp_path, ANY)
    assert message in str(caught.value)


def test_a_zip_without_the_member_and_a_damaged_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("a.csv", "id,a\n1,2\n")
    with pytest.raises(DataError, match=r"has no member 'b\.csv'; it holds a\.csv"):
        read_table("t.zip!b.csv", tmp_path, ANY)
    (tmp_path / "bad.zip").write_bytes((tmp_path / "t.zip").read_bytes()[:40])
    with pytest.raises(DataError, match="damaged"):
        read_table("bad.zip!a.csv", tmp_path, ANY)


def test_a_mark_before_json_lines_costs_no_line(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('\ufeff{"id": 1}\n{"id": 2}\n', encoding="utf-8")
    assert read_table("t.jsonl", tmp_path, ANY).frame["id"].to_list() == [1, 2]
