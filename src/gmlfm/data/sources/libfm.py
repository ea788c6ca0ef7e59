"""libFM and svmlight files: a label and index:value pairs a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.errors import DataError
from gmlfm.storage import new_folder
from gmlfm.streams import read_bytes

_TOML = """# From a libFM file: a row's first attribute is its user, the second its item, the others are a set of the occasion.
name = {name}

[interactions]
path = "rows.parquet"
user = "user"
item = "item"
label = "label"
repeats = "keep"
context = {{ attributes = {{ kind = "set", weighting = "none" }} }}
"""


@dataclass(frozen=True)
class SparseRows:
    """labels (N,); row n has indices[starts[n]:starts[n + 1]] and the values beside them."""

    labels: npt.NDArray[np.float64]
    starts: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def read_libfm(path: Path) -> SparseRows:
    """Comments after '#' and svmlight's qid are skipped; anything else out of place is refused with its line number."""
    labels: list[float] = []
    starts = [0]
    indices: list[int] = []
    values: list[float] = []
    for number, line in enumerate(read_bytes(str(path)).split(b"\n"), start=1):
        words = line.split(b"#", 1)[0].split()
        if not words:
            continue
        try:
            labels.append(float(words[0]))
            for word in words[1:]:
                index, colon, value = word.partition(b":")
                if index == b"qid":
                    continue
                if not colon:
                    raise ValueError
                indices.append(int(index))
                values.append(float(value))
        except ValueError as error:
            raise DataError(
                f"{path} line {number:,} is not 'label index:value ...': {line[:60].decode(errors='replace')!r}."
            ) from error
        starts.append(len(indices))
    if not labels:
        raise DataError(f"{path} holds no row.")
    if max(indices, default=0) >= 2**63:
        raise DataError(f"{path} holds the index {max(indices)}, which is too large.")
    rows = SparseRows(np.array(labels), np.array(starts), np.array(indices, np.int64), np.array(values))
    if not (np.isfinite(rows.labels).all() and np.isfinite(rows.values).all()) or (rows.indices < 0).any():
        raise DataError(f"{path} holds a label or value that is not finite, or a negative index.")
    return rows


def convert_libfm(path: Path, folder: Path) -> None:
    """A file of one-hot rows, user first and item second as FM data usually are -> a dataset."""
    rows = read_libfm(path)
    lengths = np.diff(rows.starts)
    if (lengths < 2).any():
        row = int((lengths < 2).argmax())
        raise DataError(f"{path}: row {row + 1} has {lengths[row]} attributes; the first is taken as user, the second as item.")
    if (rows.values != 1).any():
        raise DataError(
            f"{path} has values other than 1, which a dataset of users and items cannot hold; "
            "read it with read_libfm for an estimator."
        )
    user_starts = rows.starts[:-1]
    flat = pl.DataFrame({"row": np.repeat(np.arange(len(lengths)), lengths), "index": rows.indices.astype(str)})
    positions = np.arange(len(rows.indices)) - np.repeat(user_starts, lengths)
    others = flat.filter(pl.Series(positions >= 2)).group_by("row", maintain_order=True).agg("index")
    table = pl.DataFrame(
        {
            "row": np.arange(len(lengths)),
            "user": rows.indices[user_starts],
            "item": rows.indices[user_starts + 1],
            "label": rows.labels,
        }
    ).join(others, on="row", how="left", maintain_order="left")
    with new_folder(folder, holds=("rows.parquet", "dataset.toml")) as new:
        table.rename({"index": "attributes"}).drop("row").write_parquet(new / "rows.parquet")
        (new / "dataset.toml").write_text(_TOML.format(name=json.dumps(path.name.split(".")[0] or "libfm")), encoding="utf-8")
