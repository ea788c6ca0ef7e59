"""Inspects unknown files: how each is written, what its columns are, and the dataset.toml that describes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import polars as pl

from gmlfm.data.dataset import Dataset
from gmlfm.data.guessing import Guess, guess_schema
from gmlfm.data.schema import InteractionsSchema, ReadOptions, Schema, SideSchema
from gmlfm.data.schema_toml import to_toml
from gmlfm.data.sources.delimited import NULL_WORDS
from gmlfm.data.sources.named import load_schema
from gmlfm.data.sources.naming import Naming, name_columns
from gmlfm.data.sources.tables import Table, is_delimited, read_table
from gmlfm.errors import DataError
from gmlfm.reading import check_regular, file_status, is_folder
from gmlfm.storage import write_text

_ANY_NUMBER = 2**62
_MOST_BROKEN = 0.2
_SEPARATOR_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon"}
_Spec = TypeVar("_Spec", InteractionsSchema, SideSchema)


@dataclass(frozen=True)
class Inspected:
    """The guess, and for each file how it is written."""

    guess: Guess
    files: dict[str, str]

    @property
    def schema(self) -> Schema:
        return self.guess.schema

    def to_toml(self) -> str:
        return "# Written by gmlfm init. Each line's reason stands behind it; change what is wrong.\n" + to_toml(
            self.schema, self.guess.reasons
        )


def inspect_files(
    paths: Sequence[Path],
    folder: Path,
    *,
    user: str | None = None,
    item: str | None = None,
    header: bool | None = None,
) -> Inspected:
    """Read each file, tolerating broken lines for now, and guess a schema with paths relative to `folder`.

    header: whether the files have a header line, where the caller knows.
    """
    tables: dict[str, Table] = {}
    namings: dict[str, Naming] = {}
    for path in paths:
        if is_folder(path):
            raise DataError(f"{path} is a folder; name the files in it, such as {path}/*.csv.")
        if file_status(path) is not None:
            check_regular(path)  # it is read several times, which a pipe does not allow
        if any(path.resolve() == Path(other).resolve() for other in tables):
            raise DataError(f"{path} is given twice.")
        tables[str(path)], namings[str(path)] = _read_tolerantly(path, header)
    cleaned_tables = {name: _without_null_words(table) for name, table in tables.items()}
    dataset_name = folder.resolve().name or "data"
    frames = {name: frame for name, (frame, _) in cleaned_tables.items()}
    types = {name: naming.types for name, naming in namings.items() if naming.types}
    guess = guess_schema(frames, name=dataset_name, user=user, item=item, types=types)
    reasons = dict(guess.reasons)
    roles = {table: role for role, table in guess.tables.items()}
    schema = guess.schema
    files: dict[str, str] = {}
    for name, table in tables.items():
        role = roles[name]
        options, read_reasons = _read_options(table, namings[name], cleaned_tables[name][1], name)
        files[name] = "; ".join(dict.fromkeys(read_reasons.values())) or Path(name).suffix.lstrip(".")
        reasons.update({f"{role}.read.{key}": reason for key, reason in read_reasons.items()})
        if role == "interactions":
            options = _tolerating_lost_rows(options, read_reasons, cleaned_tables[name][0], schema.interactions)
            reasons.update({f"{role}.read.{key}": reason for key, reason in read_reasons.items()})
        spec = getattr(schema, role)
        schema = replace(schema, **{role: _placed(spec, name, folder, options)})
    return Inspected(replace(guess, schema=schema, reasons=reasons), files)


def write_schema(inspected: Inspected, target: Path, *, force: bool = False) -> Dataset:
    """Load what the schema describes, and write the schema only if that succeeds."""
    if file_status(target) is not None and not force:
        raise DataError(f"{target} exists already; it was left as it is. Use --force to replace it.")
    data = load_schema(inspected.schema, target.parent)
    write_text(target, inspected.to_toml())
    return data


def _read_tolerantly(path: Path, header: bool | None) -> tuple[Table, Naming]:
    options = ReadOptions(null=("",), tolerate=_ANY_NUMBER)
    naming = name_columns(str(path), options, header) if is_delimited(str(path)) else Naming()
    table = read_table(str(path), Path(), replace(options, header=naming.header, columns=naming.columns))
    n_broken = sum(broken.count for _, broken in table.broken)
    if n_broken > _MOST_BROKEN * (table.frame.height + n_broken):
        warning = table.warnings()[0]
        raise DataError(
            f"{warning}; more than a fifth of all lines, so this file was not understood; "
            "say how it is written in dataset.toml."
        )
    if table.frame.height == 0:
        raise DataError(f"{path} has a header but no rows.")
    return table, naming


def _without_null_words(table: Table) -> tuple[pl.DataFrame, list[str]]:
    """The frame with null words as missing, and which of the words occur."""
    texts = [name for name, dtype in table.frame.schema.items() if dtype == pl.String]
    words = [word for word in NULL_WORDS if word]
    present = {word for name in texts for word in table.frame[name].unique().to_list() if word in words}
    if not present:
        return table.frame, []
    cleaned = table.frame.with_columns(
        pl.when(pl.col(texts).is_in(sorted(present))).then(None).otherwise(pl.col(texts)).name.keep()
    )
    return cleaned, [word for word in words if word in present]


def _read_options(table: Table, naming: Naming, null_words: list[str], path: str) -> tuple[ReadOptions, dict[str, str]]:
    """The options to declare for reading the file, with the reasons."""
    dialect, reasons = table.options, {}
    options = ReadOptions()
    if is_delimited(path):
        options = replace(options, separator=dialect.separator, header=naming.header, columns=naming.columns)
        reasons["separator"] = f"separator {_SEPARATOR_NAMES.get(str(dialect.separator), repr(dialect.separator))}"
        reasons.update(naming.reasons)
        if dialect.quote != '"':
            options = replace(options, quote=dialect.quote)
            reasons["quote"] = f"quoted with {dialect.quote}"
    if dialect.encoding not in (None, "utf-8"):
        options = replace(options, encoding=dialect.encoding)
        reasons["encoding"] = f"not UTF-8; {dialect.encoding} fits"
    if null_words:
        options = replace(options, null=("", *null_words))
        reasons["null"] = f"{', '.join(null_words)} taken as missing"
    n_broken = sum(broken.count for _, broken in table.broken)
    if n_broken:
        options = replace(options, tolerate=n_broken)
        first_broken = next(broken for _, broken in table.broken if broken.count)
        reasons["tolerate"] = (
            f"{n_broken} broken line(s), first line {first_broken.first_line} ({first_broken.first_reason}): "
            f"{first_broken.first_text[:60]!r}"
        )
    return options, reasons


def _tolerating_lost_rows(
    options: ReadOptions, reasons: dict[str, str], frame: pl.DataFrame, spec: InteractionsSchema
) -> ReadOptions:
    """Rows without a user or an item are tolerated as broken lines are: counted and reported."""
    n_lost = int((frame[spec.user].is_null() | frame[spec.item].is_null()).sum())
    if n_lost == 0:
        return options
    reason = f"{n_lost} row(s) have no user or no item"
    reasons["tolerate"] = f"{reasons['tolerate']}; {reason}" if "tolerate" in reasons else reason
    return replace(options, tolerate=max(options.tolerate, n_lost))


def _placed(spec: _Spec, path: str, folder: Path, options: ReadOptions) -> _Spec:
    relative = os.path.relpath(path, folder)
    return replace(spec, path=Path(relative).as_posix(), read=replace(options, decimal=spec.read.decimal))
