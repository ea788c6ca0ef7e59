"""Items as a step of a model with histories reads them: some with their ids dropped, and in the roles of a history."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable
from gmlfm.models.base import HistorySpec
from gmlfm.models.history import in_role
from gmlfm.training.sampling.groups import IdRows

Ints = npt.NDArray[np.int32]


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
        self.items, self._ids, self._spec = take_items(items, candidates), ids, spec
        self._roles = [in_role(earlier, spec, role) for role in range(len(spec.roles))]
        self.first_row = n_rows - (1 + len(spec.roles)) * spec.block
        self.rows = np.arange(self.first_row, n_rows)

    def items_hidden(self, rate: float, rng: np.random.Generator) -> AttributeTable:
        return with_ids_dropped(self.items, self._ids.unknown_item, rate, self._ids.negative_only_row, rng)

    @property
    def in_roles(self) -> AttributeTable:
        """The items by their rows in each role, role after role."""
        return _joined(self._roles)

    def roles_hidden(self, rate: float, rng: np.random.Generator) -> AttributeTable:
        """Role after role."""
        unknown = self._ids.unknown_item
        sides = [
            with_ids_dropped(side, unknown + self._spec.shift(role), rate, -1, rng) for role, side in enumerate(self._roles)
        ]
        return _joined(sides)


def take_items(items: AttributeTable, numbers: Ints) -> AttributeTable:
    return AttributeTable(items.ids[numbers], items.values[numbers])


def _joined(tables: list[AttributeTable]) -> AttributeTable:
    return AttributeTable(*(np.concatenate([getattr(side, name) for side in tables]) for name in ("ids", "values")))


def with_ids_dropped(items: AttributeTable, unknown: int, rate: float, never: int, rng: np.random.Generator) -> AttributeTable:
    """never: the row of items whose ids stay."""
    if rate == 0:
        return items
    is_dropped = (rng.random(len(items.ids), np.float32) < rate) & (items.ids[:, 0] != never)
    ids = np.array(items.ids)
    ids[is_dropped, 0] = unknown
    return AttributeTable(ids, items.values)
