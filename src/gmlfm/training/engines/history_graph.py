"""Steps with histories for a device that holds everything: rows are drawn there, and on a GPU a step is one recorded graph.

A window of history is a row of a matrix rows x items, so that sums over histories and their gradients are matrix products. It
serves softmax over a whole catalogue that fits (`fits`), for scores that are sums of rows; the general engine has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.histories import ranges
from gmlfm.kernels.spec import SumsSpec
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.training.engines.history_catalogue import Catalogue, at_level_of, is_due
from gmlfm.training.engines.resting import draw_back
from gmlfm.training.rows import RowAdam, RowOptimiser
from gmlfm.training.sampling.batches import ALL_NEGATIVES
from gmlfm.training.sampling.history_batches import HistoryBatches, training_items

_STEPS_PER_BATCH = 32
_EAGER_STEPS = 3  # before recording: the first calls of an operation set up what a recording may not
_MOST_COLUMNS, _MOST_BYTES = 32_768, 8 << 30
_WIDEST = 1024  # numbers of a side vector, which stand for all items in all roles
_NEVER = torch.iinfo(torch.int32).max


@dataclass(frozen=True)
class RowNumbers:
    """Some steps: rows (S, B) as places among the targets, weights (S, B), 0 for padding; first_step: within the epoch."""

    rows: Tensor
    weights: Tensor
    n_rows: int
    first_step: int = 0

    def __len__(self) -> int:
        return self.n_rows


def fits(batches: HistoryBatches, model: GradientModel, optimiser: RowOptimiser, loss: str) -> bool:
    """Whether this engine can take the steps: of what users had, of a step's scores and of its histories, each a matrix, the
    largest must fit."""
    spec, width, n_columns = model.kernel_spec(), model.item_vector_width, len(batches.candidates)
    largest = max(batches.histories.n_users * n_columns, batches.groups_per_step * len(batches.encoded.item))
    takes_all = batches.options.n_negatives == ALL_NEGATIVES or batches.options.n_negatives >= n_columns
    return (
        width is not None
        and width <= _WIDEST + 1
        and not (isinstance(spec, SumsSpec) and (spec.translated or spec.user_l2 or spec.item_l2))
        and type(optimiser) is RowAdam
        and loss == "softmax"
        and batches.shares_negatives
        and takes_all
        and n_columns <= _MOST_COLUMNS
        and 4 * largest <= _MOST_BYTES
        and batches.had is batches.histories
        and not batches.stands_alone.any()
    )


class ResidentHistories:
    """The targets, their users' attributes and all histories on the device; rows in a new order each epoch."""

    def __init__(self, batches: HistoryBatches, device: torch.device) -> None:
        self._batches, self.device = batches, device
        histories = batches.histories
        self.targets, self.users = self._tensor(batches.items), self._tensor(batches.users)
        self.stops, self.starts = self._tensor(batches.stops), self._tensor(histories.starts)
        self.events = (
            self._tensor(histories.items) if len(histories.items) else torch.zeros(1, dtype=torch.int64, device=device)
        )
        side = batches.encoded.user_side(batches.users, batches.rows)
        self.user_ids, self.user_x = self._tensor(side.ids), torch.from_numpy(np.array(side.values)).to(device)
        weights = np.ones(len(batches.rows), np.float32) if batches.weights is None else batches.weights
        self.weights = torch.from_numpy(np.array(weights)).to(device)
        self.column_of_item = torch.full((len(batches.encoded.item),), -1, device=device)
        self.column_of_item[self._tensor(batches.candidates)] = torch.arange(len(batches.candidates), device=device)
        self.longest = int((batches.stops - histories.starts[batches.users]).max(initial=0))  # history of a target
        self.had_from = self._had_from()

    def _had_from(self) -> Tensor:
        """(users, columns): how many of a user's events there are up to the first by which they have the item."""
        batches, histories = self._batches, self._batches.histories
        result = torch.full((histories.n_users, len(batches.candidates)), _NEVER, dtype=torch.int32, device=self.device)
        flat, starts = ranges(histories.starts[:-1], histories.starts[1:])
        owners = np.repeat(np.arange(histories.n_users), np.diff(starts))
        order = flat - histories.starts[owners]
        columns = self.column_of_item.cpu().numpy()[histories.items]
        is_had = histories.is_had & (columns >= 0)
        pairs = owners[is_had] * len(batches.candidates) + columns[is_had]
        distinct, first = np.unique(pairs, return_index=True)  # events are in the order of time
        result.view(-1)[self._tensor(distinct)] = torch.from_numpy(order[is_had][first].astype(np.int32)).to(self.device)
        return result

    def _tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(np.asarray(array).astype(np.int64)).to(self.device)

    @property
    def n_instances(self) -> int:
        return self._batches.n_instances

    @property
    def n_learned(self) -> int:
        return self._batches.n_learned

    @property
    def groups_per_step(self) -> int:
        return self._batches.groups_per_step

    @property
    def steps_per_epoch(self) -> int:
        return self._batches.steps_per_epoch

    def cold_start_sampler(self, number: int) -> None:
        return

    def epoch(self, number: int) -> Iterator[RowNumbers]:
        rng, size, n = np.random.default_rng([self._batches.options.seed, 10, number]), self.groups_per_step, self.n_instances
        order = np.zeros(-(-n // size) * size, np.int64)
        order[:n] = rng.permutation(n)
        rows = torch.from_numpy(order).to(self.device)
        weights = self.weights[rows]
        weights[n:] = 0.0
        for start in range(0, len(rows), _STEPS_PER_BATCH * size):
            block = slice(start, start + _STEPS_PER_BATCH * size)
            n_rows = min(n, start + _STEPS_PER_BATCH * size) - start
            yield RowNumbers(rows[block].view(-1, size), weights[block].view(-1, size), n_rows, start // size)


class HistoryGraphEngine:
    """Steps of ResidentHistories. Every row of the items' fields is updated in each step, of the users' those that occur."""

    takes_device_batches = True

    def __init__(
        self,
        model: GradientModel,
        rows: RowOptimiser,
        dense: torch.optim.Optimizer,
        data: ResidentHistories,
        batches: HistoryBatches,
        field_of_row: npt.NDArray[np.int16] | None = None,
    ) -> None:
        assert isinstance(rows, RowAdam)
        self._dense, self._parameters = dense, [part for part in model.parameters() if part.requires_grad]
        self._field_of_row = None
        if field_of_row is not None:
            self._field_of_row = torch.from_numpy(field_of_row.astype(np.int64)).to(data.device)
        if data.device.type == "cuda":
            for group in dense.param_groups:
                group["capturable"], group["lr"] = True, torch.tensor(float(group["lr"]), device=data.device)
        self._model, self._rows, self._data, self._spec = model, rows, data, batches.spec
        self._dropout, self._hidden_rate = batches.dropout, batches.options.cold_start_rate
        items, device = training_items(batches.encoded.item, batches.ids), data.device
        catalogue = Catalogue(items, batches.encoded.item, batches.candidates, batches.ids, batches.spec, len(rows.table))
        self._items, self._hidden_items = (self._static(catalogue.items(hides=hides)) for hides in (False, True))
        self._roles = self._static(catalogue.in_roles())
        self._hidden_ids = self._static(catalogue.in_roles(hidden=1.0)).ids
        self._n_items = len(batches.encoded.item)
        self._first_row = catalogue.first_row
        ages = torch.arange(max(1, min(self._spec.length, data.longest)), device=device)
        self._ages, self._recency = ages, torch.exp2(-ages / self._spec.half_life)
        size = data.groups_per_step
        self._step_rows = torch.zeros(size, dtype=torch.int64, device=device)
        self._step_weights, self._lr = torch.ones(size, device=device), torch.zeros((), device=device)
        self._loss = torch.zeros((), device=device)
        self._n_steps = [0, 0]
        self._graphs: list[Any] = [None, None]  # of ordinary steps, and of those with ids hidden

    def _static(self, side: Any) -> Attributes:
        device = self._data.device
        ids, x = torch.from_numpy(side.ids.astype(np.int64)).to(device), torch.from_numpy(np.array(side.values)).to(device)
        return self._side(ids, x)

    def _side(self, ids: Tensor, x: Tensor) -> Attributes:
        return Attributes(ids, x, None if self._field_of_row is None else self._field_of_row[ids])

    def run(self, batch: RowNumbers, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        """After all steps of the batch their mean loss and how many rows they had."""
        self._lr.fill_(self._rows.lr)
        for group in self._dense.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(self._rows.lr)
        self._loss.zero_()
        for number, (rows, weights) in enumerate(zip(batch.rows, batch.weights, strict=True)):
            self._step_rows.copy_(rows)
            self._step_weights.copy_(weights)
            self._take_step(hides=False)
            if is_due(batch.first_step + number, self._hidden_rate):
                self._take_step(hides=True)
        yield float(self._loss) / len(batch.rows), batch.n_rows

    def _take_step(self, *, hides: bool) -> None:
        """hides: with the ids of all items hidden, as HistoryEngine.step has it."""
        if self._data.device.type != "cuda" or self._n_steps[hides] < _EAGER_STEPS:
            self._step(hides=hides)
        else:
            graph: Any = self._graphs[hides]
            if graph is None:
                self._graphs[hides] = graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self._step(hides=hides)
            graph.replay()
        self._n_steps[hides] += 1

    def _step(self, *, hides: bool) -> None:
        table = self._rows.table
        with torch.enable_grad(), _fast_products(table.device):
            leaf = table.detach().requires_grad_()
            loss = self._step_loss(leaf, hides=hides)
            gradient, *dense = torch.autograd.grad(loss, [leaf, *self._parameters], allow_unused=True)
        with torch.no_grad():
            self._update(gradient)
            for parameter, of_parameter in zip(self._parameters, dense, strict=True):
                parameter.grad = of_parameter
            if self._parameters:
                self._dense.step()
                draw_back(self._model, self._lr, self._rows.weight_decay, self._data.n_learned)
            if not hides:
                self._loss += loss.detach()

    def _step_loss(self, leaf: Tensor, *, hides: bool) -> Tensor:
        model: Any = self._model
        data, rows = self._data, self._step_rows
        owners, stop, target = data.users[rows], data.stops[rows], data.column_of_item[data.targets[rows]]
        first = data.starts[owners]
        transformed = model.transform_rows(leaf)
        # Some histories are hidden whole, so that users without any are trained for.
        is_hidden = torch.rand(len(stop), device=stop.device) < self._hidden_rate
        items, is_earlier = self._windows(torch.where(is_hidden, stop, first), stop)
        self._step_user_ids = self._user_ids(rows, is_hidden)
        user_side = self._side(self._step_user_ids, data.user_x[rows])
        users = model.side_vectors(transformed, user_side, is_user=True).vector
        users = users + self._history_sums(transformed, items, is_earlier, hides=hides)
        item = model.side_vectors(transformed, self._items, is_user=False)
        if hides:
            shown = replace(item, self_terms=item.self_terms.detach(), vector=item.vector.detach())
            item = at_level_of(shown, model.side_vectors(transformed, self._hidden_items, is_user=False), users)
        scores = torch.addmm(item.self_terms, users, item.vector.T)
        is_had = data.had_from[owners] < (stop - first).unsqueeze(1)
        is_had.scatter_(1, target.unsqueeze(1), torch.zeros_like(target, dtype=torch.bool).unsqueeze(1))
        losses = torch.nn.functional.cross_entropy(scores.masked_fill_(is_had, float("-inf")), target, reduction="none")
        weights = self._step_weights
        return (losses * weights).sum() / weights.sum()

    def _windows(self, begin: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
        """The items of each row's window, the latest one first, and which of them are there: (B, length) each."""
        places = stop.unsqueeze(1) - 1 - self._ages
        is_earlier = places >= begin.unsqueeze(1)
        return self._data.events[places.clamp_min(0)], is_earlier

    def _user_ids(self, rows: Tensor, is_newcomer: Tensor) -> Tensor:
        """Of the rows' users; HistorySpec.user_attributes on the device."""
        ids = self._data.user_ids[rows]
        if self._spec.newcomer is None:
            return ids
        unknown, newcomer = self._spec.newcomer
        ids_of_users = torch.where(is_newcomer & (ids[:, 0] == unknown), newcomer, ids[:, 0])
        return torch.cat([ids_of_users.unsqueeze(1), ids[:, 1:]], dim=1)

    def _history_sums(self, transformed: Tensor, items: Tensor, is_earlier: Tensor, *, hides: bool) -> Tensor:
        """(B, D): each role's weights as a matrix rows x items, times the items' vectors in that role."""
        spec, n_items = self._spec, self._n_items
        roles = self._roles if hides else self._with_ids_dropped(self._roles)
        model: Any = self._model
        vectors = model.history_vectors(transformed, roles)
        is_kept = is_earlier
        if self._dropout:
            is_kept = is_earlier & (torch.rand(items.shape, device=items.device) >= self._dropout)
        total: Tensor = vectors.new_zeros(len(items), model.side_width)
        for number, role in enumerate(spec.roles):
            of_role = model.in_role(vectors[number * n_items : (number + 1) * n_items], role)[:, 1:]
            if role == "last":
                total = total + of_role.index_select(0, items[:, 0]) * is_earlier[:, :1]
                continue
            weights = is_kept * (self._recency if role == "recent" else 1.0)
            weights = weights / weights.square().sum(1, keepdim=True).sqrt().clamp_min(1e-20)
            matrix = vectors.new_zeros(len(items), n_items).scatter_add_(1, items, weights.to(vectors.dtype))
            total = total + matrix @ of_role
        return total

    def _with_ids_dropped(self, roles: Attributes) -> Attributes:
        """In each role some items with their ids dropped."""
        if not self._hidden_rate:
            return roles
        is_dropped = torch.rand(len(roles.ids), 1, device=roles.ids.device) < self._hidden_rate
        return Attributes(torch.where(is_dropped, self._hidden_ids, roles.ids), roles.x, roles.fields, roles.is_present)

    def _update(self, gradient: Tensor) -> None:
        """RowAdam over the whole table, as far as rows are part of the step."""
        rows, lr = self._rows, self._lr
        # No number of the host may go to the device while a graph is recorded: fills, not assignments.
        is_touched = torch.zeros_like(rows.count)
        is_touched[self._first_row :].fill_(1.0)
        is_touched.index_fill_(0, self._step_user_ids.flatten(), 1.0)
        is_touched[:1].zero_()
        rows.count.add_(is_touched)
        rows.first_moment.add_(0.1 * is_touched * (gradient - rows.first_moment))
        rows.second_moment.add_(0.001 * is_touched * (gradient.square() - rows.second_moment))
        count = rows.count.clamp_min(1.0)
        scale = (rows.second_moment / (1.0 - 0.999**count)).sqrt_().add_(1e-8)
        change = rows.first_moment / (1.0 - 0.9**count) / scale + rows.weight_decay * rows.table
        rows.table.sub_(lr * is_touched * change)


class _fast_products:
    """Matrix products of float32 in TF32, on a GPU, within the block."""

    def __init__(self, device: torch.device) -> None:
        self._is_gpu = device.type == "cuda"

    def __enter__(self) -> None:
        self._before = torch.backends.cuda.matmul.allow_tf32
        if self._is_gpu:
            torch.backends.cuda.matmul.allow_tf32 = True

    def __exit__(self, *error: object) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self._before
