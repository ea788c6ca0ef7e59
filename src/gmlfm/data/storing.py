"""A Dataset and a Split in a folder of Parquet and JSON, as a run stores them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gmlfm.data.columns import IdType, without_prefix
from gmlfm.data.dataset import Dataset, Side
from gmlfm.data.events import no_history
from gmlfm.data.schema import Schema
from gmlfm.data.splits import TEST, TRAIN, UNUSED, VALIDATION, Split
from gmlfm.errors import DataError
from gmlfm.reading import READ_ERRORS, parse_json, read_parquet, reason
from gmlfm.typed_json import from_json


def save_dataset(data: Dataset, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    sides = {"users": data.users, "items": data.items}
    for name, side in sides.items():
        columns = [side.ids.alias("id"), *(column.alias(f"field {column.name}") for column in side.fields.iter_columns())]
        if side.titles is not None:
            columns.append(side.titles.alias("title"))
        if side.listed is not None:
            columns.append(side.listed.alias("listed"))
        pl.DataFrame(columns).write_parquet(folder / f"{name}.parquet")
    context = [column.alias(f"context {column.name}") for column in data.context.iter_columns()]
    data.interactions.with_columns(context).write_parquet(folder / "interactions.parquet")
    if data.history_rows.height:
        data.history_rows.write_parquet(folder / "history_rows.parquet")
    metadata = {
        "hash": data.content_hash,
        "schema": asdict(data.schema),
        "warnings": data.warnings,
        "sides": {name: {"id_type": side.id_type, "n_listed": side.n_listed} for name, side in sides.items()},
    }
    (folder / "dataset.json").write_text(json.dumps(metadata, indent=1, ensure_ascii=False), encoding="utf-8")


def load_saved_dataset(folder: Path) -> Dataset:
    try:
        metadata = parse_json((folder / "dataset.json").read_text(encoding="utf-8"))
        schema = _schema(metadata["schema"])
        sides = {name: _side(folder, name, metadata["sides"][name]) for name in ("users", "items")}
        frame = read_parquet(folder / "interactions.parquet")
        interactions = frame.drop(name for name in frame.columns if name.startswith("context "))
        context = without_prefix(frame, "context ")
        # Only data with such rows have the file; without it, the content does not fit the hash.
        path = folder / "history_rows.parquet"
        history = read_parquet(path) if path.exists() else no_history()
        data = Dataset(schema, interactions, context, sides["users"], sides["items"], _texts(metadata, "warnings"), history)
        is_whole = data.content_hash == metadata["hash"]
    except (AttributeError, *READ_ERRORS) as error:
        raise DataError(f"{folder} holds no readable data ({reason(error)}).") from error
    if not is_whole:
        raise DataError(f"{folder} holds damaged data: the content does not fit its hash.")
    return data


def save_split(split: Split, folder: Path) -> None:
    parts = [split.train, split.validation, split.test, split.unused]
    groups = [None, split.validation_groups, split.test_groups, None]
    frames = [
        pl.DataFrame(
            {
                "row": rows,
                "part": np.full(len(rows), part, np.int8),
                "group": np.full(len(rows), -1, np.int8) if group is None else group,
            }
        )
        for part, (rows, group) in enumerate(zip(parts, groups, strict=True))
    ]
    pl.concat(frames).write_parquet(folder / "split.parquet")
    candidates = {"validation": split.validation_candidates, "test": split.test_candidates}
    for name, lists in candidates.items():
        if lists is not None:
            pl.DataFrame({"item": lists.ravel()}).write_parquet(folder / f"{name}_candidates.parquet")
    metadata = {
        "name": split.name,
        "hash": split.hash,
        "options": dict(split.options),
        "data_hash": split.data_hash,
        "group_names": split.group_names,
        "notes": split.notes,
        "candidates": {name: lists.shape for name, lists in candidates.items() if lists is not None},
    }
    (folder / "split.json").write_text(json.dumps(metadata, indent=1), encoding="utf-8")


def load_split(folder: Path) -> Split:
    try:
        metadata = parse_json((folder / "split.json").read_text(encoding="utf-8"))
        frame = read_parquet(folder / "split.parquet")
        # Runs of before the split `files` have no such key.
        shapes = metadata.get("candidates", {})
        candidates = {
            name: read_parquet(folder / f"{name}_candidates.parquet")["item"].to_numpy().reshape(shape)
            for name, shape in shapes.items()
        }
        split = _split(metadata, frame, candidates)
        is_whole = split.hash == metadata["hash"]
    except (AttributeError, *READ_ERRORS) as error:
        raise DataError(f"{folder} holds no readable split ({reason(error)}).") from error
    if not is_whole:
        raise DataError(f"{folder} holds a damaged split: its rows do not fit its hash.")
    return split


def _split(metadata: dict[str, Any], frame: pl.DataFrame, candidates: dict[str, Any]) -> Split:
    by_part = [frame.filter(pl.col("part") == part) for part in (TRAIN, VALIDATION, TEST, UNUSED)]
    grouped = bool(metadata["group_names"])
    return Split(
        from_json(str, metadata["name"], "name"),
        train=by_part[TRAIN]["row"].to_numpy(),
        validation=by_part[VALIDATION]["row"].to_numpy(),
        test=by_part[TEST]["row"].to_numpy(),
        unused=by_part[UNUSED]["row"].to_numpy(),
        options=from_json(dict[str, Any], metadata["options"], "options"),
        data_hash=metadata["data_hash"],
        group_names=_texts(metadata, "group_names"),
        validation_groups=by_part[VALIDATION]["group"].to_numpy() if grouped else None,
        test_groups=by_part[TEST]["group"].to_numpy() if grouped else None,
        notes=_texts(metadata, "notes"),
        validation_candidates=candidates.get("validation"),
        test_candidates=candidates.get("test"),
    )


def _texts(metadata: dict[str, Any], key: str) -> tuple[str, ...]:
    return from_json(tuple[str, ...], metadata[key], key)  # type: ignore[no-any-return]


def _side(folder: Path, name: str, metadata: dict[str, Any]) -> Side:
    frame = read_parquet(folder / f"{name}.parquet")
    titles, listed = (frame[column] if column in frame.columns else None for column in ("title", "listed"))
    id_type = from_json(IdType, metadata["id_type"], f"{name}.id_type")
    n_listed = from_json(int, metadata["n_listed"], f"{name}.n_listed")
    return Side(frame["id"], id_type, without_prefix(frame, "field "), titles, n_listed, listed)


def _schema(content: dict[str, Any]) -> Schema:
    """How the files were written does not matter any more."""
    tables = ("interactions", "users", "items")
    content = {name: {**content[name], "read": {}} if name in tables and content[name] else content[name] for name in content}
    return from_json(Schema, content, "schema")  # type: ignore[no-any-return]
