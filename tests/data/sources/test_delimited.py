from __future__ import annotations

import csv
import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources import delimited
from gmlfm.data.sources.delimited import read_delimited
from gmlfm.errors import DataError

COMMA = ReadOptions(separator=",")


def test_null_words_become_missing_and_leading_zeros_stay() -> None:
    table = read_delimited("id,a\n007,NULL\n08,\n9,x\n", COMMA, "f")
    assert table.frame.rows() == [("007", None), ("08", None), ("9", "x")]
    assert table.lines.tolist() == [2, 3, 4]


def test_quotes_hide_separators_line_ends_and_quotes() -> None:
    table = read_delimited('id,a\n1,"x, ""y""\nz"\n2,5" disk\n', COMMA, "f")
    assert table.frame.rows() == [("1", 'x, "y"\nz'), ("2", '5" disk')]
    assert table.lines.tolist() == [2, 4]
    assert table.broken.count == 0


def test_backslash_quotes_are_understood_where_a_file_uses_them() -> None:
    table = read_delimited('id,a\n1,"say \\"hi\\", ok"\n', COMMA, "f")
    assert table.frame.rows() == [("1", 'say "hi", ok')]


@pytest.mark.parametrize("quoted", [False, True])
def test_broken_lines_are_counted_and_the_first_is_shown(quoted: bool) -> None:
    mark = '"' if quoted else ""
    text = f"id,a\n1,{mark}x{mark}\n2\n\n3,y,z\n4,w\n"
    table = read_delimited(text, COMMA, "f")
    assert table.frame["id"].to_list() == ["1", "4"]
    assert (table.broken.count, table.broken.first_line, table.broken.first_text) == (2, 3, "2")
    assert table.broken.first_reason == "1 fields instead of 2"
    assert table.lines.tolist() == [2, 6]


def test_a_stray_quote_costs_its_own_line_only() -> None:
    rows = "".join(f"{number},x\n" for number in range(1000))
    table = read_delimited(f'id,a\n"0,stray\n{rows}1000,"fine"\n', COMMA, "f")
    assert table.frame.height == 1001
    assert (table.broken.count, table.broken.first_line) == (1, 2)
    assert table.broken.first_reason == "a quote that the next 200 lines do not close"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "::", "\x1f"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_any_separator_line_end_and_mark(separator: str, line_end: str, mark: str) -> None:
    text = mark + line_end.join(separator.join(row) for row in (["id", "a"], ["1", "x"], ["2", "y"]))
    table = read_delimited(text, ReadOptions(separator=separator), "f")
    assert table.frame.columns == ["id", "a"]
    assert table.frame.rows() == [("1", "x"), ("2", "y")]


def test_a_file_without_header_takes_the_names_it_is_given() -> None:
    for text in ("1,x\n2,y\n", '1,"x"\n2,y\n'):
        table = read_delimited(text, ReadOptions(separator=",", columns=("id", "a")), "f")
        assert table.frame.rows() == [("1", "x"), ("2", "y")]
        assert table.lines.tolist() == [1, 2]


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(
    ("header", "columns", "names", "n_rows"),
    [
        (None, None, ["a", "b"], 2),
        (True, None, ["a", "b"], 2),
        (False, None, ["column_1", "column_2"], 3),
        (None, ("u", "i"), ["u", "i"], 3),
        (False, ("u", "i"), ["u", "i"], 3),
        (True, ("u", "i"), ["u", "i"], 2),
    ],
)
def test_the_first_line_is_a_header_or_a_row_as_the_options_say(
    quote: str, header: bool | None, columns: tuple[str, ...] | None, names: list[str], n_rows: int
) -> None:
    options = ReadOptions(separator=",", header=header, columns=columns)
    table = read_delimited(f"\na,{quote}b{quote}\n1,x\n2,y\n", options, "f")
    assert table.frame.columns == names
    assert table.frame.rows() == [("a", "b"), ("1", "x"), ("2", "y")][3 - n_rows :]
    assert table.lines.tolist() == [2, 3, 4][3 - n_rows :]
    assert table.broken.count == 0


