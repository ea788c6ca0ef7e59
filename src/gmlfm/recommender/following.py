"""What users were observed to do, as the log of a run's folder has it."""

from __future__ import annotations

from gmlfm.errors import DataError
from gmlfm.recommender.observed import Observed
from gmlfm.runs import RunFolder
from gmlfm.runs.event_lines import ObservedRow


def following(observed: Observed, folder: RunFolder, log: list[ObservedRow]) -> Observed:
    """With what has come into the folder's log since it was followed last.

    A log that was written anew goes with the run that stands in the folder now. Where that is another one than is held here,
    rows that left the log are part of its data, not of these, and stay; those of users who were forgotten go.
    """
    if observed.follows(log) or _is_current(folder):
        return observed.following(log)
    return observed.beside(log, folder.forgotten_among(observed.users()))


def _is_current(folder: RunFolder) -> bool:
    try:
        return folder.is_current()
    except DataError:  # no run stands there any more
        return False
