"""What all steps of a preparation share: what is prepared, where, and how it is partitioned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from gmlfm.data.schema import Schema
from gmlfm.data.sources.tables import file_on_disk, matching
from gmlfm.errors import DataError
from gmlfm.reading import READ_ERRORS, parquet_rows, parse_json, read_parquet, reason
from gmlfm.streams import read_text

_MOST_BYTES = 1 << 28
Step = Callable[[str, int, int], None]


@dataclass
class Plan:
    schema: Schema
    folder: Path
    out: Path
    split: str
    n_buckets: int
    rows_per_chunk: int
    progress: Step
    notes: list[str] = field(default_factory=list)

    @property
    def work(self) -> Path:
        return self.out / ".work"

    def source_hash(self) -> str:
        """Names the schema and the files with their sizes and times; an unfinished preparation of others is not continued."""
        digest = hashlib.sha256(repr(self.schema).encode())
        for spec in (self.schema.interactions, self.schema.users, self.schema.items):
            if spec is not None and spec.path is not None:
                for file in matching(spec.path, self.folder):
                    status = file_on_disk(file).stat()
                    digest.update(f"{Path(file).name} {status.st_size} {status.st_mtime_ns}".encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Bucket:
    """A bucket of one side whose entities have the numbers start to start + n - 1."""

    start: int
    n: int


def read_all(paths: list[Path]) -> pl.DataFrame | None:
    return pl.concat([read_work(path) for path in paths], how="vertical_relaxed") if paths else None


def read_work(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """An intermediate table."""
    with _reading_work(path):
        return read_parquet(path, columns)


def count_work(path: Path) -> int:
    """How many rows an intermediate table has."""
    with _reading_work(path):
        return parquet_rows(path)


def read_done(path: Path) -> dict[str, Any]:
    """What a finished step left in its done.json."""
    with _reading_work(path):
        return dict(parse_json(read_text(path, _MOST_BYTES)))


@contextmanager
def _reading_work(path: Path) -> Iterator[None]:
    try:
        yield
    except READ_ERRORS as error:
        raise DataError(
            f"{path}, which an earlier try left, is damaged ({reason(error)}); remove the folder and prepare the data again."
        ) from error
