"""Training steps of models that read what users did before.

A step gathers the distinct rows of its users' attributes, of the items it scores and of the earlier items in each role; the
model makes vectors of them; histories are sums of the role vectors, so that an item that many histories hold is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.kernels.cpu.single_threads import one_torch_thread
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.history import in_role
from gmlfm.training.engines.history_catalogue import Catalogue, at_level_of, is_due, take_items, with_ids_dropped
from gmlfm.training.engines.history_items import EarlierItems, earlier_items, had_before
from gmlfm.training.engines.history_ops import Columns, HistoryOps, Windows
from gmlfm.training.engines.resting import draw_back
from gmlfm.training.engines.row_updates import RowUpdates
from gmlfm.training.objectives import objective_named
from gmlfm.training.probe import Reading
from gmlfm.training.rows import Distinct, RowOptimiser
from gmlfm.training.sampling.batches import ALL_NEGATIVES
from gmlfm.training.sampling.history_batches import HistoryBatch, TargetBatches, training_items

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class _Step:
    """numbers: (U,) the step's rows of the table; leaf: (U, width) their values, to which gradients go; loss: of the step."""

    numbers: Tensor
    leaf: Tensor
    loss: Tensor = None  # type: ignore[assignment]


class HistoryEngine:
    """Steps of TargetBatches."""

    takes_device_batches = False

    def __init__(
        self,
        model: GradientModel,
        rows: RowOptimiser,
        dense: torch.optim.Optimizer,
        loss: str,
        batches: TargetBatches,
        field_of_row: npt.NDArray[np.int16] | None = None,
    ) -> None:
        self.model, self.rows, self.dense, self.loss, self.spec = model, rows, dense, loss, batches.spec
        self.device, self._field_of_row = rows.table.device, field_of_row
        self._items, self._earlier = training_items(batches.encoded.item, batches.ids), batches.encoded.item
        self._ids, self._candidates = batches.ids, batches.candidates
        self._n_rows = batches.n_learned
        self._n_negatives, self._hidden_rate = batches.options.n_negatives, batches.options.cold_start_rate
        self._distinct_rows, self._distinct_items = Distinct(len(rows.table)), Distinct(len(self._items))
        self._column_of_item = np.full(len(self._items) + 1, -1, np.int32)  # behind the items one that is none
        self._drawn = np.empty(0, np.int32)
        self._had_of: Ints | None = None
        self._ops = HistoryOps(batches.spec, self.device)
        self._updates = RowUpdates(rows, self._ops.parts)
        n_candidates = len(self._candidates)
        self._takes_all = self._n_negatives == ALL_NEGATIVES or self._n_negatives >= n_candidates
        if self._takes_all:
            self._catalogue = Catalogue(self._items, self._earlier, self._candidates, self._ids, self.spec, len(rows.table))

    def run(self, batch: HistoryBatch, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        yield self.step(batch), len(batch)
        if _shares(batch) and is_due(batch.seed[-1], self._hidden_rate):
            self.step(batch, hides=True)

    @torch.no_grad()
    def reading(self, batch: HistoryBatch, model: GradientModel, table: Tensor) -> Reading:
        """What the engine's model and table give on a batch, without dropout of the model's. Leaves it in evaluation mode.
        Whether all items score the same is not looked at."""
        assert model is self.model
        assert table is self.rows.table
        model.eval()
        rng = np.random.default_rng((*batch.seed, 0))
        step = self._shared(batch, rng) if _shares(batch) else self._grouped(batch, rng)
        return Reading(float(step.loss), is_constant=False)

    def step(self, batch: HistoryBatch, *, hides: bool = False) -> float:
        """hides: by softmax with the ids of all items hidden, so that attributes learn what ids would keep to themselves."""
        # What takes long is done by our own threads; torch's spin between its operations and take their processors.
        with one_torch_thread():
            return self._step(batch, hides=hides)

    def _step(self, batch: HistoryBatch, *, hides: bool) -> float:
        rng = np.random.default_rng((*batch.seed, int(hides)))
        step = self._shared(batch, rng, hides=hides) if _shares(batch) else self._grouped(batch, rng)
        self.dense.zero_grad()
        step.loss.backward()  # type: ignore[no-untyped-call]
        result = float(step.loss.detach())
        if np.isfinite(result):
            assert step.leaf.grad is not None
            self._updates.step(step.numbers, step.leaf.detach(), step.leaf.grad)
            self.dense.step()
            draw_back(self.model, self.rows.lr, self.rows.weight_decay, self._n_rows)
        return result

    def _shared(self, batch: HistoryBatch, rng: np.random.Generator, *, hides: bool = False) -> _Step:
        """The softmax over all candidates, or over negatives that the step shares."""
        model: Any = self.model  # one whose class says that it shares negatives
        drawn, rate = self._candidates, 0.0 if hides else self._hidden_rate
        if self._takes_all:
            windows, n_earlier = self._whole_windows(batch), (len(self._earlier),) * len(self.spec.roles)
            sides = [self._catalogue.in_roles(rate, rng)]
            sides += [self._catalogue.items(hides=True)] if hides else []
            sides.append(self._catalogue.items(hides=False))
            step, (user_side, role_side, *item_sides) = self._gather_catalogue(batch.users, sides)
        else:
            drawn = rng.choice(drawn, self._n_negatives, replace=False, shuffle=False)
            earlier = earlier_items(batch, self.spec, self._distinct_items)
            windows, n_earlier = earlier.windows, earlier.n_items
            items = take_items(self._items, np.concatenate([drawn, batch.targets]))
            sides = [batch.users, self._in_roles(earlier, rate, rng)]
            sides += [self._hidden(items, 1.0, rng)] if hides else []
            step, (user_side, role_side, *item_sides) = self._gather([*sides, items])
        rows, n = model.transform_rows(step.leaf), len(drawn)
        # Under a softmax the user's linear term cancels, and with it that of the history.
        users = model.side_vectors(rows, user_side, is_user=True).vector
        role_vectors = [vectors[:, 1:] for vectors in self._role_vectors(rows, role_side, n_earlier)]
        users = users + self._ops.role_sums(windows, role_vectors, summed=True)
        item = model.side_vectors(rows, item_sides[0], is_user=False)
        if hides:
            with torch.no_grad():
                shown = model.side_vectors(rows, item_sides[1], is_user=False)
            item = at_level_of(shown, item, users)
        targets = None if self._takes_all else (item.vector[n:], item.self_terms[n:])
        columns = self._columns(batch, drawn)
        loss = self._ops.softmax_loss(users, item.vector[:n], item.self_terms[:n], targets, batch.weights, columns)
        penalty = model.penalty(step.leaf, user_side, item_sides[0])
        return replace(step, loss=loss if penalty is None else loss + penalty)

    def _role_vectors(self, rows: Tensor, role_side: Attributes, n_earlier: tuple[int, ...]) -> tuple[Tensor, ...]:
        """By role, (M, D): what each of the step's earlier items adds."""
        by_role = torch.split(self.model.history_vectors(rows, role_side), list(n_earlier))
        return tuple(self.model.in_role(vectors, role) for vectors, role in zip(by_role, self.spec.roles, strict=True))

    def _columns(self, batch: HistoryBatch, drawn: Ints) -> Columns:
        """Masked are the items that a row's user had before, not the target."""
        of_item = self._column_of_item
        if not self._takes_all or of_item[drawn[0]] < 0:
            of_item[self._drawn] = -1
            of_item[drawn] = np.arange(len(drawn), dtype=np.int32)
            self._drawn = drawn
        correction = 0.0 if self._takes_all else math.log(len(self._candidates) / len(drawn))
        target = of_item[batch.targets].astype(np.int64)
        if self._takes_all:
            return Columns(of_item, target, self._items_had(batch), batch.had.start, batch.had.stop, correction)
        return Columns(of_item, target, *had_before(batch, of_item), correction)

    def _items_had(self, batch: HistoryBatch) -> Ints:
        """Of all events behind the batch, which are those of many batches: the item that the user had, or none of them."""
        had = batch.had
        if self._had_of is not had.items:
            self._had_of, self._had_items = had.items, np.where(had.is_had, had.items, np.int32(len(self._items)))
        return self._had_items

    def _grouped(self, batch: HistoryBatch, rng: np.random.Generator) -> _Step:
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
        earlier = earlier_items(batch, self.spec, self._distinct_items)
        rate, scored = self._hidden_rate, take_items(self._items, items.ravel())
        sides = [batch.users, self._hidden(scored, rate, rng), self._in_roles(earlier, rate, rng)]
        step, (user_side, item_side, role_side) = self._gather(sides)
        item_side = _in_groups(item_side, items.shape)
        transformed = model.transform_rows(step.leaf)
        role_vectors = self._role_vectors(transformed, role_side, earlier.n_items)
        sums = self._ops.role_sums(earlier.windows, role_vectors, summed=False)
        score_sets = model.scores_after(transformed, user_side, item_side, list(sums), self._role_fields())
        objective, truth = objective_named(self.loss, model), self._tensor(labels)
        weights = None if batch.weights is None else self._tensor(batch.weights)
        loss = torch.stack([objective(scores, truth, weights) for scores in score_sets]).sum()
        penalty = model.penalty(step.leaf, user_side, item_side)
        return replace(step, loss=loss if penalty is None else loss + penalty)

    def _whole_windows(self, batch: HistoryBatch) -> Windows:
        """The rows' windows among the events, where the role vectors are those of all items."""
        return Windows(batch.events, batch.is_kept, batch.row_start, batch.row_stop, batch.pieces)

    def _hidden(self, items: AttributeTable, rate: float, rng: np.random.Generator) -> AttributeTable:
        """A share of the items with their ids hidden, so that the unknown row and the attributes learn what ids know."""
        return with_ids_dropped(items, self._ids.unknown_item, rate, self._ids.negative_only_row, rng)

    def _in_roles(self, earlier: EarlierItems, rate: float, rng: np.random.Generator) -> AttributeTable:
        """The earlier items by their rows in each role, role after role; in each a share with their ids hidden."""
        items, sides = take_items(self._earlier, earlier.items), []
        for role, n_items in enumerate(earlier.n_items):
            side = AttributeTable(items.ids[:n_items], items.values[:n_items])
            sides.append(in_role(with_ids_dropped(side, self._ids.unknown_item, rate, -1, rng), self.spec, role))
        return AttributeTable(*(np.concatenate([getattr(side, name) for side in sides]) for name in ("ids", "values")))

    def _gather(self, tables: list[AttributeTable]) -> tuple[_Step, list[Attributes]]:
        """The distinct rows that some sides name, and the sides as places among them."""
        distinct, places = self._distinct_rows(np.concatenate([side.ids.ravel() for side in tables]))
        numbers = torch.from_numpy(distinct.astype(np.int64)).to(self.device)
        attributes, start = [], 0
        for side in tables:
            ids = places[start : start + side.ids.size].reshape(side.ids.shape)
            start += side.ids.size
            attributes.append(self._attributes(side, ids))
        return _Step(numbers, self.rows.table.index_select(0, numbers).requires_grad_()), attributes

    def _gather_catalogue(self, users: AttributeTable, tables: list[AttributeTable]) -> tuple[_Step, list[Attributes]]:
        """The same, where a step reads the rows of all items in any case, which stand together at the table's end."""
        distinct, places = self._distinct_rows(users.ids.ravel())
        first = self._catalogue.first_row
        numbers = torch.from_numpy(np.concatenate([distinct, self._catalogue.rows]).astype(np.int64)).to(self.device)
        leaf = torch.cat([self.rows.table.index_select(0, numbers[: len(distinct)]), self.rows.table[first:]]).requires_grad_()
        attributes = [self._attributes(users, places.reshape(users.ids.shape))]
        # Padding, which has x = 0, is taken for any row.
        attributes += [self._attributes(side, np.maximum(side.ids - first, 0) + len(distinct)) for side in tables]
        return _Step(numbers, leaf), attributes

    def _attributes(self, side: AttributeTable, places: npt.NDArray[np.integer[Any]]) -> Attributes:
        fields = None if self._field_of_row is None else self._tensor(self._field_of_row[side.ids].astype(np.int64))
        return Attributes(self._tensor(places.astype(np.int64)), self._tensor(side.values), fields, self._tensor(side.ids != 0))

    def _role_fields(self) -> Tensor | None:
        if self._field_of_row is None:
            return None
        first = self._ids.unknown_item
        shifted = [first + self.spec.shift(role) for role in range(len(self.spec.roles))]
        return self._tensor(self._field_of_row[shifted].astype(np.int64))

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.device)


def _shares(batch: HistoryBatch) -> bool:
    """Whether the rows of a step are scored against the same items."""
    return batch.negatives is None and batch.labels is None


def _in_groups(side: Attributes, shape: tuple[int, ...]) -> Attributes:
    """(B G, F) -> (B, G, F)."""

    def grouped(tensor: Tensor) -> Tensor:
        return tensor.view(*shape, tensor.shape[-1])

    fields = None if side.fields is None else grouped(side.fields)
    return replace(side, ids=grouped(side.ids), x=grouped(side.x), fields=fields, is_present=grouped(side.is_present))
