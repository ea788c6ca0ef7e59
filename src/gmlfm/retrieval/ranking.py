"""Exact top-n from scores: what is left out goes first, ties stay in the items' order, caps hold within the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


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
    place = np.full(max(int(items.max()), int(gone.max())) + 1, -1)
    place[items] = np.arange(len(items))
    there = place[gone] >= 0
    scores[rows[there], place[gone[there]]] = -np.inf


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
    if len(shared):
        result[shared] = torch.sort(whole[shared], dim=1, descending=True, stable=True).indices[:, :n].numpy()
    return result


def _capped(scores: Floats, items: Ints, n: int, caps: Sequence[Cap]) -> npt.NDArray[np.int64]:
    """Walk each row from the best down and pass over what would exceed a cap; -1 where nothing is left.

    Taking the best item that every cap still allows, again and again, is what a cap means: no later choice can free a place.
    """
    result = np.full((len(scores), n), -1, np.int64)
    for row in range(len(scores)):
        order = torch.sort(torch.from_numpy(scores[row]), descending=True, stable=True).indices.numpy()
        taken: list[dict[int, int]] = [{} for _ in caps]
        filled = 0
        for place in order:
            if filled == n or np.isneginf(scores[row, place]):
                break
            own = [int(cap.groups[items[place]]) for cap in caps]
            if any(group >= 0 and met.get(group, 0) >= cap.most for cap, met, group in zip(caps, taken, own, strict=True)):
                continue
            for met, group in zip(taken, own, strict=True):
                met[group] = met.get(group, 0) + 1
            result[row, filled] = place
            filled += 1
    return result
