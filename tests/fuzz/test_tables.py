"""Tables of every format, damaged, hostile or no files at all: read in memory, in pieces, and inspected."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gmlfm import Dataset, Schema, load_dataset
from gmlfm.data.sources.inspection import inspect_files
from gmlfm.data.sources.preparing import prepare
from tests.fuzz.cases import DAMAGES, Case, check, damaged, generator, n_cases, named
from tests.fuzz.hostile_tables import CONTENTS, CSV, HOSTILE, NAMES, OPTIONS, PATHS, ROWS, VALUES

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
WAYS = ("memory", "pieces", "init")


def ways(number: int) -> tuple[str, ...]:
    """All three on request; otherwise memory and, by turns, one of the others."""
    return WAYS if n_cases(1) > 1 else ("memory", WAYS[1 + number % 2])


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


def hostile() -> Iterator[tuple[str, Case]]:
    for number, (name, (path, content)) in enumerate(HOSTILE.items()):
        for way in ways(number):
            if "bomb" not in name or way != "init":
                yield f"{name} {way}", partial(written, path=path, content=content, way=way)


def options() -> Iterator[tuple[str, Case]]:
    for name, text in OPTIONS.items():
        for path in ("t.csv", "t.jsonl") if "encoding" in name or "columns" in name else ("t.csv",):
            for way in ways(0):
                read_options = f"[encoding]\nread = {text}\n"
                yield (
                    f"{name} {path} {way}",
                    partial(written, path=path, content=CONTENTS[path], way=way, read_options=read_options),
                )


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
