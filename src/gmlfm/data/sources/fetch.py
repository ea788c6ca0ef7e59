"""`gmlfm data get`: from a name, and perhaps local files, to a folder that loads by that name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from gmlfm.data.sources.amazon import convert_amazon
from gmlfm.data.sources.archives import checked_members
from gmlfm.data.sources.bazaar import Market, write_bazaar
from gmlfm.data.sources.catalogue import SOURCES, Source
from gmlfm.data.sources.download import Progress, checksum, fetch, room_for
from gmlfm.data.sources.libfm import convert_libfm
from gmlfm.data.sources.mercari import convert_mercari, slug
from gmlfm.data.sources.movielens import ML_100K_MEMBERS, convert_100k
from gmlfm.errors import DataError, OptionError, did_you_mean
from gmlfm.storage import new_folder, write_text

_ACCEPTED = "accepted-terms.json"
_ML_1M_MEMBERS = ("ml-1m/ratings.dat", "ml-1m/users.dat", "ml-1m/movies.dat")


def terms_to_accept(name: str, root: Path) -> str | None:
    """The terms of a source, unless they were accepted before."""
    terms = source_of(name).terms
    return None if terms is None or name in _accepted(root) else terms


def accept_terms(name: str, root: Path) -> None:
    write_text(root / _ACCEPTED, json.dumps(sorted({*_accepted(root), name}), indent=1) + "\n")


def _accepted(root: Path) -> list[str]:
    try:
        names = json.loads((root / _ACCEPTED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(one) for one in names] if isinstance(names, list) else []


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

    What is there stays whole until the new files are.
    """
    source = source_of(name)
    folder = out or root / source.folder
    if name == "bazaar":
        market = market or Market()
        folder = out or root / market.name
        write_bazaar(market, folder, progress)
        return folder
    if source.url is not None:
        archive = _archive(source, files, root, any_checksum, progress)
        members = ML_100K_MEMBERS if name == "ml-100k" else _ML_1M_MEMBERS
        _place_movielens(name, archive, members, folder)
        return folder
    if not files:
        raise DataError(f"'{name}' cannot be downloaded; give {source.needs} with --from.")
    if name == "mercari":
        if category is None:
            raise OptionError("mercari needs --category NAME, the root category to keep, such as Ticket.")
        folder = out or root / f"mercari-{slug(category)}"
        convert_mercari(files[0], category, folder)
    elif name == "libfm":
        convert_libfm(files[0], folder)
    else:
        reviews, meta = _amazon_files(name, files)
        convert_amazon(name, reviews, meta, folder)
    return folder


def _archive(source: Source, files: Sequence[Path], root: Path, any_checksum: bool, progress: Progress | None) -> Path:
    assert source.url is not None
    if not files:
        target = root / "downloads" / source.url.rsplit("/", 1)[1]
        if not target.exists() or checksum(target) != source.md5:
            fetch(source.url, target, source.md5, progress)
        return target
    archive = files[0]
    if not archive.is_file():
        raise DataError(f"{archive} does not exist or is no file; --from names the archive.")
    if not any_checksum and source.md5 is not None and checksum(archive) != source.md5:
        raise DataError(
            f"{archive} has the checksum {checksum(archive)}, the official archive {source.md5}; "
            "fetch it again, or use it as it is with --any-checksum."
        )
    return archive


def _place_movielens(name: str, archive: Path, members: tuple[str, ...], folder: Path) -> None:
    checked_members(archive, members)
    if name == "ml-100k":
        convert_100k(archive, folder)
        return
    room_for(archive.stat().st_size, _existing_parent(folder), archive)
    if (folder / "ml-1m.zip").exists() and archive.samefile(folder / "ml-1m.zip"):
        return
    with new_folder(folder, holds=("ml-1m.zip",)) as new:
        shutil.copyfile(archive, new / "ml-1m.zip")


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in (path, *path.resolve().parents) if parent.is_dir())


def _amazon_files(name: str, files: Sequence[Path]) -> tuple[Path, Path | None]:
    """Which of the given files (or of a folder's) are the reviews and the meta data, by their names."""
    raw = SOURCES[name].raw
    found = [one for path in files for one in (sorted(path.iterdir()) if path.is_dir() else [path])]
    reviews, meta = ([one for one in found if one.name.startswith(start)] for start in (f"reviews_{raw}", f"meta_{raw}"))
    if not reviews:
        raise DataError(f"'{name}' needs {SOURCES[name].needs}; no file named reviews_{raw}* was given.")
    return reviews[0], meta[0] if meta else None
