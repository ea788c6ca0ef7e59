"""Training steps of models that read what users did before.

A step gathers the distinct rows of its users' attributes, of the items it scores and of the earlier items in each role; the
model makes vectors of them; histories are sums of the role vectors, so that an item that many histories hold is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import ranges
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.history import in_role
from gmlfm.training.engines.history_ops import Columns, Windows, role_sums, softmax_loss
from gmlfm.training.objectives import objective_named
from gmlfm.training.rows import Distinct, RowOptimiser
from gmlfm.training.sampling.batches import ALL_NEGATIVES
from gmlfm.training.sampling.history_batches import HistoryBatch, HistoryBatches, training_items

Ints = npt.NDArray[np.int32]


class HistoryEngine:
    """Steps of HistoryBatches."""

    takes_device_batches = False

    def __init__(
        self,
        model: GradientModel,
        rows: RowOptimiser,
        dense: torch.optim.Optimizer,
        loss: str,
        batches: HistoryBatches,
        field_of_row: npt.NDArray[np.int16] | None = None,
    ) -> None:
        self.model, self.rows, self.dense, self.loss, self.spec = model, rows, dense, loss, batches.spec
        self.device, self._field_of_row = rows.table.device, field_of_row
        self._items, self._earlier = training_items(batches.encoded.item, batches.ids), batches.encoded.item
        self._ids, self._candidates = batches.ids, batches.candidates
        self._n_negatives, self._hidden_rate = batches.options.n_negatives, batches.options.cold_start_rate
        self._distinct_rows, self._distinct_items = Distinct(len(rows.table)), Distinct(len(self._items))
        self._column_of_item = np.full(len(self._items), -1, np.int32)

    def run(self, batch: HistoryBatch, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        yield self.step(batch), len(batch)

    def step(self, batch: HistoryBatch) -> float:
        rng = np.random.default_rng(batch.seed)
        shares = batch.negatives is None and batch.labels is None
        loss, rows, values, leaf = self._shared(batch, rng) if shares else self._grouped(batch, rng)
        self.dense.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        result = float(loss.detach())
        if np.isfinite(result):
            assert leaf.grad is not None
            self.rows.step(rows, values, leaf.grad)
            self.dense.step()
        return result

    def _shared(self, batch: HistoryBatch, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The softmax over all candidates, or over negatives that the step shares."""
        model: Any = self.model  # one whose class says that it shares negatives
        takes_all = self._n_negatives == ALL_NEGATIVES or self._n_negatives >= len(self._candidates)
        drawn = self._candidates
        if not takes_all:
            drawn = rng.choice(self._candidates, self._n_negatives, replace=False, shuffle=False)
        scored = drawn if takes_all else np.concatenate([drawn, batch.targets])
        windows, earlier = self._windows(batch)
        sides = [batch.users, self._hidden(_take(self._items, scored), rng)]
        sides += [self._hidden_in_role(earlier, role, rng) for role in range(len(self.spec.roles))]
        rows, values, leaf, (user_side, item_side, *role_sides) = self._gather(sides)
        transformed = model.transform_rows(leaf)
        user = model.side_vectors(transformed, user_side, is_user=True).vector
        # Under a softmax the user's linear term cancels, and with it that of the history.
        vectors = [model.history_vectors(transformed, side)[:, 1:] for side in role_sides]
        users = user + torch.stack(role_sums(windows, self.spec, vectors)).sum(0)
        item = model.side_vectors(transformed, item_side, is_user=False)
        n, columns = len(drawn), self._columns(batch, drawn, takes_all)
        own = None
        if not takes_all:
            own = (users * item.vector[n:]).sum(1) + item.self_terms[n:]
        weights = self._tensor(np.ones(len(batch), np.float32) if batch.weights is None else batch.weights)
        loss = softmax_loss(users, item.vector[:n], item.self_terms[:n], own, weights, columns)
        return loss, rows, values, leaf

    def _columns(self, batch: HistoryBatch, drawn: Ints, takes_all: bool) -> Columns:
        """Masked are the items that a row's user had before and, where its own score stands apart, the target."""
        column_of_item = self._column_of_item
        column_of_item[drawn] = np.arange(len(drawn), dtype=np.int32)
        flat, starts = ranges(batch.row_first, batch.row_stop)
        owners = np.repeat(np.arange(len(batch)), np.diff(starts))
        items = batch.events[flat]
        is_masked = batch.is_had[flat] & (column_of_item[items] >= 0) & (items != batch.targets[owners])
        masked = np.stack([owners[is_masked], column_of_item[items[is_masked]]])
        targets = column_of_item[batch.targets].astype(np.int64)
        correction, target = 0.0, None
        if takes_all:
            target = torch.from_numpy(targets).to(self.device)
        else:
            is_drawn = targets >= 0
            own = np.stack([np.flatnonzero(is_drawn), targets[is_drawn]])
            masked = np.concatenate([masked, own], axis=1)
            masked = masked[:, np.argsort(masked[0], kind="stable")]
            correction = math.log(len(self._candidates) / len(drawn))
        column_of_item[drawn] = -1
        return Columns(torch.from_numpy(masked.astype(np.int64)).to(self.device), correction, target)

    def _grouped(self, batch: HistoryBatch, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Each target beside negatives of its own, or alone with its label: any loss, any model that reads attributes."""
        model = self.model
        items = batch.targets[:, None]
        if batch.negatives is not None:
            items = np.concatenate([items, batch.negatives], axis=1)
        if batch.labels is None:
            labels = np.full(items.shape, -1.0, np.float32)
            labels[:, 0] = 1.0
        else:
            labels = batch.labels[:, None]
        windows, earlier = self._windows(batch)
        sides = [batch.users, self._hidden(_take(self._items, items.ravel()), rng)]
        sides += [self._hidden_in_role(earlier, role, rng) for role in range(len(self.spec.roles))]
        rows, values, leaf, (user_side, item_side, *role_sides) = self._gather(sides)
        item_side = _in_groups(item_side, items.shape)
        transformed = model.transform_rows(leaf)
        sums = role_sums(windows, self.spec, [model.history_vectors(transformed, side) for side in role_sides])
        score_sets = model.scores_after(transformed, user_side, item_side, sums, self._role_fields())
        objective, truth = objective_named(self.loss, model), self._tensor(labels)
        weights = None if batch.weights is None else self._tensor(batch.weights)
        loss = torch.stack([objective(scores, truth, weights) for scores in score_sets]).sum()
        penalty = model.penalty(leaf, user_side, item_side)
        return (loss if penalty is None else loss + penalty), rows, values, leaf

    def _windows(self, batch: HistoryBatch) -> tuple[Windows, Ints]:
        """The rows' windows among the events, as places among the distinct items of the events, and these items."""
        if len(batch.events) == 0:
            return Windows(batch.events, batch.is_kept, batch.row_start, batch.row_stop, batch.pieces), np.zeros(1, np.int32)
        distinct, places = self._distinct_items(batch.events)
        return Windows(places, batch.is_kept, batch.row_start, batch.row_stop, batch.pieces), distinct

    def _hidden(self, items: AttributeTable, rng: np.random.Generator) -> AttributeTable:
        """Some items with their ids dropped, so that the unknown row and the attributes learn what ids keep to themselves."""
        return _with_ids_dropped(items, self._ids.unknown_item, self._hidden_rate, self._ids.negative_only_row, rng)

    def _hidden_in_role(self, earlier: Ints, role: int, rng: np.random.Generator) -> AttributeTable:
        items, shift = in_role(_take(self._earlier, earlier), self.spec, role), self.spec.shift(role)
        return _with_ids_dropped(items, self._ids.unknown_item + shift, self._hidden_rate, -1, rng)

    def _gather(self, tables: list[AttributeTable]) -> tuple[Tensor, Tensor, Tensor, list[Attributes]]:
        """The distinct rows that some sides name: their numbers, values, a leaf of them, and the sides as places among them."""
        distinct, places = self._distinct_rows(np.concatenate([side.ids.ravel() for side in tables]))
        rows = torch.from_numpy(distinct.astype(np.int64)).to(self.device)
        values = self.rows.table[rows]
        leaf = values.clone().requires_grad_()
        attributes, start = [], 0
        for side in tables:
            ids = places[start : start + side.ids.size].reshape(side.ids.shape)
            start += side.ids.size
            fields = None if self._field_of_row is None else self._tensor(self._field_of_row[side.ids].astype(np.int64))
            attributes.append(
                Attributes(self._tensor(ids.astype(np.int64)), self._tensor(side.values), fields, self._tensor(side.ids != 0))
            )
        return rows, values, leaf, attributes

    def _role_fields(self) -> Tensor | None:
        if self._field_of_row is None:
            return None
        first = self._ids.unknown_item
        shifted = [first + self.spec.shift(role) for role in range(len(self.spec.roles))]
        return self._tensor(self._field_of_row[shifted].astype(np.int64))

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.device)


def _take(items: AttributeTable, numbers: Ints) -> AttributeTable:
    return AttributeTable(items.ids[numbers], items.values[numbers])


def _with_ids_dropped(items: AttributeTable, unknown: int, rate: float, never: int, rng: np.random.Generator) -> AttributeTable:
    """never: the row of items whose ids stay."""
    if rate == 0:
        return items
    is_dropped = (rng.random(len(items.ids), np.float32) < rate) & (items.ids[:, 0] != never)
    ids = np.array(items.ids)
    ids[is_dropped, 0] = unknown
    return AttributeTable(ids, items.values)


def _in_groups(side: Attributes, shape: tuple[int, ...]) -> Attributes:
    """(B G, F) -> (B, G, F)."""

    def grouped(tensor: Tensor) -> Tensor:
        return tensor.view(*shape, tensor.shape[-1])

    fields = None if side.fields is None else grouped(side.fields)
    return replace(side, ids=grouped(side.ids), x=grouped(side.x), fields=fields, is_present=grouped(side.is_present))
