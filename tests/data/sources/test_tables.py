from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import polars as pl
import pytest

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources import tables
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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": ' + "[" * 100_000, "not a JSON object: it is nested too deeply"),
        ('{"id": "\\ud83d"}', "half of a surrogate pair"),
        ('{"\\uDC00": 1}', "half of a surrogate pair"),
        ('{"id": ["\\udbff"]}', "half of a surrogate pair"),
        ('{"id": ' + "9" * 5_000 + "}", "not a JSON object: Exceeds the limit"),
        ("[1]", "not a JSON object: it is no object"),
    ],
)
def test_json_that_no_table_can_hold_is_a_broken_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"id": "a"}}\n{line}\n')
    with pytest.raises(DataError, match=r"t\.jsonl line 2 is broken") as caught:
        read_table("t.jsonl", tmp_path, ANY)
    assert message in str(caught.value)
    assert read_table("t.jsonl", tmp_path, ReadOptions(tolerate=1)).frame["id"].to_list() == ["a"]


def test_json_with_whole_pairs_long_numbers_and_any_line_ends(tmp_path: Path) -> None:
    lines = ['{"id": "\\ud83e\\udd86", "n": 1}', '{"id": "b", "n": 1' + "0" * 50 + "}", '{"id": "c", "n": 2}']
    for end in ("\n", "\r\n", "\r"):
        (tmp_path / "t.jsonl").write_bytes(end.join(lines).encode())
        frame = read_table("t.jsonl", tmp_path, ANY).frame
        assert frame["id"].to_list() == ["🦆", "b", "c"]
        assert frame["n"].to_list() == ["1", "1" + "0" * 50, "2"]


def test_json_lines_without_common_keys_are_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_EMPTY_CELLS", 10_000)
    (tmp_path / "t.jsonl").write_text("\n".join(f'{{"key{n}": 1}}' for n in range(500)))
    with pytest.raises(DataError, match=r"has 500 different keys over 500 lines, few of them in each"):
        read_table("t.jsonl", tmp_path, ANY)


@pytest.mark.parametrize("name", ["x[1].parquet", "x[1].csv", "a*.csv", "a!b.csv", "what?.jsonl", "x[1].zip!t.csv"])
@pytest.mark.parametrize("folder", ["plain", "odd [1] folder"])
def test_a_name_with_marks_of_a_glob_is_that_file(tmp_path: Path, folder: str, name: str) -> None:
    home = tmp_path / folder
    home.mkdir()
    pl.DataFrame({"id": ["other"], "a": ["x"]}).write_parquet(home / "x1.parquet")
    (home / "ab.csv").write_text("id,a\nother,x\n")
    text = "id,a\n1,2\n"
    if ".zip" in name:
        with zipfile.ZipFile(home / "x[1].zip", "w") as archive:
            archive.writestr("t.csv", text)
    elif name.endswith(".parquet"):
        pl.DataFrame({"id": ["1"], "a": ["2"]}).write_parquet(home / name)
    else:
        (home / name).write_text('{"id": "1", "a": "2"}' if name.endswith(".jsonl") else text)
    assert read_table(name, home, ANY).frame.rows() == [("1", "2")]
    assert read_table("ab.*", home, ANY).frame.rows() == [("other", "x")]


@pytest.mark.parametrize("kind", ["pipe.parquet", "folder.csv", "folder.parquet", "/dev/zero", "zip"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    name = "t.zip!a.csv" if kind == "zip" else kind
    if kind.startswith("folder"):
        (tmp_path / kind).mkdir()
    elif kind != "/dev/zero":
        os.mkfifo(tmp_path / ("t.zip" if kind == "zip" else kind))
    with pytest.raises(DataError, match=r"is a (pipe|folder|device); expected a file"):
        read_table(name, tmp_path, ANY)


def test_the_panic_of_polars_is_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(_: object) -> None:
        raise pl.exceptions.PanicException("index out of bounds")

    pl.DataFrame({"id": ["1"]}).write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(tables, "read_parquet", panic)
    with pytest.raises(DataError, match=r"t\.parquet is not a readable Parquet file \(index out of bounds\)"):
        read_table("t.parquet", tmp_path, ANY)


def test_an_encoding_that_gives_halves_of_characters_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"id,a\n1,+2AA-\n")
    with pytest.raises(DataError, match="cannot be read as utf-7; set another encoding"):
        read_table("t.csv", tmp_path, ReadOptions(encoding="utf-7"))
