"""Who was forgotten, and data without them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gmlfm.data.dataset import Dataset
from gmlfm.data.forgetting import data_without
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError
from gmlfm.runs import RunFolder
from gmlfm.runs.event_lines import Event
from gmlfm.runs.events import forgotten_users


@dataclass(frozen=True)
class Forgotten:
    """folder: where users were forgotten; events: of who was forgotten where there was none, their ids as salted hashes."""

    folder: RunFolder | None
    events: Sequence[Event] = ()

    def among(self, ids: Iterable[str]) -> list[str]:
        ids = list(ids)
        in_folder = [] if self.folder is None else self.folder.forgotten_among(ids)
        return list(dict.fromkeys([*in_folder, *forgotten_users(self.events, ids)]))

    def left_out_of(self, data: Dataset | PreparedData) -> Dataset | PreparedData:
        """The data without these users, which is told."""
        if isinstance(data, PreparedData):
            if self.folder is not None and self.folder.forgotten_among(data.side("users")["id"]):
                raise DataError(
                    f"{data.folder} holds users who were forgotten in {self.folder.path}; prepare the data anew without them, "
                    "or train in a new folder."
                )
            return data
        forgotten = set(self.among(data.users.ids))
        if not forgotten:
            return data
        numbers = [number for number, user in enumerate(data.users.ids) if user in forgotten]
        noun = "user who was forgotten" if len(numbers) == 1 else "users who were forgotten"
        rest = "will be left out of the training; to train on all, fit anew"
        if self.folder is not None:
            rest = f"in {self.folder.path} will be left out of its training; to train on all, take a new folder"
        warnings.warn(f"{len(numbers):,} {noun} {rest}.", stacklevel=3)
        return data_without(data, numbers)[0]
