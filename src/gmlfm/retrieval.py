"""Scores and exact top-n over the catalogue, from a model, its table and encoded attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.batches import asking_of
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.errors import DataError
from gmlfm.models.base import Attributes, Model

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
_PAIRS_A_BLOCK = 20_000  # their gathered factors should stay near the processor
_NUMBERS_A_BLOCK = 64_000_000  # of precomputed item vectors held at a time


@dataclass(frozen=True)
class TopItems:
    """The best items of each user: items (N, n), -1 where fewer exist, and their scores."""

    items: Ints
    scores: Floats


class Scores(Protocol):
    """What evaluating needs of a model of any kind: scores of users by number."""

    def pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """users (N,), items (N, G) -> (N, G). rows: the interactions whose context applies."""

    def everything(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """(N, len(items)): every user against each of the items."""


class Answers(Scores, Protocol):
    """And what recommending needs beside: scores for somebody by attributes."""

    def everything_for(
        self, asking: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        """The same for users given by their attributes, seen or not. users: their numbers where known, -1 where not;
        history: the items of a newcomer."""


class Scorer:
    """Scores from a model, its table of rows and encoded attributes."""

    def __init__(
        self,
        model: Model,
        table: Tensor,
        encoded: Encoded,
        field_of_row: npt.NDArray[np.int16] | None = None,
        label_scale: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        """label_scale: centre and spread of the labels that the model was trained on, to give scores in their units."""
        self._model, self._table, self.encoded, self._label_scale = model, table, encoded, label_scale
        self._field_of_row = field_of_row if model.needs_fields else None

    def over(self, encoded: Encoded) -> Scorer:
        """The same model over other data."""
        return Scorer(self._model, self._table, encoded, self._field_of_row, self._label_scale)

    @cached_property
    def _rows(self) -> Tensor:
        return self._model.ready(self._table)

    def pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return self.pairs_for(asking_of(self.encoded, users, rows), items)

    def everything(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return self.everything_for(asking_of(self.encoded, users, rows), items)

    def everything_for(
        self, asking: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        if not self._model.decomposes:
            return self.pairs_for(asking, np.broadcast_to(items, (len(asking), len(items))))
        result = np.empty((len(asking), len(items)), np.float32)
        with self._quiet():
            user = self._model.sides(self._rows, self._attributes(asking.ids, asking.values), asking=True)
            step = max(1, _NUMBERS_A_BLOCK // user.vector.shape[1])
            for start in range(0, len(items), step):
                part = slice(start, start + step)
                attributes = self._attributes(self.encoded.item.ids[items[part]], self.encoded.item.values[items[part]])
                item = self._model.sides(self._rows, attributes, asking=False)
                scores = user.own.unsqueeze(1) + item.own.unsqueeze(0) + user.vector @ item.vector.T
                result[:, part] = scores.cpu().numpy()
        return self._in_units(result)

    def pairs_for(self, asking: AttributeTable, items: Ints) -> Floats:
        result = np.empty(items.shape, np.float32)
        step = max(1, _PAIRS_A_BLOCK // max(items.shape[1], 1))
        with self._quiet():
            for start in range(0, len(items), step):
                part = slice(start, start + step)
                answering = self._attributes(self.encoded.item.ids[items[part]], self.encoded.item.values[items[part]])
                scores = self._model.scores(self._rows, self._attributes(asking.ids[part], asking.values[part]), answering)
                result[part] = scores.cpu().numpy()
        return self._in_units(result)

    def _in_units(self, scores: Floats) -> Floats:
        centre, spread = self._label_scale
        return _finite(scores if (centre, spread) == (0.0, 1.0) else scores * np.float32(spread) + np.float32(centre))

    def _attributes(self, ids: npt.NDArray[np.int32], values: Floats) -> Attributes:
        device = self._table.device
        x = torch.from_numpy(np.array(values, dtype=np.float32))  # a copy: tables may be read-only
        fields = None
        if self._field_of_row is not None:
            fields = torch.from_numpy(self._field_of_row[ids].astype(np.int64)).to(device)
        return Attributes(torch.from_numpy(ids.astype(np.int64)).to(device), x.to(device), fields)

    def _quiet(self) -> torch.no_grad:
        self._model.eval()
        return torch.no_grad()


class Renumbered:
    """Scores of a counted model for other data: its users and items by the numbers the model knows, -1 for the unknown."""

    def __init__(self, scores: Answers, users: Ints, items: Ints) -> None:
        self._scores, self._users, self._items = scores, users, items

    def pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        known = self._items[items]
        return np.where(known >= 0, self._scores.pairs(self._users[users], np.maximum(known, 0)), 0.0).astype(np.float32)

    def everything(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        known = self._items[items]
        found = self._scores.everything(self._users[users], np.maximum(known, 0))
        return np.where(known >= 0, found, 0.0).astype(np.float32)

    def everything_for(
        self, asking: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        known = self._items[items]
        mapped = None if users is None else np.where(users >= 0, self._users[users], -1)
        found = self._scores.everything_for(asking, np.maximum(known, 0), mapped, history)
        return np.where(known >= 0, found, 0.0).astype(np.float32)


def best_items(scores: Floats, items: Ints, n: int, left_out: Sequence[Ints]) -> TopItems:
    """Exact top-n of (N, len(items)) scores; each row's `left_out` items are taken out first. Ties: earlier item first."""
    largest = max([int(items.max(initial=-1)), *(int(one.max(initial=-1)) for one in left_out)])
    place = np.full(largest + 1, -1)
    place[items] = np.arange(len(items))
    for at, gone in enumerate(left_out):
        known = place[gone]
        scores[at, known[known >= 0]] = -np.inf
    order = _first_n(scores, min(n, len(items)))
    chosen = np.take_along_axis(scores, order, axis=1)
    return TopItems(np.where(np.isneginf(chosen), -1, items[order]).astype(np.int32), chosen)


def _first_n(scores: Floats, n: int) -> npt.NDArray[np.int64]:
    """Places of the n largest of each row, largest first, ties by place: exact, without sorting the whole row."""
    if n < scores.shape[1]:
        threshold = -np.partition(-scores, n - 1, axis=1)[:, n - 1 : n]
        above = scores > threshold
        # Of those that tie at the threshold, the first ones fill up.
        tied = scores == threshold
        room = n - above.sum(axis=1, keepdims=True)
        kept = above | (tied & (np.cumsum(tied, axis=1) <= room))
        places = np.nonzero(kept)[1].reshape(len(scores), n)
    else:
        places = np.broadcast_to(np.arange(n), (len(scores), n))
    order = np.argsort(-np.take_along_axis(scores, places, axis=1), axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1)


def _finite(scores: Floats) -> Floats:
    """NaN must never look like a ranking."""
    if not np.isfinite(scores).all():
        raise DataError(
            "the model gives scores that are no numbers; it was trained with too high an lr, or its file is damaged."
        )
    return scores
