"""Tables as they should be, one of each format, and what nobody should write into one."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from typing import Any

import polars as pl

ROWS = [(f"u{n % 13}", f"i{n * 7 % 31}", n, 1 + n % 5, ["web", "app", ""][n % 3], "a|b" if n % 2 else "c") for n in range(120)]
NAMES = ("user", "item", "time", "stars", "device", "mood")

QUOTED = [tuple(f'"{cell}, ""so"""' if place == 4 else str(cell) for place, cell in enumerate(row)) for row in ROWS]


def delimited(rows: list[Any], separator: str = ",") -> bytes:
    return "".join(separator.join(map(str, row)) + "\n" for row in (NAMES, *rows)).encode()


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", content)
    return file.getvalue()


def parquet() -> bytes:
    file = io.BytesIO()
    frame = pl.DataFrame(ROWS, schema=list(NAMES), orient="row")
    frame.with_columns(pl.col("mood").str.split("|")).write_parquet(file)
    return file.getvalue()


CSV = delimited(ROWS)
JSONL = "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in ROWS).encode()
CONTENTS = {
    "t.csv": CSV,
    "quoted.csv": delimited(QUOTED),
    "t.tsv": delimited(ROWS, "\t"),
    "t.dat": delimited(ROWS, "::"),
    "utf16.csv": CSV.decode().encode("utf-16"),
    "t.csv.gz": gzip.compress(CSV, mtime=0),
    "t.jsonl": JSONL,
    "t.jsonl.gz": gzip.compress(JSONL, mtime=0),
    "t.zip!t.csv": zipped(CSV),
    "t.parquet": parquet(),
}

