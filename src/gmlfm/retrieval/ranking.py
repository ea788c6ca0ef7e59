"""Exact top-n from scores: what is left out goes first, ties stay in the items' order, caps hold within the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
_FIRST_LOOK = 8


@dataclass(frozen=True)
class TopItems:
    """The best items of each user: items (N, n), -1 where fewer exist, and their scores."""

    items: Ints
    scores: Floats


@dataclass(frozen=True)
class Cap:
    """At most `most` of one group among the n: groups by item number, -1 for those without (each a group of its own)."""

    groups: Ints
    most: int


def best_items(scores: Floats, items: Ints, n: int, left_out: Sequence[Ints] = (), caps: Sequence[Cap] = ()) -> TopItems:
    """Exact top-n of (N, len(items)) scores; each row's `left_out` items are taken out first. Ties: earlier item first."""
    _take_out(scores, items, left_out)
    n = min(n, len(items))
    order = _capped(scores, items, n, caps) if caps else _first_n(scores, n)
    chosen = np.where(order < 0, -np.inf, np.take_along_axis(scores, np.maximum(order, 0), axis=1)).astype(np.float32)
    return TopItems(np.where(np.isneginf(chosen), -1, items[order]).astype(np.int32), chosen)


def _take_out(scores: Floats, items: Ints, left_out: Sequence[Ints]) -> None:
    if not any(len(one) for one in left_out):
        return
    gone = np.concatenate(list(left_out))
    rows = np.repeat(np.arange(len(left_out)), [len(one) for one in left_out])
    if len(gone) < len(items) and (items[1:] > items[:-1]).all():
        # A few items are looked up, so that one user of a large catalogue does not pay for an index of all of it.
        place = np.minimum(np.searchsorted(items, gone), len(items) - 1)
        there = items[place] == gone
    else:
        index = np.full(max(int(items.max()), int(gone.max())) + 1, -1)
        index[items] = np.arange(len(items))
        place = index[gone]
        there = place >= 0
    scores[rows[there], place[there]] = -np.inf


def _first_n(scores: Floats, n: int) -> npt.NDArray[np.int64]:
    """Places of the n largest of each row, largest first, ties by place: exact, without sorting the whole row."""
    whole = torch.from_numpy(scores)
    if n == scores.shape[1]:
        return torch.sort(whole, dim=1, descending=True, stable=True).indices.numpy()
    # One more than asked for shows whether the last place is shared; only such rows need a closer look.
    values, places = (one.numpy() for one in torch.topk(whole, n + 1, dim=1))
    order = np.lexsort((places[:, :n], -values[:, :n]), axis=1)
    result: npt.NDArray[np.int64] = np.take_along_axis(places[:, :n], order, axis=1)
    shared = np.flatnonzero((values[:, n - 1] == values[:, n]) & np.isfinite(values[:, n]))
    for row in shared:
        # Whatever is above the last place comes first, in the order found; of those that share it, the first by place.
        above = int((values[row, :n] > values[row, n]).sum())
        result[row, above:] = np.flatnonzero(scores[row] == values[row, n])[: n - above]
    return result


def _capped(scores: Floats, items: Ints, n: int, caps: Sequence[Cap]) -> npt.NDArray[np.int64]:
    """Walk each row from the best down and pass over what would exceed a cap; -1 where nothing is left.

    Taking the best item that every cap still allows, again and again, is what a cap means: no later choice can free a place.
    """
    result = np.full((len(scores), n), -1, np.int64)
    for row in range(len(scores)):
        looked_at = 0
        while looked_at < len(items):
            # Caps seldom reach deep into the ranking; where they do, more of it is put in order.
            looked_at = min(len(items), max(_FIRST_LOOK * n, _FIRST_LOOK * looked_at))
            found = _walked(scores[row], items, n, caps, _first_n(scores[row : row + 1], looked_at)[0])
            if len(found) == n:
                break
        result[row, : len(found)] = found
    return result


def _walked(scores: Floats, items: Ints, n: int, caps: Sequence[Cap], order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first n places of an order that every cap allows; fewer where it ends before."""
    taken: list[dict[int, int]] = [{} for _ in caps]
    found: list[int] = []
    for place in order:
        if len(found) == n or np.isneginf(scores[place]):
            break
        own = [int(cap.groups[items[place]]) for cap in caps]
        if any(group >= 0 and met.get(group, 0) >= cap.most for cap, met, group in zip(caps, taken, own, strict=True)):
            continue
        for met, group in zip(taken, own, strict=True):
            met[group] = met.get(group, 0) + 1
        found.append(int(place))
    return np.array(found, np.int64)
