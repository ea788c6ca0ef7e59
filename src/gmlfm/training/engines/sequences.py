"""Training steps of models that read whole sequences of what users did.

One pass over the events of a piece gives its targets' users: the output after the last event before the target. The model sees
to it that an output has no part of later events, so no target, and nothing after it, is among what it is scored by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.histories import grid
from gmlfm.models.gradient import GradientModel
from gmlfm.training.engines.history import HistoryEngine, _take, _with_ids_dropped
from gmlfm.training.engines.sequence_ops import Mask, masked_softmax_loss
from gmlfm.training.objectives import objective_named
from gmlfm.training.probe import Reading
from gmlfm.training.sampling.batches import ALL_NEGATIVES
from gmlfm.training.sampling.history_batches import HistoryBatch

Ints = npt.NDArray[np.int32]
_PROBED_ROWS = 64
_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class _Pass:
    """What a step computes. rows, values, leaf: the distinct rows of the table; scores: of some rows, without a gradient."""

    loss: Tensor
    rows: Tensor
    values: Tensor
    leaf: Tensor
    scores: Tensor


class SequenceEngine(HistoryEngine):
    """Steps of SequenceBatches."""

    def step(self, batch: HistoryBatch) -> float:
        result = self._forward(batch)
        self.dense.zero_grad()
        result.loss.backward()  # type: ignore[no-untyped-call]
        loss = float(result.loss.detach())
        if np.isfinite(loss):
            assert result.leaf.grad is not None
            self.rows.step(result.rows, result.values, result.leaf.grad)
            self.dense.step()
        return loss

    @torch.no_grad()
    def reading(self, batch: HistoryBatch, model: GradientModel, table: Tensor) -> Reading:
        """What the engine's model and table give on a batch, without dropout of the model's. Leaves it in evaluation mode."""
        assert model is self.model
        assert table is self.rows.table
        model.eval()
        result = self._forward(batch)
        listed = self._items.ids[self._candidates], self._items.values[self._candidates]
        can_differ = any((values != values[:1]).any() for values in listed)
        return Reading(float(result.loss), bool(can_differ and (result.scores == result.scores[:, :1]).all()))

    def _forward(self, batch: HistoryBatch) -> _Pass:
        rng = np.random.default_rng(batch.seed)
        return self._softmax(batch, rng) if batch.negatives is None else self._in_groups(batch, rng)

    def _softmax(self, batch: HistoryBatch, rng: np.random.Generator) -> _Pass:
        """Over all candidates, or over negatives that the step shares."""
        takes_all = self._n_negatives == ALL_NEGATIVES or self._n_negatives >= len(self._candidates)
        drawn = self._candidates
        if not takes_all:
            drawn = rng.choice(self._candidates, self._n_negatives, replace=False, shuffle=False)
        users, items, parts = self._vectors(batch, drawn if takes_all else np.concatenate([drawn, batch.targets]), rng)
        n = len(drawn)
        target_scores = None if takes_all else (users * items[n:]).sum(1)
        weights = users.new_ones(len(batch)) if batch.weights is None else self._tensor(batch.weights)
        correction = 0.0 if takes_all else math.log(len(self._candidates) / n)
        loss = masked_softmax_loss(users, items[:n], target_scores, weights, self._mask(batch, drawn), correction)
        return _Pass(loss, *parts, users[:_PROBED_ROWS].detach() @ items[:n].detach().T)

    def _in_groups(self, batch: HistoryBatch, rng: np.random.Generator) -> _Pass:
        """Each target beside negatives of its own, by any loss."""
        assert batch.negatives is not None
        numbers = np.concatenate([batch.targets[:, None], batch.negatives], axis=1)
        users, items, parts = self._vectors(batch, numbers.ravel(), rng)
        scores = (items.view(*numbers.shape, -1) @ users.unsqueeze(-1)).squeeze(-1)
        labels = torch.full_like(scores, -1.0)
        labels[:, 0] = 1.0
        weights = None if batch.weights is None else self._tensor(batch.weights)
        loss = objective_named(self.loss, self.model)(scores, labels, weights)
        return _Pass(loss, *parts, scores[:_PROBED_ROWS].detach())

    def _vectors(
        self, batch: HistoryBatch, scored: Ints, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The users of the targets (B, K), the scored items (C, K), and the rows of the table behind them."""
        model: Any = self.model  # one whose class says that it reads sequences
        first, stop = batch.row_first[batch.pieces[:-1]], batch.row_stop[batch.pieces[1:] - 1]
        begin = np.maximum(first, stop - self.spec.length)
        distinct, places = np.zeros(1, np.int32), np.zeros(1, np.int32)
        if len(batch.events):
            distinct, places = self._distinct_items(batch.events)
        in_sequence = _with_ids_dropped(_take(self._earlier, distinct), self._ids.unknown_item, self._hidden_rate, -1, rng)
        rows, values, leaf, (item_side, event_side) = self._gather([self._hidden(_take(self._items, scored), rng), in_sequence])
        transformed = model.transform_rows(leaf)
        sequences = self._tensor(places[grid(begin, stop)].astype(np.int64))
        earlier = torch.nn.functional.embedding(sequences, model.item_vectors(transformed, event_side))
        outputs = model.outputs(earlier)
        piece_of_row = np.repeat(np.arange(len(begin)), np.diff(batch.pieces))
        place = piece_of_row * outputs.shape[1] + batch.row_stop - begin[piece_of_row]
        users = torch.nn.functional.embedding(self._tensor(place), outputs.flatten(0, 1))
        return users, model.item_vectors(transformed, item_side), (rows, values, leaf)

    def _mask(self, batch: HistoryBatch, drawn: Ints) -> Mask:
        """Items that a row's user had before it, by where in the piece's events they first come."""
        column_of_item = self._column_of_item
        column_of_item[drawn] = np.arange(len(drawn), dtype=np.int32)
        first = batch.row_first[batch.pieces[:-1]]
        lengths = np.diff(np.append(first, len(batch.events)))
        piece_of_event = np.repeat(np.arange(len(first)), lengths)
        columns = column_of_item[batch.events]
        counts = batch.is_had & (columns >= 0)
        first_place = np.full((len(first), len(drawn)), _NEVER, np.int32)
        events = np.flatnonzero(counts)[::-1]  # of several events of an item the earliest is written last, and stays
        first_place[piece_of_event[events], columns[events]] = events - first[piece_of_event[events]]
        targets = column_of_item[batch.targets].astype(np.int64)
        column_of_item[drawn] = -1
        piece_of_row = np.repeat(np.arange(len(first)), np.diff(batch.pieces))
        n_before = (batch.row_stop - batch.row_first).astype(np.int32)
        return Mask(*(self._tensor(array) for array in (first_place, piece_of_row, n_before, targets)))
