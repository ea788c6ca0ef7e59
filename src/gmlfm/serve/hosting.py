"""The run that is served: loaded, followed, replaced as a whole."""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gmlfm.errors import DataError, GmlfmError, printable
from gmlfm.recommender import Recommender
from gmlfm.recommender.observing import ObserveReport
from gmlfm.runs.description import read_about
from gmlfm.runs.layout import ABOUT, EVENTS
from gmlfm.serve.catalogue import Catalogue
from gmlfm.serve.notes import noted
from gmlfm.serve.problems import Problem

_Mark = tuple[int, int, int] | None
_TRIES = 3
_FEW_ITEMS = 20_000


@dataclass(frozen=True, eq=False)
class Served:
    """A run and its stamp. An answer is made from one of these, so that it is never of two runs: what is observed and marked
    changes in its recommender, the run never."""

    recommender: Recommender
    stamp: Mapping[str, str]
    catalogue: Catalogue


@dataclass(eq=False)
class Waiting:
    """Rows that wait to be observed, and then what came of them."""

    rows: Sequence[Mapping[str, Any]]
    notes: list[str] = field(default_factory=list)
    report: ObserveReport | None = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.report is not None or self.error is not None


class Host:
    """A served run. folder: where it lies; None for a Recommender that was never saved.

    Whoever asks takes `current()` once. Changes of the run itself are made to a twin, which then takes its place.
    """

    def __init__(self, name: str, recommender: Recommender, folder: Path | None, model: Any = None, mark: _Mark = None) -> None:
        self.name, self.folder = name, folder
        self.problem: str | None = None  # why the folder as it is now is not what is served
        self._model = model
        self._following, self._replacing = threading.Lock(), threading.Lock()
        self._waiting: deque[Waiting] = deque()
        self._log_is_read = True
        # Together, so that nobody takes one run for another that was followed so far. mark: of the log, as it was followed.
        self._now: tuple[Served, _Mark] = self._of(recommender), mark

    @classmethod
    def load(cls, name: str, folder: Path, model: Any = None) -> Host:
        mark = _mark_of(folder)  # before the run: what comes in between is followed
        return cls(name, Recommender.load(folder, model), folder, model, mark)

    @classmethod
    def over(cls, name: str, recommender: Recommender) -> Host:
        """A run that its owner goes on using. Where it has a folder they meet there, and neither changes the other's."""
        folder = recommender.folder
        return cls(name, recommender if folder is None else recommender.twin(), folder, recommender.model_class)

    def _of(self, recommender: Recommender) -> Served:
        about = recommender.about
        stamp = {"name": self.name, "generation": str(about.get("generation", "")), "check": str(about.get("check", ""))[:16]}
        return Served(recommender, stamp, Catalogue(recommender.observed.index))

    @property
    def served(self) -> Served:
        """Without a look at the folder."""
        return self._now[0]

    def current(self) -> Served:
        """With all that others have observed, marked and forgotten by now: a look at the log's size and time, mostly."""
        served, followed = self._now
        if self.folder is None:
            return served
        mark = _mark_of(self.folder)
        return served if mark is None or mark == followed else self._followed(self.folder)

    def quick(self) -> Served | None:
        """What `current` gives, where nothing is to be followed first and the items are so few, and scored by one product, that
        a list for one user is made in a fraction of a millisecond."""
        served, followed = self._now
        run = served.recommender.fitted
        if len(run.data.items) > _FEW_ITEMS or run.model.item_vector_width is None:
            return None
        mark = None if self.folder is None else _mark_of(self.folder)
        return served if mark is None or mark == followed else None

    def _followed(self, folder: Path) -> Served:
        with self._following:
            served, followed = self._now
            mark = _mark_of(folder)
            if mark is None or mark == followed:
                return served
            try:
                if not served.recommender.follow(keep_run=True):
                    # Answers that are being made, and the catalogue, hold numbers of users: the run of a Served never changes.
                    changed = served.recommender.twin()
                    changed.follow()
                    served = self._of(changed)
                self._log_is_read = True
            except GmlfmError:
                self._log_is_read = False
            self._now = served, mark
            return served

    def reload(self) -> bool:
        """Take the folder's run, if it is another one; whether it is. Where it cannot be read, what is served stays."""
        if self.folder is None:
            return False
        with self._replacing:
            try:
                about = read_about(self.folder)
                if about["check"] == self.served.recommender.about.get("check"):
                    self.problem = None
                    return False
                self._replace(Recommender.load(self.folder, self._model))
            except GmlfmError as error:
                self.problem = str(error)
                raise Problem(
                    503, f"{self.without_path(str(error))} The run that was loaded before is still served."
                ) from error
            return True

    def _replace(self, recommender: Recommender) -> None:
        """Ready first, then in its place; what came to the log in between is followed with the next question."""
        served = self._of(recommender)
        warm(served)
        with self._following:
            self._now, self.problem = (served, None), None

    def wait_to_observe(self, rows: Sequence[Mapping[str, Any]]) -> Waiting:
        waiting = Waiting(rows)
        self._waiting.append(waiting)
        return waiting

    def observe(self, waiting: Waiting) -> ObserveReport:
        """These rows and all that wait by now, unless others took these with them: making a hundred rows durable takes as long
        as making one. Each is refused by itself. In the writing thread alone."""
        if not waiting.is_done:
            self._observe([self._waiting.popleft() for _ in range(len(self._waiting))])
        if waiting.error is not None:
            raise waiting.error
        assert waiting.report is not None
        return waiting.report

    def _observe(self, together: Sequence[Waiting]) -> None:
        with self._alone():
            self._observe_by(self.served.recommender, together)

    def _observe_by(self, recommender: Recommender, together: Sequence[Waiting]) -> None:
        accepted = []
        for waiting in together:
            try:
                with noted() as waiting.notes:
                    accepted.append((waiting, recommender.rows_to_observe(list(waiting.rows))))
            except Exception as error:
                waiting.error = error
        try:
            self._need_folder()
            reports = recommender.observe_each([rows for _, rows in accepted])
        except Exception as error:
            for waiting, _ in accepted:
                waiting.error = error
            return
        for (waiting, _), report in zip(accepted, reports, strict=True):
            waiting.report = report

    def mark(self, sold: list[Any], back: list[Any]) -> None:
        with self._alone():
            self._mark_by(self.current().recommender, sold, back)

    def _mark_by(self, recommender: Recommender, sold: list[Any], back: list[Any]) -> None:
        numbers = recommender.fitted.encoder.item_numbers([*sold, *back])  # all are known, or none is marked
        if (numbers < 0).any():
            unknown = [*sold, *back][int((numbers < 0).argmax())]
            raise DataError(f"the item '{unknown}' is not in the catalogue; nothing was marked.")
        self._need_folder()
        if sold:
            recommender.mark_sold(sold)
        if back:
            recommender.mark_back(back)

    def forget(self, user: Any) -> None:
        self._need_folder()
        with self._replacing:
            changed = self.served.recommender.twin()
            with noted() as notes:
                changed.forget(user)
            self._replace(changed)
        if notes:  # they name other folders of this machine, where the owner of the run saved it
            noun = "another folder" if len(notes) == 1 else f"{len(notes)} other folders"
            warnings.warn(
                f"{noun} that the run was saved in could not be changed, may still hold the user and should be deleted.",
                stacklevel=2,
            )

    def add_items(self, table: Any) -> None:
        """To the folder's run as it is now, which is served from then on."""
        self._need_folder()
        with self._replacing:
            for left in reversed(range(_TRIES)):
                changed = self._newest()
                changed.add_items(table)
                try:
                    if self.folder is not None:
                        changed.save(self.folder)
                    break
                except DataError:  # another worker was first
                    if not left or read_about(self.folder)["check"] == changed.about["check"]:  # type: ignore[arg-type]
                        raise
            self._replace(changed)

    def _newest(self) -> Recommender:
        recommender = self.served.recommender
        if self.folder is None or read_about(self.folder)["check"] == recommender.about.get("check"):
            return recommender.twin()
        return Recommender.load(self.folder, self._model)

    def is_about_folder(self, text: str) -> bool:
        """Whether an error is of the folder, which is no fault of who asked: it begins with what it is about."""
        return self.folder is not None and text.lstrip("'\"").startswith(printable(str(self.folder)))

    def without_path(self, text: str) -> str:
        """Where the folder lies is nobody's business who asks from elsewhere."""
        return text if self.folder is None else text.replace(printable(str(self.folder)), self.name)

    def _alone(self) -> AbstractContextManager[Any]:
        """What is kept in memory would be lost where a twin takes the run's place meanwhile; a folder has it in its log."""
        return self._replacing if self.folder is None else nullcontext()

    def _need_folder(self) -> None:
        if self.folder is not None and not (self.folder / ABOUT).exists():
            raise Problem(
                503, f"the folder of the run '{self.name}' is gone, so nothing can be kept; what was loaded is served."
            )

    def check(self) -> str | None:
        """What is wrong with the folder as it is now, which is not what is served; None where all is well."""
        if self.folder is None:
            return None
        try:
            about = read_about(self.folder)
        except GmlfmError:
            return f"the folder of the run '{self.name}' is gone or damaged; the run that was loaded is served."
        if self.problem is not None and about["check"] != self.served.recommender.about.get("check"):
            return f"the folder of the run '{self.name}' holds a run that cannot be read; the one loaded before is served."
        if not self._log_is_read:
            return f"the log of events of the run '{self.name}' cannot be read; what was read of it before counts."
        return None


def warm(served: Served) -> None:
    """What the first question would wait for."""
    run = served.recommender.fitted
    users = run.data.users.ids.head(1).to_list() or ["nobody"]
    try:
        served.recommender.recommend(users, n=1)
    except GmlfmError:  # everything is sold, say: the asker will be told
        pass
    served.catalogue.warm()


def _mark_of(folder: Path) -> _Mark:
    """Of the log of events: changed by every line, and by its being written anew. None where there is none."""
    try:
        status = os.stat(folder / EVENTS)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