def test_names_given_for_a_header_are_as_many_as_its_own() -> None:
    with pytest.raises(DataError, match="f line 1: the header has 2 names where read gives 3 columns; name as many"):
        read_delimited("a,b\n1,2\n", ReadOptions(separator=",", header=True, columns=("a", "b", "c")), "f")


def test_a_repeated_or_empty_file_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"the column 'a' occurs twice .* or give all names with read = \{ header = true, columns"
    ):
        read_delimited("a,a\n1,2\n", COMMA, "f")
    with pytest.raises(DataError, match="f is empty"):
        read_delimited(" \n", COMMA, "f")


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ('"1","C:\\"', ("1", "C:\\")),
        ('"1","say \\"hi\\", then go"', ("1", 'say "hi", then go')),
        ('"1","5\\", wide"', ("1", '5", wide')),
    ],
)
def test_a_backslash_before_a_quote_escapes_it_or_ends_the_cell(line: str, cells: tuple[str, str]) -> None:
    table = read_delimited(f'"a","b"\n{line}\n', ReadOptions(separator=",", null=()), "f")
    assert table.frame.rows() == [cells]
    assert table.broken.count == 0


cells = st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\x00"), max_size=5)


@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=12))
def test_whatever_a_csv_writer_wrote_is_read_back(rows: list[tuple[str, str, str]]) -> None:
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["a", "b", "c"])
    writer.writerows(rows)
    table = read_delimited(file.getvalue(), ReadOptions(separator=",", null=()), "f")
    assert table.frame.rows() == rows
    assert table.broken.count == 0


simple = st.text(alphabet="ab1 .é", min_size=0, max_size=4)


@given(st.lists(st.lists(simple, min_size=1, max_size=4), min_size=1, max_size=15))
def test_the_fast_reader_and_the_careful_one_agree(rows: list[list[str]]) -> None:
    text = "x,y,z\n" + "".join(",".join(row) + "\n" for row in rows)
    fast = read_delimited(text, COMMA, "f")
    slow = delimited._read_carefully(text, ",", '"', COMMA, list(delimited.NULL_WORDS), "f")
    assert fast.frame.equals(slow.frame.cast(pl.String))
    assert fast.lines.tolist() == slow.lines.tolist()
    assert (fast.broken.count, fast.broken.first_line) == (slow.broken.count, slow.broken.first_line)


def test_a_long_separator_inside_quotes_is_text() -> None:
    table = read_delimited('u::t\na::"x::y"\n', ReadOptions(separator="::"), "f")
    assert table.frame.rows() == [("a", "x::y")]


@pytest.mark.parametrize("quoted", [False, True])
def test_an_empty_cell_is_missing_only_if_it_is_called_so(quoted: bool) -> None:
    last = '"z"' if quoted else "z"
    table = read_delimited(f"u,i\n,a\nNULL,{last}\n", ReadOptions(separator=",", null=("NULL",)), "f")
    assert table.frame["u"].to_list() == ["", None]


def test_names_are_unique_even_where_they_are_made_up() -> None:
    with pytest.raises(DataError, match="'column_2' occurs twice"):
        read_delimited("column_2,,item\n1,2,3\n", COMMA, "f")


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("separator", [",", "::"])
def test_fields_of_200_kilobytes_are_read(quote: str, separator: str) -> None:
    csv.field_size_limit(131_072)  # Python's own limit, as a fresh process has it
    long = "word; and " * 20_000
    text = f"id{separator}text\n" + "".join(f"{n}{separator}{quote}{long}{quote}\n" for n in range(3))
    table = read_delimited(text, ReadOptions(separator=separator), "f")
    assert table.frame.rows() == [(str(n), long) for n in range(3)]
    assert table.broken.count == 0
