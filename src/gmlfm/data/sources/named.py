"""Datasets by path or by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gmlfm.data.dataset import Dataset
from gmlfm.data.schema import Schema
from gmlfm.data.sources.bazaar import bazaar_dataset, built_in
from gmlfm.data.sources.catalogue import SOURCES
from gmlfm.data.sources.tables import Table, read_table
from gmlfm.errors import DataError, did_you_mean
from gmlfm.forking import refuse_after_fork
from gmlfm.progress import activity
from gmlfm.reading import is_folder, is_regular
from gmlfm.storage import cache_folder


def load_dataset(where: str | Path, *, data_root: str | Path | None = None, strict: bool = False) -> Dataset:
    """A folder with a dataset.toml, the path of a .toml, or a name that is looked for under the data roots.

    The roots are `data_root`, then $GMLFM_DATA, then the user's cache folder. Built in are `bazaar`, its older versions such as
    `bazaar-v2`, and each of them by its content hash, `bazaar@HASH`.
    """
    refuse_after_fork()
    location = locate(where, data_root)
    if location is not None:
        return load_schema(*location, strict=strict)
    with activity("making the built-in market"):
        return bazaar_dataset(built_in(str(where)))


def description(name: str) -> Path:
    """The packaged dataset.toml of a named dataset."""
    return Path(__file__).parent / "described" / f"{name}.toml"


def folder_of(name: str, data_root: str | Path | None = None) -> Path | None:
    """The folder in which a named dataset's files lie, None where no root has them."""
    for root in data_roots(data_root):
        folder = root / SOURCES[name].folder
        if is_regular(folder / "dataset.toml") or (SOURCES[name].described and is_folder(folder)):
            return folder
    return None


def locate(where: str | Path, data_root: str | Path | None = None) -> tuple[Schema, Path] | None:
    """The schema and the folder of its files, for what load_dataset would load; None for what is built in."""
    path = Path(where)
    if len(str(where)) > 4000 or any(len(name) > 255 for name in path.parts):
        raise DataError(f"'{str(where)[:40]}...' is too long for a name or a path.")
    if path.suffix == ".toml" or is_regular(path):
        return Schema.from_toml(path), path.parent
    if is_regular(path / "dataset.toml"):
        return Schema.from_toml(path / "dataset.toml"), path
    name = str(where)
    if built_in(name) is not None:
        return None
    roots = list(data_roots(data_root))
    for root in roots:
        if is_regular(root / name / "dataset.toml"):
            return Schema.from_toml(root / name / "dataset.toml"), root / name
        if name in SOURCES and SOURCES[name].described and is_folder(root / SOURCES[name].folder):
            return Schema.from_toml(description(name)), root / SOURCES[name].folder
    searched = ", ".join(str(root) for root in roots)
    if is_regular(path / "prepared.json"):
        raise DataError(f"{path} is a prepared folder, which gmlfm train reads; here its dataset.toml's folder is needed.")
    if is_folder(path):
        raise DataError(f"{path} holds no dataset.toml; write one with: gmlfm init {path}/*")
    if name in SOURCES:
        raise DataError(f"the files of '{name}' are not in {searched}; use --data-root DIR, or: gmlfm data get {name}")
    raise DataError(
        f"'{name}' is neither a folder, a .toml file nor a known dataset (looked in {searched}){did_you_mean(name, SOURCES)}"
    )


def others(data_root: str | Path | None = None) -> list[Path]:
    """Folders with a dataset.toml under the roots whose names are not in the catalogue of sources."""
    folders = [file.parent for root in data_roots(data_root) if is_folder(root) for file in sorted(root.glob("*/dataset.toml"))]
    return [folder for folder in folders if folder.name not in SOURCES]


def load_schema(schema: Schema, folder: Path, *, strict: bool = False) -> Dataset:
    """Read the files that a schema names, relative to `folder`."""
    tables: dict[str, Table] = {}
    for name, spec in (("interactions", schema.interactions), ("users", schema.users), ("items", schema.items)):
        if spec is not None and spec.path is not None:
            with activity(f"reading {spec.path}"):
                tables[name] = read_table(spec.path, folder, spec.read)
    with activity("checking the tables"):
        data = Dataset.from_tables(
            tables["interactions"].frame,
            users=tables["users"].frame if "users" in tables else None,
            items=tables["items"].frame if "items" in tables else None,
            schema=schema,
            strict=strict,
            origins={name: table.origin for name, table in tables.items()},
        )
    read_warnings = tuple(warning for table in tables.values() for warning in table.warnings())
    return replace(data, warnings=read_warnings + data.warnings)


def data_roots(data_root: str | Path | None = None) -> Iterator[Path]:
    if data_root is not None:
        if not is_folder(data_root):
            raise DataError(f"--data-root {data_root} is not a folder.")
        yield Path(data_root)
    if os.environ.get("GMLFM_DATA"):
        yield Path(os.environ["GMLFM_DATA"])
    yield cache_folder()
