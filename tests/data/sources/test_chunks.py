from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import polars as pl
import pytest

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources import chunks
from gmlfm.data.sources.chunks import count_rows, read_chunks
from gmlfm.data.sources.tables import read_table
from gmlfm.errors import DataError

ROWS = [f'{n},"name {n}, with ""quotes""\nand lines",{n / 2}' if n % 7 == 0 else f"{n},plain {n},{n / 2}" for n in range(500)]
CSV = "id,name,price\n" + "\n".join(ROWS) + "\n"


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_BLOCK", 700)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.zip!in/t.csv", "t.parquet", "t.jsonl"])
def test_in_chunks_it_is_the_same_table(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("in/t.csv", CSV)
    table = read_table("t.csv", tmp_path, ReadOptions()).frame
    table.write_parquet(tmp_path / "t.parquet")
    table.write_ndjson(tmp_path / "t.jsonl")
    chunks_read = list(read_chunks(name, tmp_path, ReadOptions(), rows=64))
    assert len(chunks_read) > 3
    assert pl.concat([chunk.frame for chunk in chunks_read]).equals(table)
    expected = read_table(name, tmp_path, ReadOptions())
    if name != "t.parquet":
        assert chunks_read[-1].origin.locate(0) == expected.origin.locate(table.height - chunks_read[-1].frame.height)


@pytest.mark.parametrize("header", [None, True, False])
@pytest.mark.parametrize("columns", [None, ("a", "b", "c")])
def test_a_header_is_in_the_first_chunk_alone(tmp_path: Path, header: bool | None, columns: tuple[str, ...] | None) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    options = ReadOptions(header=header, columns=columns)
    chunks_read = list(read_chunks("t.csv", tmp_path, options))
    assert len(chunks_read) > 3
    assert pl.concat([chunk.frame for chunk in chunks_read]).equals(read_table("t.csv", tmp_path, options).frame)


def test_broken_lines_are_counted_over_the_whole_file(tmp_path: Path) -> None:
    lines = [f"{n},x" for n in range(600)]
    lines[100], lines[500] = "broken", "broken,too,much"
    (tmp_path / "t.csv").write_text("id,a\n" + "\n".join(lines))
    assert sum(chunk.frame.height for chunk in read_chunks("t.csv", tmp_path, ReadOptions(tolerate=2))) == 598
    with pytest.raises(DataError, match=r"line 102 is broken .*2 such line"):
        list(read_chunks("t.csv", tmp_path, ReadOptions(tolerate=1)))


def test_rows_are_counted_or_guessed(tmp_path: Path) -> None:
    pl.DataFrame({"a": range(10)}).write_parquet(tmp_path / "t.parquet")
    assert count_rows("t.parquet", tmp_path) == 10
    (tmp_path / "t.csv").write_text(CSV)
    assert 100 < count_rows("t.csv", tmp_path) < 2000
    with pytest.raises(DataError, match="does not exist"):
        count_rows("gone.csv", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.csv", None, "does not exist"),
        ("cut.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-30], "truncated"),
        ("no.csv.gz", b"plain", "damaged or not what its name says"),
        ("cut.parquet", b"PAR1xxxx", "not a readable Parquet file"),
    ],
)
def test_unreadable_files_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_chunks(name, tmp_path, ReadOptions()))


def test_a_stray_quote_does_not_hold_the_file_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{n},plain text" for n in range(3000)]
    lines[40] = '40,19" monitor'
    (tmp_path / "t.csv").write_text("id,a\n" + "\n".join(lines))
    monkeypatch.setattr(chunks, "_BLOCK", 5000)
    chunks_read = list(read_chunks("t.csv", tmp_path, ReadOptions()))
    assert max(chunk.frame.height for chunk in chunks_read) < 1000
    assert sum(chunk.frame.height for chunk in chunks_read) == 3000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_wide_characters_are_read_in_chunks_too(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes(("id,a\n" + "\n".join(f"{n},é{n}" for n in range(400))).encode(encoding))
    options = ReadOptions(encoding=encoding if encoding.endswith("le") else None)
    chunks_read = list(read_chunks("t.csv", tmp_path, options))
    assert len(chunks_read) > 2
    assert pl.concat([chunk.frame for chunk in chunks_read])["a"].to_list() == [f"é{n}" for n in range(400)]


def test_a_missing_member_of_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("a.csv", CSV)
    with pytest.raises(DataError, match=r"has no member 'b\.csv'; it holds a\.csv"):
        list(read_chunks("t.zip!b.csv", tmp_path, ReadOptions()))


def test_a_parquet_file_that_has_fewer_rows_than_it_says_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl.DataFrame({"a": range(10)}).write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(chunks, "parquet_rows", lambda _: 10**15)
    with pytest.raises(DataError, match=r"says that it has 1,000,000,000,000,000 rows, but ends after 10; it is damaged"):
        list(read_chunks("t.parquet", tmp_path, ReadOptions(), rows=64))


def test_blank_blocks_and_quotes_beyond_ascii(tmp_path: Path) -> None:
    rows = [f"{n},»text\nwith {n}»" for n in range(100)]
    (tmp_path / "t.csv").write_text("id,a\n" + "\n" * 3000 + "\n".join(rows) + "\n" * 3000)
    options = ReadOptions(quote="»", separator=",")
    chunks_read = list(read_chunks("t.csv", tmp_path, options))
    assert len(chunks_read) > 2
    assert pl.concat([chunk.frame for chunk in chunks_read])["a"].to_list() == [f"text\nwith {n}" for n in range(100)]
    assert chunks_read[-1].origin.locate(0) == f"{tmp_path}/t.csv line {3002 + 2 * (100 - chunks_read[-1].frame.height)}"


def test_a_parquet_file_of_any_name_is_read_in_chunks(tmp_path: Path) -> None:
    pl.DataFrame({"a": [0]}).write_parquet(tmp_path / "x1.parquet")
    pl.DataFrame({"a": range(100)}).write_parquet(tmp_path / "x[1].parquet")
    assert sum(chunk.frame.height for chunk in read_chunks("x[1].parquet", tmp_path, ReadOptions(), rows=64)) == 100
    assert count_rows("x[1].parquet", tmp_path) == 100
