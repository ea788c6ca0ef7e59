"""Tables of every format, damaged, hostile or no files at all: read in memory, in pieces, and inspected."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Dataset, Schema, load_dataset
from gmlfm.data.sources.inspection import inspect_files
from gmlfm.data.sources.preparing import prepare
from tests.fuzz.cases import DAMAGES, Case, check, damaged, generator, n_cases, named

ROWS = [(f"u{n % 13}", f"i{n * 7 % 31}", n, 1 + n % 5, ["web", "app", ""][n % 3], "a|b" if n % 2 else "c") for n in range(120)]
NAMES = ("user", "item", "time", "stars", "device", "mood")
TOML = """name = "fuzz"
[interactions]
path = {path}
user = "user"
item = "item"
time = "time"
label = "stars"
positive = "stars >= 2"
context = {{ device = "category", mood = {{ kind = "set", separator = "|" }} }}
"""
QUOTED = [tuple(f'"{cell}, ""so"""' if place == 4 else str(cell) for place, cell in enumerate(row)) for row in ROWS]
WAYS = ("memory", "pieces", "init")


def ways(number: int) -> tuple[str, ...]:
    """All three on request; otherwise memory and, by turns, one of the others."""
    return WAYS if n_cases(1) > 1 else ("memory", WAYS[1 + number % 2])


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


def read(folder: Path, path: str, way: str, read_options: str = "") -> None:
    """A table in one of three ways; `path` as a dataset.toml has it."""
    if way == "init":
        inspect_files([folder / path], folder)
        return
    (folder / "dataset.toml").write_text(TOML.format(path=json.dumps(path)) + read_options)
    if way == "memory":
        load_dataset(folder)
    else:
        prepare(Schema.from_toml(folder / "dataset.toml"), folder, folder / "out", rows_per_bucket=30)


def written(folder: Path, path: str, content: bytes, way: str, read_options: str = "") -> None:
    (folder / path.split("!")[0]).write_bytes(content)
    read(folder, path, way, read_options)


def damages() -> Iterator[tuple[str, Case]]:
    for path, content in CONTENTS.items():
        for number in range(n_cases(12)):
            kind, way = DAMAGES[number % len(DAMAGES)], WAYS[number % len(WAYS)]
            rng = generator(path, number)
            yield f"{path} {kind} {way} {number}", partial(written, path=path, content=damaged(content, kind, rng), way=way)


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


def hostile() -> Iterator[tuple[str, Case]]:
    for number, (name, (path, content)) in enumerate(HOSTILE.items()):
        for way in ways(number):
            if "bomb" not in name or way != "init":
                yield f"{name} {way}", partial(written, path=path, content=content, way=way)


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


def options() -> Iterator[tuple[str, Case]]:
    for name, text in OPTIONS.items():
        for path in ("t.csv", "t.jsonl") if "encoding" in name or "columns" in name else ("t.csv",):
            for way in ways(0):
                read_options = f"[encoding]\nread = {text}\n"
                yield (
                    f"{name} {path} {way}",
                    partial(written, path=path, content=CONTENTS[path], way=way, read_options=read_options),
                )


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


def paths() -> Iterator[tuple[str, Case]]:
    for number, (name, path) in enumerate(PATHS.items()):
        for way in ways(number):
            yield f"path {name} {way}", partial(read, path=path, way=way)


def special(folder: Path, kind: str, way: str) -> None:
    path = "t.parquet" if kind.endswith("parquet") else "t.zip!t.csv" if kind.endswith("zip") else "t.csv"
    target = folder / path.split("!")[0]
    if kind.startswith("folder"):
        target.mkdir()
    elif kind.startswith("silent pipe"):
        os.mkfifo(target)
    elif kind.startswith("endless pipe"):
        os.mkfifo(target)
        threading.Thread(target=_pour, args=(target,), daemon=True).start()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(target))
    elif kind == "loop of links":
        target.symlink_to(target)
    elif kind == "link to a device":
        target.symlink_to("/dev/zero")
    elif kind == "dangling link":
        target.symlink_to(folder / "gone")
    elif kind == "sparse":
        with target.open("wb") as file:
            file.truncate(1 << 41)
    read(folder, path, way)


