"""`gmlfm data get`: from a name, and perhaps local files, to a folder that loads by that name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from gmlfm.data.sources.bazaar import BUILT_IN, Market, write_bazaar
from gmlfm.data.sources.catalogue import SOURCES, Request, Source
from gmlfm.data.sources.download import Progress, check_room, checksum, download_file
from gmlfm.data.sources.mercari import slug
from gmlfm.errors import DataError, OptionError, did_you_mean
from gmlfm.reading import READ_ERRORS, file_status, is_folder, is_regular
from gmlfm.storage import new_folder, write_text

_ACCEPTED = "accepted-terms.json"


def terms_to_accept(name: str, root: Path) -> str | None:
    """The terms of a source, unless they were accepted before."""
    terms = source_of(name).terms
    return None if terms is None or name in _accepted(root) else terms


def accept_terms(name: str, root: Path) -> None:
    write_text(root / _ACCEPTED, json.dumps(sorted({*_accepted(root), name}), indent=1) + "\n")


def _accepted(root: Path) -> list[str]:
    try:
        names = json.loads((root / _ACCEPTED).read_text(encoding="utf-8"))
    except READ_ERRORS:
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def source_of(name: str) -> Source:
    if name not in SOURCES:
        raise OptionError(f"'{name}' is no dataset that can be had by name{did_you_mean(name, SOURCES)}")
    return SOURCES[name]


def get_dataset(
    name: str,
    root: Path,
    *,
    files: Sequence[Path] = (),
    out: Path | None = None,
    category: str | None = None,
    market: Market | None = None,
    any_checksum: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Put a dataset's files in their folder under `root` (or in `out`) and return that folder.

    An older folder stays complete until the new one is.
    """
    source = source_of(name)
    if name in BUILT_IN:
        market = market or BUILT_IN[name]
        folder = out or root / market.name
        write_bazaar(market, folder, progress)
        return folder
    if source.url is not None:
        files = [_archive(source, files, root, any_checksum, progress)]
        source.check(files[0])
    elif not files:
        raise DataError(f"'{name}' cannot be downloaded; give {source.needs} with --from.")
    folder = out or root / source.folder
    if source.category_example:
        if category is None:
            raise OptionError(f"{name} needs --category NAME, the root category to keep, such as {source.category_example}.")
        folder = out or root / f"{source.folder}-{slug(category)}"
    if source.convert is not None:
        source.convert(Request(files, folder, category or ""))
    else:
        _keep_archive(files[0], folder, f"{source.folder}.zip")
    return folder


def _archive(source: Source, files: Sequence[Path], root: Path, any_checksum: bool, progress: Progress | None) -> Path:
    assert source.url is not None
    if not files:
        target = root / "downloads" / source.url.rsplit("/", 1)[1]
        if file_status(target) is None or source.md5 not in (None, checksum(target)):
            declared = round(source.megabytes * 1e6) or None
            download_file(source.url, target, source.md5, progress, declared_bytes=declared)
        return target
    archive = files[0]
    if not is_regular(archive):
        raise DataError(f"{archive} does not exist or is no file; --from names the archive.")
    if not any_checksum and source.md5 is not None and checksum(archive) != source.md5:
        raise DataError(
            f"{archive} has the checksum {checksum(archive)}, the official archive {source.md5}; "
            "fetch it again, or use it as it is with --any-checksum."
        )
    return archive


def _keep_archive(archive: Path, folder: Path, name: str) -> None:
    file_status(folder)  # refuses a name that no folder can have
    check_room(archive.stat().st_size, _existing_parent(folder), archive)
    if file_status(folder / name) is not None and archive.samefile(folder / name):
        return
    with new_folder(folder, holds=(name,)) as new:
        shutil.copyfile(archive, new / name)


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in (path, *path.resolve().parents) if is_folder(parent))
