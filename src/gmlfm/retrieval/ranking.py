"""Exact top-n from scores: what is left out goes first, ties stay in the items' order, caps hold within the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
DEFAULT_N = 10  # how long a list is, unless asked otherwise
_DEPTH_FACTOR = 8  # under caps, by how much the sorted part of a ranking exceeds n, and grows while it does not suffice


@dataclass(frozen=True)
class TopItems:
    """The best items of each user: items (N, n), -1 where fewer exist, and their scores."""

    items: Ints
    scores: Floats


@dataclass(frozen=True)
class Cap:
    """At most `most` items of a group among the n: groups by item number, -1 for items without, which are never capped.

    starts: where an item may be of several groups, those of item i are groups[starts[i] : starts[i + 1]]; it counts for each.
    """

    groups: Ints
    most: int
    starts: npt.NDArray[np.int64] | None = None

    def groups_of(self, item: int) -> list[int]:
        if self.starts is not None:
            groups: list[int] = self.groups[self.starts[item] : self.starts[item + 1]].tolist()
            return groups
        return [int(self.groups[item])] if self.groups[item] >= 0 else []


def best_items(scores: Floats, items: Ints, n: int, left_out: Sequence[Ints] = (), caps: Sequence[Cap] = ()) -> TopItems:
    """Exact top-n of (N, len(items)) scores; each row's `left_out` items are taken out first. Ties: earlier item first."""
    _take_out(scores, items, left_out)
    n = min(n, len(items))
    order = _capped(scores, items, n, caps) if caps else _first_n(scores, n)
    chosen = np.where(order < 0, -np.inf, np.take_along_axis(scores, np.maximum(order, 0), axis=1)).astype(np.float32)
    return TopItems(np.where(np.isneginf(chosen), -1, items[order]).astype(np.int32), chosen)


def _take_out(scores: Floats, items: Ints, left_out: Sequence[Ints]) -> None:
    lengths = [len(excluded) for excluded in left_out]
    if not any(lengths):
        return
    excluded_items = np.concatenate(list(left_out))
    rows = np.repeat(np.arange(len(left_out)), lengths)
    if len(excluded_items) < len(items) and (items[1:] > items[:-1]).all():
        # A few items are looked up, so that one user of a large catalogue does not pay for an index of all of it.
        columns = np.minimum(np.searchsorted(items, excluded_items), len(items) - 1)
        is_present = items[columns] == excluded_items
    else:
        column_of = np.full(max(int(items.max()), int(excluded_items.max())) + 1, -1)
        column_of[items] = np.arange(len(items))
        columns = column_of[excluded_items]
        is_present = columns >= 0
    scores[rows[is_present], columns[is_present]] = -np.inf


def _first_n(scores: Floats, n: int) -> npt.NDArray[np.int64]:
    """Places of the n largest of each row, largest first, ties by place: exact, without sorting the complete row."""
    tensor = torch.from_numpy(scores)
    if n == scores.shape[1]:
        return torch.sort(tensor, dim=1, descending=True, stable=True).indices.numpy()
    # One place more than n shows whether the last one is shared; only such rows need a closer look.
    values, places = (result.numpy() for result in torch.topk(tensor, n + 1, dim=1))
    order = np.lexsort((places[:, :n], -values[:, :n]), axis=1)
    result: npt.NDArray[np.int64] = np.take_along_axis(places[:, :n], order, axis=1)
    shared = np.flatnonzero((values[:, n - 1] == values[:, n]) & np.isfinite(values[:, n]))
    for row in shared:
        # Scores above the last one keep their order; of those that share the last score, the first by place are taken.
        above = int((values[row, :n] > values[row, n]).sum())
        result[row, above:] = np.flatnonzero(scores[row] == values[row, n])[: n - above]
    return result


def _capped(scores: Floats, items: Ints, n: int, caps: Sequence[Cap]) -> npt.NDArray[np.int64]:
    """Walk each row from the best down and pass over what would exceed a cap; -1 where nothing is left.

    Taking the best item that every cap still allows, again and again, is what a cap means: no later choice can free a place.
    """
    result = np.full((len(scores), n), -1, np.int64)
    for row in range(len(scores)):
        depth = 0
        while depth < len(items):
            # Caps seldom reach deep into the ranking; where they do, more of it is put in order.
            depth = min(len(items), max(_DEPTH_FACTOR * n, _DEPTH_FACTOR * depth))
            chosen = _allowed(scores[row], items, n, caps, _first_n(scores[row : row + 1], depth)[0])
            if len(chosen) == n:
                break
        result[row, : len(chosen)] = chosen
    return result


def _allowed(scores: Floats, items: Ints, n: int, caps: Sequence[Cap], order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first n places of an order that every cap allows; fewer where it ends before."""
    counts: list[dict[int, int]] = [{} for _ in caps]
    chosen: list[int] = []
    for place in order:
        if len(chosen) == n or np.isneginf(scores[place]):
            break
        groups = [cap.groups_of(int(items[place])) for cap in caps]
        if any(
            count.get(group, 0) >= cap.most
            for cap, count, of_item in zip(caps, counts, groups, strict=True)
            for group in of_item
        ):
            continue
        for count, of_item in zip(counts, groups, strict=True):
            for group in of_item:
                count[group] = count.get(group, 0) + 1
        chosen.append(int(place))
    return np.array(chosen, np.int64)
