"""What lies in a run folder, what of it is ours, and what a death left behind.

RUN/run.json             what the run is, which generation is current and the checksum of each of its files; written last
RUN/generations/000003/  weights.safetensors, card.md, curve.jsonl, encoder/, data/: never changed once written
RUN/events.jsonl         what was marked, observed and forgotten; it outlives the generations
RUN/fit.json, curve.jsonl, checkpoints/, checkpoints-refit/, report.html   of the training
RUN/item_map.safetensors   two numbers an item, for the explorer; made again whenever it is missing or of another run
RUN/model/               the one generation of formats 2 and 3
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from gmlfm.errors import DataError
from gmlfm.fitting.plan import CHECKPOINTS, CHECKPOINTS_OF_REFIT, CURVE, STAMP
from gmlfm.runs.reading import is_left_by_readers
from gmlfm.training.checkpoint import is_checkpoint_file, remove_checkpoints

ABOUT, GENERATIONS, EVENTS, OLD_MODEL, OLD_STOCK = "run.json", "generations", "events.jsonl", "model", "stock.jsonl"
LOCK, TRAINING_LOCK = ".lock", ".training.lock"
REPORT, ITEM_MAP = "report.html", "item_map.safetensors"
_LOCKS = {LOCK, TRAINING_LOCK}
_FILES = {ABOUT, EVENTS, STAMP, CURVE, REPORT, ITEM_MAP, *_LOCKS}
_FOLDERS = {GENERATIONS, CHECKPOINTS, CHECKPOINTS_OF_REFIT, OLD_MODEL}
# Temporary neighbours, as storage.py names them: of the writers' lock and of a training.
_DRAFT = re.compile(r"\.(run\.json|events\.jsonl|model)\..+")
_TRAINING_DRAFT = re.compile(r"\.(fit\.json|curve\.jsonl|report\.html|item_map\.safetensors)\..+")
# What a generation holds, by relative path; formats 2 and 3 had three files more.
_GENERATION_FILE = re.compile(
    r"weights\.safetensors|card\.md|curve\.jsonl"
    r"|(encoder|\.encoder\.[^/]+)/(encoder\.json|(values|users|items)\.parquet)"
    r"|data/((dataset|split)\.json|(users|items|interactions|history_rows|split|validation_candidates|test_candidates)\.parquet)"
)
_OLD_FILE = re.compile(rf"run\.json|history\.jsonl|stock\.jsonl|{_GENERATION_FILE.pattern}")


def holds_a_run(folder: Path) -> bool:
    return (folder / ABOUT).exists() or (folder / OLD_MODEL / ABOUT).exists()


def holds_a_training(folder: Path) -> bool:
    """Whether there are epochs that could be gone on with."""
    folders = (folder / CHECKPOINTS, folder / CHECKPOINTS_OF_REFIT)
    return any(is_checkpoint_file(file) for inner in folders if inner.is_dir() for file in inner.glob("epoch-*.json"))


def refuse_foreign_files(folder: Path) -> None:
    """A folder with anything in it that gmlfm did not write belongs to somebody; nothing is written there."""
    try:
        if folder.is_symlink() and not folder.exists():
            raise DataError(f"{folder} is a link that leads nowhere; choose another place for the run.")
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder} is a file; a run folder is to be written there, choose another place.")
        foreign = next(_foreign_files(folder), None) if folder.is_dir() else None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{str(folder)!r} cannot be a run folder ({reason}); choose another place.") from error
    if foreign is not None:
        raise DataError(f"{folder} holds '{foreign}', which gmlfm did not write; choose a new folder for the run.")


def _foreign_files(folder: Path) -> Iterator[str]:
    for entry in sorted(folder.iterdir()):
        is_draft = _DRAFT.fullmatch(entry.name) or _TRAINING_DRAFT.fullmatch(entry.name)
        is_ours = is_draft or entry.name in _FILES or entry.name in _FOLDERS
        if not is_ours or entry.is_symlink() or (not is_draft and entry.is_dir() == (entry.name in _FILES)):
            yield entry.name
        elif entry.name in (CHECKPOINTS, CHECKPOINTS_OF_REFIT):
            yield from (f"{entry.name}/{file.name}" for file in sorted(entry.iterdir()) if not is_checkpoint_file(file))
        elif entry.name == GENERATIONS:
            for inner in sorted(entry.iterdir()):
                if not _is_generation(inner):
                    yield f"{GENERATIONS}/{inner.name}"
                yield from (f"{GENERATIONS}/{inner.name}/{name}" for name in _others_in(inner, _GENERATION_FILE))
        elif entry.name == OLD_MODEL:
            yield from (f"{OLD_MODEL}/{name}" for name in _others_in(entry, _OLD_FILE))


def _others_in(folder: Path, ours: re.Pattern[str]) -> Iterator[str]:
    """The files below a folder that are not ours, by relative path; a link is never ours."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or (path.is_file() and not ours.fullmatch(name)):
            yield name


def _is_generation(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and re.fullmatch(r"\d{6,}", path.name) is not None


def new_generation(folder: Path) -> Path:
    """The folder of the next generation, made and empty."""
    parent = folder / GENERATIONS
    parent.mkdir(parents=True, exist_ok=True)
    last = max((int(path.name) for path in parent.iterdir() if _is_generation(path)), default=0)
    path = parent / f"{last + 1:06d}"
    path.mkdir()
    return path


def rests(folder: Path, current: str) -> list[Path]:
    """What only a death leaves: generations that run.json does not name, and drafts. With no current one, all of them."""
    generations, left = folder / GENERATIONS, [path for path in folder.iterdir() if _DRAFT.fullmatch(path.name)]
    if generations.is_dir():
        left += [path for path in generations.iterdir() if _is_generation(path) and path.name != current]
    if current and (folder / OLD_MODEL).is_dir() and not (folder / OLD_MODEL).is_symlink():
        left.append(folder / OLD_MODEL)
    return left


def clear_rests(folder: Path, current: str, patience: float = 0.0) -> None:
    """For the holder of the writers' lock. The generation of an older format goes once a new one is there. What somebody else
    put into a generation stays, and so does one that is being read, unless its readers take longer than `patience` seconds."""
    for path in rests(folder, current):
        if path.name != OLD_MODEL and not _is_generation(path):
            _remove(path)
        elif is_left_by_readers(path, patience) or patience:
            remove_generation(path)


def remove_generation(path: Path) -> None:
    """Our files in it, and the folders that are empty then."""
    inner = sorted(path.rglob("*"), reverse=True)
    for file in inner:
        if file.is_file() and not file.is_symlink() and _OLD_FILE.fullmatch(file.relative_to(path).as_posix()):
            file.unlink(missing_ok=True)
    for folder in (*inner, path):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def clear_training(folder: Path) -> None:
    """Checkpoints, their stamp and drafts, for the holder of the training lock."""
    for name in (CHECKPOINTS, CHECKPOINTS_OF_REFIT):
        remove_checkpoints(folder / name)
    for path in folder.iterdir():
        if _TRAINING_DRAFT.fullmatch(path.name) or path.name == STAMP:
            _remove(path)


def clear_empty(folder: Path, *, remove: bool) -> None:
    """Clear a folder of a training that came to nothing, for the holder of its lock; remove: the folder itself, too."""
    if holds_a_run(folder) or holds_a_training(folder) or (folder / EVENTS).exists():
        return
    clear_training(folder)
    for name in (CURVE, *_LOCKS):
        (folder / name).unlink(missing_ok=True)
    if remove and not any(folder.iterdir()):
        folder.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
