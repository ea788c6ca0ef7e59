"""What all steps of a preparation share: what is prepared, where, and how it is partitioned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from gmlfm.data.schema import Schema
from gmlfm.data.sources.tables import file_on_disk, matching

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
    return pl.concat([pl.read_parquet(path) for path in paths], how="vertical_relaxed") if paths else None
