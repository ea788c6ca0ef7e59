"""Whole steps of models that read what users did before, drawing of batches included; and the same form in plain PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from gmlfm.data.attributes import AttributeTable
from gmlfm.errors import OptionError
from gmlfm.models.base import Layout
from gmlfm.models.fm import FM
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.history import Bags, bag_sums, in_role
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.batches import ALL_NEGATIVES
from gmlfm.training.sampling.history_batches import HistoryBatch, HistoryBatches, training_items
from gmlfm.training.settings import Settings

_PRODUCTS = 6  # operations a row, column and factor: scores, and the gradients at both sides, two each
_NEVER = float("-inf")


def softmax_operations(batches: HistoryBatches, model: Any) -> float | None:
    """Operations a row of the softmax's matrix products; None where a step's rows do not share what they stand among.

    A row that counts once is in a step with ids hidden as well, as often as there are such steps.
    """
    if not batches.shares_negatives or not hasattr(model, "side_width"):
        return None
    return float(_PRODUCTS * n_columns(batches) * model.side_width) * (1.0 + batches.options.cold_start_rate)


def n_columns(batches: HistoryBatches) -> int:
    n_negatives, n_candidates = batches.options.n_negatives, len(batches.candidates)
    return n_candidates if n_negatives == ALL_NEGATIVES else min(n_negatives, n_candidates)


def our_steps(
    model: GradientModel, layout: Layout, batches: HistoryBatches, settings: Settings, device: str
) -> Callable[[], int]:
    """Takes a step, or as many as are recorded at once, and says of how many rows."""
    field_of_row = layout.field_of_row()
    trainer = RowTrainer(model, layout.n_rows, settings.training, batches, device=device, field_of_row=field_of_row)
    trainer.model.train()
    engine = trainer.engine
    drawn = _endless(trainer._on_device())
    return lambda: sum(n for _, n in engine.run(next(drawn), batches.groups_per_step))


def torch_steps(
    model: GradientModel, layout: Layout, batches: HistoryBatches, settings: Settings, device: str, *, way: str
) -> Callable[[], int]:
    options = {"once_an_item": way == "torch-items", "fused": way != "torch-unfused"}
    plain = PlainTorch(model, layout.n_rows, batches, settings, device, **options)
    drawn = _endless(batches)

    def take() -> int:
        batch = next(drawn)
        plain.step(batch)
        return len(batch)

    return take


def _endless(batches: Any) -> Iterator[Any]:
    """Epoch after epoch, each drawn as training draws it."""
    for number in count():
        yield from batches.epoch(number)


class PlainTorch:
    """The same form as PyTorch has its parts: an embedding table with a dense gradient, shuffled rows, a weighted embedding bag
    a role, cross entropy, Adam over everything. Batches are drawn by our own code, with pieces of one row.

    once_an_item: the vectors of a step's distinct earlier items are computed once, and the bags are of these; else a bag is of
    the table's rows, of all attributes of all of a row's earlier items. fused: Adam in one pass; else as it is by default.
    """

    def __init__(
        self,
        model: GradientModel,
        n_rows: int,
        batches: HistoryBatches,
        settings: Settings,
        device: str,
        *,
        once_an_item: bool = False,
        fused: bool = True,
    ) -> None:
        if not batches.shares_negatives or not hasattr(model, "side_vectors"):
            raise OptionError(
                "--against torch is the softmax over negatives that a step's rows share, and these data and settings do not "
                f"train {settings.model} by it; take fm with loss = softmax, and data without listing times."
            )
        if not once_an_item and not isinstance(model, FM):
            raise OptionError(
                f"--against torch is for fm, whose earlier items add up row by row; with {settings.model} take torch-items."
            )
        self._once_an_item = once_an_item
        self._model: Any = model.to(device).train()
        self._device, self._spec, self._candidates = torch.device(device), batches.spec, batches.candidates
        self._table = nn.Parameter(model.initial_rows(n_rows, torch.Generator().manual_seed(0)).to(device))
        parameters = [self._table, *model.parameters()]
        options = settings.training
        self._adam = torch.optim.AdamW(parameters, lr=options.lr, weight_decay=options.weight_decay or 0.0, fused=fused)
        self._items, self._earlier = training_items(batches.encoded.item, batches.ids), batches.encoded.item
        self._n_columns = n_columns(batches)
        self._column_of_item = np.full(len(self._items), -1, np.int64)

    def step(self, batch: HistoryBatch) -> float:
        loss = self.loss(batch, self._drawn(batch))
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        return float(loss.detach())

    def _drawn(self, batch: HistoryBatch) -> npt.NDArray[np.int32]:
        if self._n_columns == len(self._candidates):
            return self._candidates
        return np.random.default_rng(batch.seed).choice(self._candidates, self._n_columns, replace=False, shuffle=False)

    def loss(self, batch: HistoryBatch, drawn: npt.NDArray[np.int32]) -> Tensor:
        """The mean of -log of the target's share among the drawn items that the row's user had not, and the target."""
        model, rows, n = self._model, self._model.transform_rows(self._table), len(drawn)
        users = model.side_vectors(rows, self._attributes(batch.users), is_user=True).vector
        users = users + self._history(batch, rows)
        listed = np.concatenate([drawn, batch.targets])
        items = model.side_vectors(rows, self._attributes(_take(self._items, listed)), is_user=False)
        scores = torch.addmm(items.self_terms[:n] + math.log(len(self._candidates) / n), users, items.vector[:n].T)
        scores = scores.masked_fill(self._mask(batch, drawn), _NEVER)
        of_targets = (users * items.vector[n:]).sum(1) + items.self_terms[n:]
        scores = torch.cat([of_targets.unsqueeze(1), scores], dim=1)
        losses = functional.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.int64), reduction="none")
        if batch.weights is None:
            return losses.mean()
        weights = self._tensor(batch.weights)
        return (losses * weights).sum() / weights.sum()

    def _history(self, batch: HistoryBatch, rows: Tensor) -> Tensor:
        """(B, D): the weighted bags of all roles, added up."""
        lengths = batch.row_stop - batch.row_start
        starts = np.concatenate([[0], np.cumsum(lengths)])
        owners = np.repeat(np.arange(len(batch)), lengths)
        flat = np.arange(starts[-1]) + (batch.row_start - starts[:-1])[owners]
        ages = batch.row_stop[owners] - 1 - flat
        total = torch.zeros(len(batch), self._model.side_width, device=self._device)
        for role, name in enumerate(self._spec.roles):
            if name == "last":
                weights = (ages == 0).astype(np.float32)
            else:
                weights = np.exp2(-ages / self._spec.half_life) if name == "recent" else np.ones(len(ages))
                weights *= batch.is_kept[flat]
                norms = np.sqrt(np.bincount(owners, weights**2, minlength=len(batch)))
                weights = (weights / np.maximum(norms, 1e-30)[owners]).astype(np.float32)
            is_read = weights != 0
            bag_starts = np.concatenate([[0], np.cumsum(is_read)])[starts]
            bags = Bags(bag_starts, batch.events[flat[is_read]], weights[is_read])
            total = total + (self._bags_of_items if self._once_an_item else self._bags_of_rows)(bags, role, rows)
        return total

    def _bags_of_items(self, bags: Bags, role: int, rows: Tensor) -> Tensor:
        distinct, places = np.unique(bags.items, return_inverse=True)
        side = in_role(_take(self._earlier, distinct), self._spec, role)
        vectors = self._model.history_vectors(rows, self._attributes(side))
        vectors = self._model.in_role(vectors, self._spec.roles[role])[:, 1:]
        return bag_sums(bags._replace(items=places.astype(np.int32)), vectors)

    def _bags_of_rows(self, bags: Bags, role: int, rows: Tensor) -> Tensor:
        side = in_role(_take(self._earlier, bags.items), self._spec, role)
        weights = (side.values * bags.weights[:, None]).ravel()
        return bag_sums(Bags(bags.starts * side.ids.shape[1], side.ids.ravel(), weights), rows)[:, 1:]

    def _mask(self, batch: HistoryBatch, drawn: npt.NDArray[np.int32]) -> Tensor:
        """(B, n): whether the row's user had the item, or it is the target."""
        had, columns = batch.had, self._column_of_item
        columns[drawn] = np.arange(len(drawn))
        mask = np.zeros((len(batch), len(drawn)), bool)
        owners = np.repeat(np.arange(len(batch)), had.stop - had.start)
        first = np.cumsum(had.stop - had.start) - (had.stop - had.start)
        places = np.arange(len(owners)) + (had.start - first)[owners]
        column = columns[had.items[places]]
        is_masked = (column >= 0) & had.is_had[places]
        mask[owners[is_masked], column[is_masked]] = True
        of_target = columns[batch.targets]
        mask[of_target >= 0, of_target[of_target >= 0]] = True  # it has a score of its own
        columns[drawn] = -1
        return self._tensor(mask)

    def _attributes(self, side: AttributeTable) -> Attributes:
        return Attributes(self._tensor(side.ids.astype(np.int64)), self._tensor(side.values), None, self._tensor(side.ids != 0))

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self._device)


def _take(items: AttributeTable, numbers: npt.NDArray[np.integer[Any]]) -> AttributeTable:
    return AttributeTable(items.ids[numbers], items.values[numbers])