def _pour(path: Path) -> None:
    """Lines without end, until the reader is gone."""
    try:
        with path.open("wb") as file:
            file.write(CSV)
            while True:
                file.write(b"u1,i1,1,1,web,a\n" * 4_000)
    except OSError:
        pass


SPECIAL = (
    *("folder", "folder parquet", "folder zip", "silent pipe", "silent pipe parquet", "silent pipe zip", "endless pipe"),
    *("socket", "loop of links", "link to a device", "dangling link", "sparse"),
)


def special_files() -> Iterator[tuple[str, Case]]:
    for kind in SPECIAL:
        for way in WAYS:
            yield f"{kind} {way}", partial(special, kind=kind, way=way)


ODD_NAMES = ("x[1].parquet", "x[1].csv", "*.csv", "what?.csv", "a!b.csv", "[a-z].parquet", "date=1.parquet", "x{1,2}.parquet")


def odd_name(folder: Path, path: str, way: str) -> None:
    """A file of such a name is that file, and no other."""
    home = folder / "in [1] *"
    home.mkdir()
    content = CONTENTS["t.parquet" if path.endswith("parquet") else "t.csv"]
    for decoy in ("x1", "a", "xy", "whatx", "z"):
        (home / f"{decoy}{Path(path).suffix}").write_bytes(b"decoy")
    written(home, path, content, way)
    if way == "memory":
        assert load_dataset(home).n_interactions == 120
    elif way == "pieces":
        assert (home / "out" / "prepared.json").exists()


def odd_names() -> Iterator[tuple[str, Case]]:
    for number, path in enumerate(ODD_NAMES):
        for way in ways(number):
            yield f"name {path} {way}", partial(odd_name, path=path, way=way)


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


def values(folder: Path, values: list[Any], column: str) -> None:
    table: dict[str, Any] = {name: [row[place] for row in ROWS[:3]] for place, name in enumerate(NAMES)}
    schema = {"user": "user", "item": "item", "time": "time", "label": "stars", "context": {"device": "category"}}
    Dataset.from_tables({**table, column: values}, schema={"interactions": schema})


def python_values() -> Iterator[tuple[str, Case]]:
    for name, drawn in VALUES.items():
        for column in ("user", "time", "stars", "device"):
            yield f"value {name} as {column}", partial(values, values=drawn, column=column)


CASES = named(case for cases in (damages, hostile, options, paths, special_files, odd_names, python_values) for case in cases())


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_read_or_refused_in_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMLFM_READ_SECONDS", "0.2")
    monkeypatch.setenv("GMLFM_READ_BYTES", str(1 << 28))
    monkeypatch.chdir(tmp_path)
    check(CASES[name], tmp_path)


def test_undamaged_all_of_them_are_read(tmp_path: Path) -> None:
    """The cases are faults of tables that can be read."""
    for path, content in CONTENTS.items():
        for way in WAYS:
            folder = tmp_path / f"{path.replace('!', '-')} {way}"
            folder.mkdir()
            assert check(partial(written, path=path, content=content, way=way), folder) == "", (path, way)


def test_unreadable_files_are_one_sentence(tmp_path: Path) -> None:
    """In a process without root's rights: a file and a folder of which nothing may be read."""
    code = """
import os, sys
from pathlib import Path
from tests.fuzz.test_tables import CONTENTS, WAYS, written, read
from tests.fuzz.cases import check
from functools import partial
folder = Path("home"); folder.mkdir()
for number, (path, content) in enumerate(CONTENTS.items()):  # what they import is imported with root's rights
    for way in WAYS:
        warm = Path(f"warm {number} {way}"); warm.mkdir()
        written(warm, path, content, way)
if os.getuid() == 0:
    os.chown(folder, 65534, 65534); os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path, content in CONTENTS.items():
    (folder / path.split("!")[0]).write_bytes(content)
    os.chmod(folder / path.split("!")[0], 0)
    for way in WAYS:
        assert "Permission denied" in check(partial(read, path=path, way=way), folder), (path, way)
os.chmod(folder, 0)
assert "Permission denied" in check(partial(read, path="t.csv", way="init"), folder)
print("all")
"""
    os.chmod(tmp_path, 0o755)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    os.chmod(tmp_path / "home", 0o700)
    assert done.stdout == "all\n", done.stderr
