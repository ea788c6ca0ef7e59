"""All that users did: what the data have of them, and what they were observed to do since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    kinds, shares_times = run.data.schema.interactions.history_events, run.data.schema.interactions.ties == "strict"
    by_user, is_later = [], []
    for place, (text, number) in enumerate(zip(texts, numbers.tolist(), strict=True)):
        items, new = history.of_user(place), history.is_later(place)
        if text in observed:
            times = run.histories.times_of(number)
            after = times[-1].item() if len(times) else None
            rows = _not_in_data(observed.of(text, after=after, events=kinds), items, times)
            places = _places(items, times, rows)
            new = np.insert(
                new, places, [_is_later(row, n, rows, places, times) or not shares_times for n, row in enumerate(rows)]
            )
            items = np.insert(items, places, [item for item, _ in rows]).astype(np.int32)
        by_user.append(items)
        is_later.append(new)
    return replace(History.of(by_user), order=np.cumsum(np.concatenate([np.empty(0, bool), *is_later])))


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


def _places(items: npt.NDArray[np.int32], times: npt.NDArray[Any], rows: Sequence[tuple[int, Any]]) -> list[int]:
    """Of the observed rows among the data's: behind what is not later than each; without times behind all."""
    return [
        len(items) if time is None or not len(times) else int(np.searchsorted(times, time, side="right")) for _, time in rows
    ]


def _is_later(
    row: tuple[int, Any], number: int, rows: Sequence[tuple[int, Any]], places: Sequence[int], times: npt.NDArray[Any]
) -> bool:
    """Whether an observed row is later than the row before it, of the data or observed; one without a time is."""
    place, time = places[number], row[1]
    if number and places[number - 1] == place:
        return time is None or rows[number - 1][1] != time
    return time is None or not len(times) or place == 0 or times[place - 1].item() != time
