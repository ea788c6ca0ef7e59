from __future__ import annotations

import csv

import pytest

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.dialect import decode, sniff
from gmlfm.errors import DataError

ANY = ReadOptions()


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
def test_encodings_are_guessed(data: bytes, text: str, encoding: str) -> None:
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
def test_separators_and_quotes_are_guessed(text: str, separator: str, quote: str) -> None:
    dialect = sniff(text, ANY, "f")
    assert (dialect.separator, dialect.quote) == (separator, quote)


def test_marks_inside_cells_do_not_make_the_separator() -> None:
    text = "user,item,tags\n" + "".join(f"u{n},p{n},a{n}|b{n}|c|d{n}\n" for n in range(300))
    assert sniff(text, ANY, "f").separator == ","


def test_an_encoding_that_decodes_nothing() -> None:
    with pytest.raises(DataError, match="cannot be read as undefined"):
        decode(b"abc", "undefined", "f")


@pytest.mark.parametrize("header", ["", "id;text;last\n"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_separator_is_found_beside_fields_of_200_kilobytes(header: str, quote: str) -> None:
    csv.field_size_limit(131_072)  # Python's own limit, as a fresh process has it
    rows = "".join(f"{n};{quote}{'word, and ' * (20_000 + n)}{quote};z\n" for n in range(3))
    assert sniff(header + rows, ANY, "f").separator == ";"


def test_a_file_without_quotes_may_say_so() -> None:
    assert sniff('a;5" disk\nb;7" disk\n', ReadOptions(quote=""), "f").separator == ";"
