"""Training steps of models that read whole sequences of what users did.

One pass over the events of a piece gives its targets' users: the output after the last event before the target. The model sees
to it that an output has no part of later events, so no target, and nothing after it, is among what it is scored by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import grid, ranges
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.training.engines.history_catalogue import take_items, with_ids_dropped
from gmlfm.training.engines.sequence_ops import Mask, masked_softmax_loss
from gmlfm.training.objectives import objective_named
from gmlfm.training.probe import Reading
from gmlfm.training.rows import Distinct, RowOptimiser
from gmlfm.training.sampling.batches import ALL_NEGATIVES
from gmlfm.training.sampling.history_batches import HistoryBatch, TargetBatches, training_items

Ints = npt.NDArray[np.int32]
_PROBED_ROWS = 64
_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class _Vectors:
    """numbers: (U,) the step's rows of the table; leaf: (U, width) their values, to which gradients go; users: (B, K) of the
    targets; items: (C, K), those that are scored."""

    numbers: Tensor
    leaf: Tensor
    users: Tensor
    items: Tensor


@dataclass(frozen=True)
class _Step:
    """scores: of some rows, without a gradient."""

    vectors: _Vectors
    loss: Tensor
    scores: Tensor


class SequenceEngine:
    """Steps of TargetBatches that read sequences."""

    takes_device_batches = False

    def __init__(
        self, model: GradientModel, rows: RowOptimiser, dense: torch.optim.Optimizer, loss: str, batches: TargetBatches
    ) -> None:
        self.model, self.rows, self.dense, self.loss = model, rows, dense, loss
        self.device, self._length = rows.table.device, batches.spec.length
        self._items, self._earlier = training_items(batches.encoded.item, batches.ids), batches.encoded.item
        self._ids, self._candidates, self._hidden_rate = batches.ids, batches.candidates, batches.options.cold_start_rate
        n_negatives, n_candidates = batches.options.n_negatives, len(batches.candidates)
        self._n_drawn = n_candidates if n_negatives == ALL_NEGATIVES else min(n_negatives, n_candidates)
        self._distinct_rows, self._distinct_items = Distinct(len(rows.table)), Distinct(len(self._items))
        self._column_of_item = np.full(len(self._items), -1, np.int32)

    def run(self, batch: HistoryBatch, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        yield self.step(batch), len(batch)

    def step(self, batch: HistoryBatch) -> float:
        step = self.forward(batch)
        self.dense.zero_grad()
        step.loss.backward()  # type: ignore[no-untyped-call]
        loss = float(step.loss.detach())
        if np.isfinite(loss):
            leaf = step.vectors.leaf
            assert leaf.grad is not None
            self.rows.step(step.vectors.numbers, leaf.detach(), leaf.grad)
            self.dense.step()
        return loss

    @torch.no_grad()
    def reading(self, batch: HistoryBatch, model: GradientModel, table: Tensor) -> Reading:
        """What the engine's model and table give on a batch, without dropout of the model's. Leaves it in evaluation mode."""
        assert model is self.model
        assert table is self.rows.table
        model.eval()
        step = self.forward(batch)
        listed = self._items.ids[self._candidates], self._items.values[self._candidates]
        can_differ = any((values != values[:1]).any() for values in listed)
        return Reading(float(step.loss), bool(can_differ and (step.scores == step.scores[:, :1]).all()))

    def forward(self, batch: HistoryBatch) -> _Step:
        rng = np.random.default_rng(batch.seed)
        return self._shared(batch, rng) if batch.negatives is None else self._grouped(batch, rng)

    def _shared(self, batch: HistoryBatch, rng: np.random.Generator) -> _Step:
        """The softmax over all candidates, or over negatives that the step shares."""
        n, drawn, scored = self._n_drawn, self._candidates, self._candidates
        takes_all = n == len(self._candidates)
        if not takes_all:
            drawn = rng.choice(self._candidates, n, replace=False, shuffle=False)
            scored = np.concatenate([drawn, batch.targets])
        vectors = self.vectors(batch, scored, rng)
        users, items = vectors.users, vectors.items
        target_scores = None if takes_all else (users * items[n:]).sum(1)
        weights = users.new_ones(len(batch)) if batch.weights is None else self._tensor(batch.weights)
        correction = math.log(len(self._candidates) / n)
        loss = masked_softmax_loss(users, items[:n], target_scores, weights, self._mask(batch, drawn), correction)
        return _Step(vectors, loss, users[:_PROBED_ROWS].detach() @ items[:n].detach().T)

    def _grouped(self, batch: HistoryBatch, rng: np.random.Generator) -> _Step:
        """Each target beside negatives of its own, by any loss."""
        assert batch.negatives is not None
        numbers = np.concatenate([batch.targets[:, None], batch.negatives], axis=1)
        vectors = self.vectors(batch, numbers.ravel(), rng)
        scores = (vectors.items.view(*numbers.shape, -1) @ vectors.users.unsqueeze(-1)).squeeze(-1)
        labels = torch.full_like(scores, -1.0)
        labels[:, 0] = 1.0
        weights = None if batch.weights is None else self._tensor(batch.weights)
        return _Step(vectors, objective_named(self.loss, self.model)(scores, labels, weights), scores[:_PROBED_ROWS].detach())

    def vectors(self, batch: HistoryBatch, scored: Ints, rng: np.random.Generator) -> _Vectors:
        """Of the batch's users as of their targets, and of some items."""
        model: Any = self.model  # one whose class says that it reads sequences
        stop = batch.row_stop[batch.pieces[1:] - 1]
        begin = np.maximum(batch.row_first[batch.pieces[:-1]], stop - self._length)
        distinct, places = np.zeros(1, np.int32), np.zeros(1, np.int32)
        if len(batch.events):
            distinct, places = self._distinct_items(batch.events)
        unknown, rate = self._ids.unknown_item, self._hidden_rate
        # Ids are dropped so that the unknown row and the attributes learn what ids keep to themselves.
        scored_items = with_ids_dropped(take_items(self._items, scored), unknown, rate, self._ids.negative_only_row, rng)
        earlier_items = with_ids_dropped(take_items(self._earlier, distinct), unknown, rate, -1, rng)
        numbers, leaf, (item_side, earlier_side) = self._gather([scored_items, earlier_items])
        rows = model.transform_rows(leaf)
        # embedding's backward adds up in a fixed order on a CPU; indexing's does not promise to.
        sequences = functional.embedding(self._tensor(places[grid(begin, stop)]).long(), model.item_vectors(rows, earlier_side))
        outputs = model.outputs(sequences)
        piece_of_row = np.repeat(np.arange(len(begin)), np.diff(batch.pieces))
        place_of_row = piece_of_row * outputs.shape[1] + batch.row_stop - begin[piece_of_row]
        users = functional.embedding(self._tensor(place_of_row), outputs.flatten(0, 1))
        return _Vectors(numbers, leaf, users, model.item_vectors(rows, item_side))

    def _gather(self, tables: list[AttributeTable]) -> tuple[Tensor, Tensor, list[Attributes]]:
        """The distinct rows that some tables name: their numbers, a leaf of them, and the tables as places among them."""
        distinct, places = self._distinct_rows(np.concatenate([table.ids.ravel() for table in tables]))
        numbers = self._tensor(distinct).long()
        leaf = self.rows.table[numbers].requires_grad_()
        parts = np.split(places, np.cumsum([table.ids.size for table in tables])[:-1])
        attributes = []
        for table, part in zip(tables, parts, strict=True):
            ids, is_present = self._tensor(part.reshape(table.ids.shape)).long(), self._tensor(table.ids != 0)
            attributes.append(Attributes(ids, self._tensor(table.values), is_present=is_present))
        return numbers, leaf, attributes

    def _mask(self, batch: HistoryBatch, drawn: Ints) -> Mask:
        """Items that a row's user had before it, by where among all that its piece's user did they first come."""
        had, column_of_item = batch.had, self._column_of_item
        column_of_item[drawn] = np.arange(len(drawn), dtype=np.int32)
        places, first = ranges(had.start[batch.pieces[:-1]], had.stop[batch.pieces[1:] - 1])
        n_pieces = len(first) - 1
        piece_of_event = np.repeat(np.arange(n_pieces), np.diff(first))
        columns = column_of_item[had.items[places]]
        # Of several events of an item the earliest is written last, and stays.
        events = np.flatnonzero(had.is_had[places] & (columns >= 0))[::-1]
        first_place = np.full((n_pieces, len(drawn)), _NEVER, np.int32)
        first_place[piece_of_event[events], columns[events]] = events - first[piece_of_event[events]]
        targets = column_of_item[batch.targets].astype(np.int64)
        column_of_item[drawn] = -1
        piece_of_row = np.repeat(np.arange(n_pieces), np.diff(batch.pieces))
        n_before = (had.stop - had.start).astype(np.int32)
        return Mask(*(self._tensor(array) for array in (first_place, piece_of_row, n_before, targets)))

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.device)
