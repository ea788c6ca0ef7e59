"""A run folder as one process knows it: what it read or wrote there last, and what others did to it since.

Writers take turns. Sold, back, forget and what users were observed to do are recorded in the event log and hold whatever else
happens to the folder; every other change is refused where somebody else changed the run in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gmlfm.data.forgetting import names
from gmlfm.errors import DataError
from gmlfm.fitting import FittedRun
from gmlfm.fitting.forgetting import without_user, without_users
from gmlfm.locking import LockedError
from gmlfm.models.base import Model
from gmlfm.runs.description import read_about
from gmlfm.runs.event_lines import BACK, FORGOT, SOLD, Event, ObservedRow
from gmlfm.runs.events import EventLog, forgetting_of, forgotten_users, last_number, marks_of
from gmlfm.runs.generation import load_run, save_run
from gmlfm.runs.layout import (
    ABOUT,
    EVENTS,
    OLD_MODEL,
    OLD_STOCK,
    REPORT,
    clear_rests,
    clear_training,
    holds_a_run,
    holds_a_training,
    refuse_foreign_files,
    rests,
)
from gmlfm.runs.locking import training_lock, writers_lock
from gmlfm.storage import write_text


class RunFolder:
    """path: absolute, so that a change of the working folder does not hide what was written.

    about: run.json as it was last read or written here, {} before that; model: the class of a run whose model has no name.
    """

    def __init__(self, path: Path, model: type[Model] | str | None = None) -> None:
        self.path, self.model = path.absolute(), model
        self.about: dict[str, Any] = {}
        self.replaces_damage = False  # a run that cannot be read any more, which a training was told to replace
        self._log = EventLog(self.path / EVENTS)
        self._seen: tuple[tuple[int, ...], str] | None = None  # run.json as a file, and its check
        self._marks: tuple[list[Event], dict[str, str]] = [], {}

    def twin(self) -> RunFolder:
        """The same folder, for somebody who reads and writes it independently; what was read of the log is shared."""
        other = RunFolder(self.path, self.model)
        other.about, other.replaces_damage, other._log = self.about, self.replaces_damage, self._log
        return other

    def load(self) -> FittedRun:
        """The run as it is now, without the users who were forgotten; what a death left behind is cleared."""
        run, about = load_run(self.path, self.model)
        events = self._log.events()  # after the run: who is forgotten in between is in this list
        forgotten = forgotten_users(events, run.encoder.user_ids, since=int(about["replayed"]))
        run = without_users(run, forgotten)
        self.about = about
        if forgotten or rests(self.path, str(about["generation"])):
            with suppress(DataError):  # a folder that cannot be written now is cleared by the next one who can
                self._finish_what_was_begun(run, str(about["check"]), events if forgotten else None)
        return run

    def marks(self) -> dict[str, str]:
        """By item: was it marked sold or back last? Not to be changed."""
        events = self._events()
        if not events or len(events) != len(self._marks[0]) or events[-1] is not self._marks[0][-1]:
            self._marks = events, marks_of(events)
        return self._marks[1]

    def mark(self, items: list[str], kind: str) -> dict[str, str]:
        """Record items as sold or back; returns all marks, others' included. It is on the disk then."""
        assert kind in (SOLD, BACK)
        with writers_lock(self.path):
            self._keep_old_marks()
            return marks_of(self._log.append({"kind": kind, "items": items}))

    def observed(self) -> list[ObservedRow]:
        """What users were observed to do, others' rows included (see EventLog.observed)."""
        return self._log.observed()

    @contextmanager
    def held_log(self) -> Iterator[EventLog]:
        """The event log, to be appended to in the block, while no other process writes."""
        if not holds_a_run(self.path):
            raise DataError(f"{self.path} holds no run any more; load another one, or save this one again.")
        with writers_lock(self.path):
            self._keep_old_marks()
            yield self._log

    @contextmanager
    def held_for_update(self) -> Iterator[None]:
        """While no other training works in the folder; refused where its run is another one than was read or written here."""
        with training_lock(self.path):
            if not self.is_current():
                raise DataError(f"{self.path} was changed by somebody else since it was read here; load it again.")
            yield

    def withdraw(self, rows: Sequence[ObservedRow]) -> None:
        """These observed rows leave the log."""
        with self.held_log() as log:
            write_text(log.path, log.text_without_rows(rows))

    def is_current(self) -> bool:
        """Whether the run is the one that was read or written here last."""
        try:
            file = (self.path / ABOUT).stat()
        except OSError:
            return bool(read_about(self.path)["check"] == self.about.get("check"))
        # run.json is never written to, only replaced: one that is the same file has the same content.
        same = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns)
        if self._seen is None or self._seen[0] != same:
            self._seen = same, str(read_about(self.path)["check"])
        return self._seen[1] == self.about.get("check")

    def save(
        self,
        run: FittedRun,
        *,
        marks: Mapping[str, str] | None = None,
        observed: Sequence[ObservedRow] = (),
        origin: RunFolder | None = None,
        learned: Sequence[ObservedRow] = (),
        forgotten: Sequence[Event] = (),
        force: bool = False,
    ) -> FittedRun:
        """Make it the folder's run; returns it without the users who were forgotten there in the meantime.

        marks, observed, origin: what was marked and observed, and the folder where users were forgotten, of a run that comes
        from elsewhere. learned: observed rows that are part of the run's data now, and leave the log with this. forgotten:
        events of who was forgotten while the run had no folder.
        Refused where the folder holds a run that is not the one that was read or written here last, unless it is forced.
        """
        if not holds_a_run(self.path):
            refuse_foreign_files(self.path)
        with writers_lock(self.path):
            if holds_a_run(self.path) and not force and not self.replaces_damage:
                self._refuse_others()
            self._keep_old_marks()
            self._take_over(marks or {}, observed, forgotten if origin is None else origin._log.events())
            events = self._log.events()
            run = without_users(run, forgotten_users(events, run.encoder.user_ids))
            # A death in between leaves them in both, which loses none.
            after = {self._log.path: self._log.text_without_rows(learned)} if learned else None
            self.about = save_run(run, self.path, replayed=last_number(events), after=after)
            self.replaces_damage = False
        return run

    def forget(self, user: Any, run: FittedRun | None) -> bool:
        """Take a user out of the folder: its run, its events, its checkpoints. Returns whether it had them.

        run: the folder's run as this process holds it, if it does; it is used where nobody else changed the folder since. A
        write that fails leaves everything as it was.
        """
        if not holds_a_run(self.path) and not holds_a_training(self.path):
            return False
        with writers_lock(self.path):
            if not holds_a_run(self.path):
                new_text, _ = self._log.text_without(str(user))
                write_text(self._log.path, new_text)
                self._forget_in_training(str(user))
                return False
            self._keep_old_marks()
            about = read_about(self.path)
            if run is None or about["check"] != self.about.get("check"):
                run, about = load_run(self.path, self.model)
            pending = forgotten_users(self._log.events(), run.encoder.user_ids, since=int(about["replayed"]))
            run = without_users(run, pending)
            user = run.encoder.texts_of([user])[0]
            is_known = run.encoder.user_numbers([user])[0] >= 0
            if not is_known and all(row[0] != user for row in self._log.observed()):
                return False
            text, events = self._log.text_without(user)
            if not is_known:
                write_text(self._log.path, text)
                self._forget_in_training(user)
                return True
            is_current = about["check"] == self.about.get("check")
            about = save_run(
                without_user(run, user),
                self.path,
                version=about["version"],
                replayed=last_number(events),
                also={self._log.path: text},
                is_urgent=True,
            )
            if is_current:
                self.about = about
            self._forget_in_training(user)
        return True

    @property
    def n_forgotten(self) -> int:
        return sum(event["kind"] == FORGOT for event in self._log.events())

    def forgotten_among(self, ids: Iterable[str]) -> list[str]:
        """Which of these users were forgotten in this folder: a new training leaves them out."""
        return forgotten_users(self._log.events(), ids)

    def _take_over(self, marks: Mapping[str, str], observed: Sequence[ObservedRow], others: Sequence[Event]) -> None:
        here = self._log.events()
        # A log that has begun has a salt of its own, to which another's hashes mean nothing.
        events = [] if here else forgetting_of(others)
        events += _as_events({item: kind for item, kind in marks.items() if marks_of(here).get(item) != kind})
        if events:
            self._log.append(*events)
        recorded = set(self._log.observed()) if observed else set()
        forgotten = set(forgotten_users(self._log.events(), {row[0] for row in observed}))
        rows = [row for row in observed if row not in recorded and row[0] not in forgotten]
        if rows:
            self._log.append_observed(rows)

    def _refuse_others(self) -> None:
        version = read_about(self.path)["version"]
        if not self.about:
            raise DataError(f"{self.path} holds another run; choose a new folder, or replace it on purpose (force).")
        if version != self.about["version"]:
            raise DataError(
                f"{self.path} was changed by somebody else since it was read here; load it again, or replace it on purpose "
                "(force)."
            )

    def _finish_what_was_begun(self, run: FittedRun, check: str, events: list[Event] | None) -> None:
        """events: those that the run on the disk does not have in it yet."""
        with writers_lock(self.path, seconds=0.0):
            about = read_about(self.path)
            if about["check"] != check:
                return
            if events is not None:
                n = last_number(events)
                self.about = save_run(run, self.path, version=about["version"], replayed=n, is_urgent=True)
                return
            clear_rests(self.path, about["generation"])

    def _forget_in_training(self, user: str) -> None:
        """An optimiser's state remembers every user. A training that runs at the moment clears its own when it ends."""
        with suppress(LockedError), training_lock(self.path):
            clear_training(self.path)
        report = self.path / REPORT
        if report.is_file() and not report.is_symlink() and names(report.read_text(encoding="utf-8", errors="replace"), user):
            report.unlink()

    def _events(self) -> list[Event]:
        return self._log.events() or [{"kind": kind, "items": items} for kind, items in _old_marks(self.path)]

    def _keep_old_marks(self) -> None:
        """Formats 2 and 3 had the marks in the generation itself, which is about to be replaced."""
        old = _old_marks(self.path)
        if old and not self._log.events():
            self._log.append(*({"kind": kind, "items": items} for kind, items in old))


def _as_events(marks: Mapping[str, str]) -> list[Event]:
    kinds = {kind: [item for item, last in marks.items() if last == kind] for kind in (SOLD, BACK)}
    return [{"kind": kind, "items": items} for kind, items in kinds.items() if items]


def _old_marks(folder: Path) -> list[tuple[str, list[str]]]:
    """The marks of formats 2 and 3, a line each; a last line cut short by a crash does not count."""
    path = folder / OLD_MODEL / OLD_STOCK
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}).") from error
    marks: list[tuple[str, list[str]]] = []
    for number, text in enumerate(texts, start=1):
        try:
            kind, items = json.loads(text) if text else (SOLD, [])
            if kind not in (SOLD, BACK) or not isinstance(items, list) or not all(isinstance(item, str) for item in items):
                raise ValueError(kind)
        except (ValueError, TypeError, RecursionError) as error:
            if number == len(texts):
                break
            raise DataError(f"{path} is damaged in line {number} ({error}).") from error
        marks += [(kind, items)] if items else []
    return marks
