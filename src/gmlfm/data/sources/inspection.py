"""A look at a stranger's files: how each is written, what its columns are, and the dataset.toml that says so."""

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
from gmlfm.data.sources.tables import Table, is_delimited, read_table
from gmlfm.errors import DataError
from gmlfm.storage import write_text

_ANY_NUMBER = 2**62
_DATE = r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
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


def inspect_files(paths: Sequence[Path], folder: Path, *, user: str | None = None, item: str | None = None) -> Inspected:
    """Read each file whole, tolerating broken lines for now, and guess a schema with paths relative to `folder`."""
    tables: dict[str, Table] = {}
    for path in paths:
        if any(path.resolve() == Path(other).resolve() for other in tables):
            raise DataError(f"{path} is given twice.")
        if path.is_dir():
            raise DataError(f"{path} is a folder; name the files in it, such as {path}/*.csv.")
        tables[str(path)] = _read_tolerantly(path)
    frames = {name: _without_null_words(table) for name, table in tables.items()}
    called = folder.resolve().name or "data"
    guess = guess_schema({name: frame for name, (frame, _) in frames.items()}, name=called, user=user, item=item)
    reasons = dict(guess.reasons)
    roles = {table: role for role, table in guess.tables.items()}
    schema = guess.schema
    files: dict[str, str] = {}
    for name, table in tables.items():
        role = roles[name]
        options, how = _read_options(table, frames[name][1], name)
        files[name] = "; ".join(dict.fromkeys(how.values())) or Path(name).suffix.lstrip(".")
        reasons.update({f"{role}.read.{key}": text for key, text in how.items()})
        if role == "interactions":
            options = _tolerating_lost_rows(options, how, frames[name][0], schema.interactions)
            reasons.update({f"{role}.read.{key}": text for key, text in how.items()})
        spec = getattr(schema, role)
        schema = replace(schema, **{role: _placed(spec, name, folder, options)})
    return Inspected(replace(guess, schema=schema, reasons=reasons), files)


def write_schema(inspected: Inspected, target: Path, *, force: bool = False) -> Dataset:
    """Load what the schema describes, and write it down only if that went well."""
    if target.exists() and not force:
        raise DataError(f"{target} exists already; it was left as it is. Use --force to replace it.")
    data = load_schema(inspected.schema, target.parent)
    write_text(target, inspected.to_toml())
    return data


def _read_tolerantly(path: Path) -> Table:
    options = ReadOptions(null=("",), tolerate=_ANY_NUMBER)
    table = read_table(str(path), Path(), options)
    if is_delimited(str(path)) and _first_line_is_data(table.frame):
        names = tuple(f"column_{number}" for number in range(1, table.frame.width + 1))
        table = read_table(str(path), Path(), replace(options, columns=names))
    n_broken = sum(broken.count for _, broken in table.broken)
    if n_broken > _MOST_BROKEN * (table.frame.height + n_broken):
        first = table.warnings()[0]
        raise DataError(
            f"{first}; more than a fifth of all lines, so this file was not understood; say how it is written in dataset.toml."
        )
    if table.frame.height == 0:
        raise DataError(f"{path} has a header but no rows.")
    return table


def _first_line_is_data(frame: pl.DataFrame) -> bool:
    """No name is a number or a date, nor one of its own column's values."""
    names = pl.Series(frame.columns)
    if names.cast(pl.Float64, strict=False).is_not_null().any() or names.str.contains(_DATE).any():
        return True
    return any((frame[name] == name).any() for name in frame.columns if frame[name].dtype == pl.String)


def _without_null_words(table: Table) -> tuple[pl.DataFrame, list[str]]:
    """The frame with null words as missing, and which words were found."""
    texts = [name for name, dtype in table.frame.schema.items() if dtype == pl.String]
    words = [word for word in NULL_WORDS if word]
    found = {word for name in texts for word in table.frame[name].unique().to_list() if word in words}
    if not found:
        return table.frame, []
    cleaned = table.frame.with_columns(
        pl.when(pl.col(texts).is_in(sorted(found))).then(None).otherwise(pl.col(texts)).name.keep()
    )
    return cleaned, [word for word in words if word in found]


def _read_options(table: Table, null_words: list[str], path: str) -> tuple[ReadOptions, dict[str, str]]:
    """What to write down of how the file is written, with the reasons."""
    found, how = table.options, {}
    result = ReadOptions()
    if is_delimited(path):
        result = replace(result, separator=found.separator, columns=found.columns)
        how["separator"] = f"separator {_SEPARATOR_NAMES.get(str(found.separator), repr(found.separator))}"
        if found.columns is not None:
            how["columns"] = "no header line: the first line is a row like the others"
        if found.quote != '"':
            result = replace(result, quote=found.quote)
            how["quote"] = f"quoted with {found.quote}"
    if found.encoding not in (None, "utf-8"):
        result = replace(result, encoding=found.encoding)
        how["encoding"] = f"not UTF-8; {found.encoding} fits"
    if null_words:
        result = replace(result, null=("", *null_words))
        how["null"] = f"{', '.join(null_words)} taken as missing"
    n_broken = sum(broken.count for _, broken in table.broken)
    if n_broken:
        result = replace(result, tolerate=n_broken)
        first = next(broken for _, broken in table.broken if broken.count)
        how["tolerate"] = (
            f"{n_broken} broken line(s), first line {first.first_line} ({first.first_reason}): {first.first_text[:60]!r}"
        )
    return result, how


def _tolerating_lost_rows(
    options: ReadOptions, how: dict[str, str], frame: pl.DataFrame, spec: InteractionsSchema
) -> ReadOptions:
    """Rows without a user or an item are tolerated as broken lines are: counted and told."""
    lost = int((frame[spec.user].is_null() | frame[spec.item].is_null()).sum())
    if lost == 0:
        return options
    told = f"{lost} row(s) have no user or no item"
    how["tolerate"] = f"{how['tolerate']}; {told}" if "tolerate" in how else told
    return replace(options, tolerate=max(options.tolerate, lost))


def _placed(spec: _Spec, path: str, folder: Path, options: ReadOptions) -> _Spec:
    relative = os.path.relpath(path, folder)
    return replace(spec, path=Path(relative).as_posix(), read=replace(options, decimal=spec.read.decimal))
