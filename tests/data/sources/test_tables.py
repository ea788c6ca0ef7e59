from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import polars as pl
import pytest

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.dialect import decode, sniff
from gmlfm.data.sources.tables import read_table
from gmlfm.errors import DataError

ANY = ReadOptions()


def test_csv_tsv_jsonl_gz_parquet_and_zip_give_the_same_table(tmp_path: Path) -> None:
    rows = [("1", "x"), ("2", "y")]
    csv_text = "id,a\n1,x\n2,y\n"
    (tmp_path / "t.csv").write_text(csv_text)
    (tmp_path / "t.tsv").write_text(csv_text.replace(",", "\t"))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(csv_text.encode()))
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"id": one, "a": two}) + "\n" for one, two in rows))
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
    assert table.origin.at(2).endswith("b.csv line 2")
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
        ("cut.csv.gz", gzip.compress(b"id,a\n1,2\n" * 1000)[:-20], "truncated"),
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


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        ("é,日".encode(), "é,日", "utf-8"),
        ("\ufeffé".encode(), "é", "utf-8"),
        ("é,€".encode("cp1252"), "é,€", "cp1252"),
        (b"\x81", "\x81", "latin-1"),
        ("é".encode("utf-16"), "é", "utf-16"),
    ],
)
def test_encodings_are_found(data: bytes, text: str, encoding: str) -> None:
    assert decode(data, None, "f") == (text, encoding)


def test_a_wrong_encoding_names_the_line() -> None:
    with pytest.raises(DataError, match=r"f line 2: byte 0xe9 is not valid utf-8"):
        decode(b"abc\n\xe9", "utf-8", "f")
    with pytest.raises(DataError, match="the encoding 'utf-9' is not known"):
        decode(b"abc", "utf-9", "f")


@pytest.mark.parametrize(
    ("text", "separator", "quote"),
    [
        ("a;b\n1,5;2\n", ";", '"'),
        ('a,b\n"x;y;z",2\n"u;v",3\n', ",", '"'),
        ("1::2::3\n4::5::6\n", "::", '"'),
        ("a\tb\nx, y\tz\n", "\t", '"'),
        ("a|b|c\n1,2|3|4\n", "|", '"'),
        ("a,b\n'x,y',1\n'z,w',2\n'q',3\n'r',4\n", ",", "'"),
    ],
)
def test_separators_and_quotes_are_found(text: str, separator: str, quote: str) -> None:
    found = sniff(text, ANY, "f")
    assert (found.separator, found.quote) == (separator, quote)


def test_marks_inside_cells_do_not_make_the_separator() -> None:
    text = "user,item,tags\n" + "".join(f"u{n},p{n},a{n}|b{n}|c|d{n}\n" for n in range(300))
    assert sniff(text, ANY, "f").separator == ","


def test_a_mark_before_json_lines_costs_no_line(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('\ufeff{"id": 1}\n{"id": 2}\n', encoding="utf-8")
    assert read_table("t.jsonl", tmp_path, ANY).frame["id"].to_list() == [1, 2]


def test_an_encoding_that_decodes_nothing() -> None:
    with pytest.raises(DataError, match="cannot be read as undefined"):
        decode(b"abc", "undefined", "f")