DEEP = b"[" * 50_000
LONG = b"9" * 400
HOSTILE: dict[str, tuple[str, bytes]] = {
    "empty": ("t.csv", b""),
    "blank": ("t.csv", b"\n\n \n"),
    "mark alone": ("t.csv", b"\xef\xbb\xbf"),
    "header alone": ("t.csv", CSV[: CSV.index(b"\n") + 1]),
    "header without end": ("t.csv", CSV[: CSV.index(b"\n")]),
    "one column": ("t.csv", b"user\na\nb\n"),
    "a column twice": ("t.csv", CSV.replace(b"stars", b"time", 1)),
    "nul": ("t.csv", CSV.replace(b"u1,", b"u\0,")),
    "only nul": ("t.csv", bytes(5_000)),
    "mark": ("t.csv", b"\xef\xbb\xbf" + CSV),
    "marks": ("t.csv", b"\xef\xbb\xbf\xef\xbb\xbf" + CSV),
    "wrong mark": ("t.csv", b"\xff\xfe" + CSV),
    "crlf": ("t.csv", CSV.replace(b"\n", b"\r\n")),
    "cr": ("t.csv", CSV.replace(b"\n", b"\r")),
    "mixed ends": ("t.csv", CSV.replace(b"\n", b"\r\n", 5).replace(b"i7", b"i7\r")),
    "latin-1": ("t.csv", CSV.replace(b"web", b"w\xe9b")),
    "quote without end": ("t.csv", CSV.replace(b"web", b'"web', 1)),
    "quotes": ("t.csv", b'"' * 20_000),
    "separators": ("t.csv", b"," * 30_000),
    "a long cell": ("t.csv", CSV.replace(b"web", b"w" * 300_000, 1)),
    "a long quoted cell": ("t.csv", CSV.replace(b"web", b'"' + b"w" * 300_000 + b'"', 1)),
    "many columns": ("t.csv", b",".join(b"c%d" % n for n in range(5_000)) + b"\n"),
    "escapes": ("t.csv", CSV.replace(b"web", b"\x1b[31m\x07")),
    "unit separator": ("t.dat", delimited(ROWS, "::").replace(b"web", b"\x1f")),
    "50 digits as ids": ("t.csv", CSV.replace(b"u1,", b"1" * 50 + b",").replace(b"i7,", b"7" * 50 + b",")),
    "400 digits as ids": ("t.csv", CSV.replace(b"u1,", LONG + b",")),
    "50 digits as times": ("t.csv", CSV.replace(b",5,", b"," + b"5" * 50 + b",")),
    "400 digits as times": ("t.csv", CSV.replace(b",5,", b"," + LONG + b",")),
    "400 digits as labels": ("t.csv", CSV.replace(b",3,web", b"," + LONG + b",web")),
    "infinite labels": ("t.csv", CSV.replace(b",3,web", b",inf,web")),
    "dates": ("t.csv", CSV.replace(b",5,", b",9999999-13-45T99:99,")),
    "deep json": ("t.jsonl", JSONL + b'{"user": ' + DEEP),
    "deep json objects": ("t.jsonl", JSONL + b'{"user":' * 50_000),
    "deep json within limits": ("t.jsonl", JSONL + b'{"user": ' + b"[" * 400 + b"]" * 400 + b"}"),
    "deep json in a set": ("t.jsonl", JSONL + b'{"mood": ' + b"[" * 900 + b"]" * 900 + b"}"),
    "half a pair": ("t.jsonl", JSONL.replace(b'"u1"', b'"\\ud800"')),
    "half a pair as key": ("t.jsonl", JSONL.replace(b'"device"', b'"\\udfff"')),
    "half a pair in a list": ("t.jsonl", JSONL.replace(b'"a|b"', b'["\\ud83d"]')),
    "half a pair in an object": ("t.jsonl", JSONL.replace(b'"a|b"', b'{"a": "\\ud83d"}')),
    "whole pair": ("t.jsonl", JSONL.replace(b'"u1"', b'"\\ud83e\\udd86"')),
    "50 digits in json": ("t.jsonl", JSONL.replace(b'"u1"', b"1" * 50)),
    "50 digits among numbers": ("t.jsonl", JSONL.replace(b'"time": 5,', b'"time": ' + b"5" * 50 + b",")),
    "400 digits in json": ("t.jsonl", JSONL.replace(b'"time": 5,', b'"time": ' + LONG + b",")),
    "5000 digits in json": ("t.jsonl", JSONL.replace(b'"time": 5,', b'"time": ' + b"5" * 5_000 + b",")),
    "1e400 in json": ("t.jsonl", JSONL.replace(b'"stars": 3', b'"stars": 1e400')),
    "nan in json": ("t.jsonl", JSONL.replace(b'"stars": 3', b'"stars": NaN')),
    "kinds in json": ("t.jsonl", JSONL.replace(b'"stars": 3', b'"stars": [3]').replace(b'"stars": 4', b'"stars": {"a": 4}')),
    "null in json": ("t.jsonl", JSONL.replace(b'"u1"', b"null")),
    "true in json": ("t.jsonl", JSONL.replace(b'"u1"', b"true")),
    "json array": ("t.jsonl", b"[1, 2]\n"),
    "json keys": ("t.jsonl", b"\n".join(b'{"k%d": 1}' % n for n in range(4_000))),
    "json crlf": ("t.jsonl", JSONL.replace(b"\n", b"\r\n")),
    "json cr": ("t.jsonl", JSONL.replace(b"\n", b"\r")),
    "json nul": ("t.jsonl", JSONL.replace(b"u1", b"u\0")),
    "no gzip": ("t.csv.gz", CSV),
    "empty gzip": ("t.csv.gz", b""),
    "gzip of nothing": ("t.csv.gz", gzip.compress(b"")),
    "gzip in gzip": ("t.csv.gz", gzip.compress(gzip.compress(CSV))),
    "gzip and more": ("t.csv.gz", gzip.compress(CSV) + b"trailing"),
    "gzip bomb": ("t.csv.gz", gzip.compress(bytes(150 << 20), 1)),
    "no zip": ("t.zip!t.csv", CSV),
    "empty zip": ("t.zip!t.csv", b""),
    "other member": ("t.zip!x.csv", zipped(CSV)),
    "zip bomb": ("t.zip!t.csv", zipped(bytes(150 << 20))),
    "empty parquet": ("t.parquet", b""),
    "parquet of marks": ("t.parquet", b"PAR1PAR1"),
    "parquet of text": ("t.parquet", CSV),
    "long parquet footer": ("t.parquet", b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1"),
}

OPTIONS = {
    "separator is the quote": "{ separator = '\"' }",
    "separator is a line end": '{ separator = "\\n" }',
    "separator is a carriage return": '{ separator = "\\r" }',
    "separator is wide": '{ separator = "→" }',
    "separator is long": f'{{ separator = "{"," * 500}" }}',
    "separator is a space": '{ separator = " " }',
    "quote is wide": '{ quote = "«" }',
    "quote is a comma": '{ quote = "," }',
    "quote is a line end": '{ quote = "\\n" }',
    "decimal is a digit": '{ decimal = "1" }',
    "decimal is a comma": '{ decimal = "," }',
    "encoding utf-7": '{ encoding = "utf-7" }',
    "encoding unicode_escape": '{ encoding = "unicode_escape" }',
    "encoding idna": '{ encoding = "idna" }',
    "encoding rot13": '{ encoding = "rot13" }',
    "encoding undefined": '{ encoding = "undefined" }',
    "encoding utf-32": '{ encoding = "utf-32" }',
    "encoding utf-16-nonsense": '{ encoding = "utf-16-nonsense" }',
    "encoding of spaces": '{ encoding = "  " }',
    "columns of nothing": "{ columns = [] }",
    "columns too few": '{ columns = ["user", "item"] }',
    "columns empty names": '{ columns = ["user", "item", "time", "stars", "", "mood"] }',
    "tolerate all": "{ tolerate = 9223372036854775807 }",
    "null of everything": '{ null = ["u1", "i7", "1", "web"] }',
}

PATHS = {
    "nul": "a\0b.csv",
    "300 characters": "a" * 300,
    "300 letters of two bytes": "é" * 200 + ".csv",
    "5000 characters": "/".join(["a" * 99] * 50),
    "escapes": "\x1b[31m.csv",
    "line end": "a\nb.csv",
    "half a pair": "\ud800.csv",
    "no such folder": "gone/t.csv",
    "device": "/dev/zero",
    "device of chance": "/dev/urandom",
    "empty device": "/dev/null",
    "full device": "/dev/full",
    "the folder": ".",
    "below a file": "dataset.toml/t.csv",
    "process": "/proc/self/mem",
    "glob of nothing": "*.none",
    "glob of brackets": "[",
    "glob of everything": "**",
    "home": "~/t.csv",
    "empty": "",
    "archive alone": "t.zip!",
    "archive mark": "!",
    "archive in archive": "t.zip!a.zip!b.csv",
    "archive outside": "t.zip!../../etc/passwd",
    "web": "http://127.0.0.1:9/t.csv",
}

VALUES: dict[str, list[Any]] = {
    "half a pair": ["\ud800", "a", "b"],
    "50 digits": [10**50, 1, 2],
    "5000 digits": [10**5_000, "a", "b"],
    "2^70": [2**70, 1, -(2**70)],
    "bytes": [b"a", b"\xff", b""],
    "kinds": [1, "a", 2.5],
    "nothing": [None, None, None],
    "nan": [float("nan"), float("inf"), -float("inf")],
    "lists": [["a"], ["b", None], []],
    "sets": [{"a"}, {1, "b"}, frozenset()],
    "objects": [object(), object(), object()],
    "dicts": [{"a": 1}, {}, {"b": [1]}],
    "nul": ["\0", "a\0", ""],
    "long": ["x" * 100_000, "y", "z"],
    "complex": [1j, 2j, 3j],
}
