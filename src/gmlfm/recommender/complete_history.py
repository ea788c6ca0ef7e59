"""All that users did: what the data have of them, and what they were observed to do since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.histories import History
from gmlfm.models.base import UserSide
from gmlfm.recommender.observed import Observed
from gmlfm.recommender.user_side import known_users


def complete_history(observed: Observed, users: Sequence[Any], numbers: npt.NDArray[np.integer[Any]]) -> History | None:
    """In the order of time, what the data have before what was observed at the same time; None where the model reads none.

    users, numbers: the caller's ids and the data's numbers of these users, -1 for whom the data do not have.
    """
    run = observed.index.run
    if not run.model.reads_history:
        return None
    history = run.histories.complete(numbers)
    texts = run.encoder.texts_of(list(users)) if observed.n else []
    if not any(text in observed for text in texts):
        return history
    kinds = run.data.schema.interactions.history_events
    by_user = []
    for place, (text, number) in enumerate(zip(texts, numbers.tolist(), strict=True)):
        items = history.of_user(place)
        if text in observed:
            times = run.histories.times_of(number)
            after = times[-1].item() if len(times) else None
            rows = _not_in_data(observed.of(text, after=after, events=kinds), items, times)
            items = _merged(items, times, rows)
        by_user.append(items)
    return History.of(by_user)


def asked_users(observed: Observed, users: Sequence[Any], context: Mapping[str, Any] | None) -> UserSide:
    """The user side of some users by the caller's ids, with all that they did."""
    run = observed.index.run
    numbers = run.encoder.user_numbers(users)
    return known_users(run, numbers, context, complete_history(observed, users, numbers))


def _not_in_data(
    rows: Sequence[tuple[int, Any]], items: npt.NDArray[np.int32], times: npt.NDArray[Any]
) -> list[tuple[int, Any]]:
    """Rows that a newer export of the data has, too, count once."""
    known = set(zip(items.tolist(), times.tolist(), strict=True)) if len(times) else set()
    return [row for row in rows if row not in known]


def _merged(items: npt.NDArray[np.int32], times: npt.NDArray[Any], rows: Sequence[tuple[int, Any]]) -> npt.NDArray[np.int32]:
    """The observed rows among the data's, each behind what is not later than it; without times behind all."""
    places = [
        len(items) if time is None or not len(times) else int(np.searchsorted(times, time, side="right")) for _, time in rows
    ]
    return np.insert(items, places, [item for item, _ in rows]).astype(np.int32)
