"""A folder for one training: nobody else's files, no run replaced by mistake, no second training at the same time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gmlfm.errors import DataError, OptionError
from gmlfm.models.base import Model
from gmlfm.runs.description import read_about
from gmlfm.runs.layout import clear_empty, clear_training, holds_a_run, holds_a_training, refuse_foreign_files
from gmlfm.runs.locking import training_lock
from gmlfm.runs.run_folder import RunFolder
from gmlfm.training.trainer import DivergedError


@contextmanager
def claimed(folder: str | Path, model: type[Model] | None, *, resume: bool, force: bool) -> Iterator[RunFolder]:
    """The folder, held for a training in the block. Where nothing came of it, not even the folder is left.

    resume: go on with what is there; force: replace it. Without either a folder with a run or a begun training is refused.
    """
    path = run_path(folder)
    _refuse(path, resume=resume, force=force)
    is_new = not path.exists()
    with training_lock(path):
        _refuse(path, resume=resume, force=force)  # another training may have ended while this one waited
        run_folder = RunFolder(path, model)
        _note_what_is_there(run_folder, force=force)
        if not resume:
            clear_training(path)
        n_forgotten = run_folder.n_forgotten
        try:
            yield run_folder
        except DivergedError:  # nothing was learned that could be gone on with
            clear_training(path)
            raise
        finally:
            if run_folder.n_forgotten > n_forgotten:  # while it ran: its checkpoints hold what the user taught
                clear_training(path)
            clear_empty(path, remove=is_new)


def _note_what_is_there(folder: RunFolder, *, force: bool) -> None:
    """So that a change by others is noticed when the training has ended. A damaged run is replaced by force alone."""
    try:
        folder.about = read_about(folder.path) if holds_a_run(folder.path) else {}
        n_added = folder.about.get("added_items", 0)
        if n_added:
            items_are = "item that was" if n_added == 1 else "items that were"
            message = f"{n_added:,} {items_are} added to the run in {folder.path} will be gone unless the data have them."
            warnings.warn(message, stacklevel=5)
    except DataError:
        if not force:
            raise
        folder.replaces_damage = True


def run_path(folder: str | Path) -> Path:
    """A path that was given for a run folder."""
    if not str(folder).strip() or str(folder) == "." or "\0" in str(folder):  # Path("") is the folder at hand
        raise OptionError(f"the run folder is {str(folder)!r}; give the path of a folder of its own, such as runs/first.")
    return Path(folder)


def _refuse(path: Path, *, resume: bool, force: bool) -> None:
    refuse_foreign_files(path)
    if force:
        return
    if holds_a_run(path):
        about = read_about(path)
        if resume and about["added_items"]:
            raise DataError(
                f"items were added to the run in {path} since it was trained, and going on would lose them; train in a new "
                "folder, or replace the run on purpose (--force with --resume)."
            )
        if resume and about["updates"]:
            raise DataError(
                f"the run in {path} was updated since it was trained, and going on would lose that; train in a new folder, or "
                "replace the run on purpose (--force with --resume)."
            )
        if not resume and about["interrupted"]:
            raise DataError(
                f"{path} holds a training that was interrupted; go on with --resume, replace it with --force, or choose a new "
                "folder."
            )
        if not resume:
            raise DataError(f"{path} holds a finished run; choose a new folder, or replace it with --force.")
    elif holds_a_training(path) and not resume:
        raise DataError(f"{path} holds a training that has not ended; go on with --resume, or begin anew with --force.")
