"""Items as a step of a model with histories reads them: some with their ids dropped, and in the roles of a history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.models.base import HistorySpec
from gmlfm.models.history import in_role
from gmlfm.training.sampling.groups import IdRows

Ints = npt.NDArray[np.int32]
_ROUNDING = 1e-9  # 10 steps at a rate of .1 make one, though .1 is not quite a tenth


class Catalogue:
    """All items as a step scores them and as they stand in histories, for the softmax over the whole catalogue."""

    def __init__(
        self,
        items: AttributeTable,
        earlier: AttributeTable,
        candidates: Ints,
        ids: IdRows,
        spec: HistorySpec,
        n_rows: int,
    ) -> None:
        shown = take_items(items, candidates)
        self._items = {False: shown, True: with_ids_dropped(shown, ids.unknown_item, 1.0, ids.negative_only_row)}
        self._ids, self._spec = ids, spec
        self._earlier = earlier
        self.first_row = n_rows - (1 + len(spec.roles)) * spec.block
        self.rows = np.arange(self.first_row, n_rows)

    def items(self, *, hides: bool) -> AttributeTable:
        """hides: with their ids hidden."""
        return self._items[hides]

    def in_roles(self, hidden: float = 0.0, rng: np.random.Generator | None = None) -> AttributeTable:
        """The items by their rows in each role, role after role; hidden: the share whose ids are hidden."""
        roles, unknown = range(len(self._spec.roles)), self._ids.unknown_item
        return _joined([in_role(with_ids_dropped(self._earlier, unknown, hidden, -1, rng), self._spec, role) for role in roles])


def take_items(items: AttributeTable, numbers: Ints) -> AttributeTable:
    return AttributeTable(items.ids[numbers], items.values[numbers])


def _joined(tables: list[AttributeTable]) -> AttributeTable:
    return AttributeTable(*(np.concatenate([getattr(side, name) for side in tables]) for name in ("ids", "values")))


def is_due(step: int, rate: float) -> bool:
    """Whether after step number `step` of an epoch there is one with ids hidden, of which there are `rate` for each."""
    return int((step + 1) * rate + _ROUNDING) > int(step * rate + _ROUNDING)


def at_level_of(shown: Any, hidden: Any, users: Tensor) -> Any:
    r"""Items with their ids hidden, each as high, on the mean over some users (B, D), as with its id in sight.

    .. math:: \hat y(u, \mathrm{unknown}, a_i) - \mathrm{mean}_{u'} + \mathrm{mean}_{u'} \hat y(u', i, a_i)

    So attributes learn how users differ about items; how much all like those of a kind is not learned from its few known ones.
    shown, hidden: side vectors of the items; gradients go to the hidden ones alone.
    """
    mean = users.detach().mean(0)
    level = shown.self_terms + shown.vector @ mean
    return replace(hidden, self_terms=level - hidden.vector @ mean)


def with_ids_dropped(
    items: AttributeTable, unknown: int, rate: float, never: int, rng: np.random.Generator | None = None
) -> AttributeTable:
    """A share of the items at the unknown row instead of their own; all of them at rate 1. never: the row of items whose ids
    stay."""
    if rate == 0:
        return items
    is_dropped = items.ids[:, 0] != never
    if rate < 1:
        assert rng is not None
        is_dropped &= rng.random(len(items.ids), np.float32) < rate
    ids = np.array(items.ids)
    ids[is_dropped, 0] = unknown
    return AttributeTable(ids, items.values)
