"""What users' histories add up to, by role; what each item adds is computed once and kept between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import History
from gmlfm.models.base import HistorySpec
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.history import bag_sums, distinct_items, in_role, role_bags

_MOST_NUMBERS_KEPT = 64_000_000  # 256 MB


class RoleSums:
    """The sums over histories of what items add to a user in each role: (N, D) a role."""

    def __init__(
        self,
        model: GradientModel,
        table: Tensor,
        items: AttributeTable,
        spec: HistorySpec,
        blocks: Callable[[AttributeTable], Iterator[tuple[Tensor, Attributes]]],
        centred: Callable[[Tensor], Tensor],
    ) -> None:
        """blocks: entities some at a time, as transformed rows and the attributes' places in them; centred: moves transformed
        rows to the origin from which the vectors of both sides are taken."""
        self._model, self._table, self._items, self.spec = model, table, items, spec
        self._blocks, self._centred = blocks, centred
        self._cached: list[Tensor] | None = None
        self._n_computed, self._lock = 0, threading.Lock()

    def __call__(self, history: History) -> list[Tensor]:
        """For each role what the users' items add up to."""
        if len(history.items) == 0:
            return [self._table.new_zeros(len(history), self._width) for _ in self.spec.roles]
        bags = [role_bags(history, role, self.spec) for role in self.spec.roles]
        if self._cached is None:
            items, local = distinct_items(bags)
            if not self._pays(len(items)):
                chosen = AttributeTable(self._items.ids[items], self._items.values[items])
                return [bag_sums(bag, self.vectors(chosen, role)) for role, bag in enumerate(local)]
            self._keep()
        assert self._cached is not None
        return [bag_sums(bag, vectors) for bag, vectors in zip(bags, self._cached, strict=True)]

    def vectors(self, items: AttributeTable, role: int) -> Tensor:
        """What items add to a user at weight 1 in role number `role` of the history: (I, D)."""
        blocks = self._blocks(in_role(items, self.spec, role))
        vectors = [self._model.history_vectors(self._centred(rows), side) for rows, side in blocks]
        return self._model.in_role(torch.cat(vectors), self.spec.roles[role])

    @cached_property
    def _width(self) -> int:
        items = self._items
        return self.vectors(AttributeTable(items.ids[:1], items.values[:1]), 0).shape[1] if len(items) else 1

    def _pays(self, n_items: int) -> bool:
        """Whether all items' vectors fit, and as many were asked for until now as there are: then keeping them costs no more
        than what was computed, and nothing is computed for somebody who asks for one user."""
        with self._lock:
            self._n_computed += n_items
            is_due = self._n_computed >= len(self._items)
        return is_due and len(self._items) * len(self.spec.roles) * self._width <= _MOST_NUMBERS_KEPT

    def _keep(self) -> None:
        with self._lock:  # several threads score at the same time; the others wait for the first one's vectors
            if self._cached is None:
                self._cached = [self.vectors(self._items, role) for role in range(len(self.spec.roles))]
