"""The catalogue's half of every score, computed once and kept between questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.attributes import AttributeTable
from gmlfm.models.base import Attributes, PairwiseModel

Ints = npt.NDArray[np.int32]
Blocks = Callable[[AttributeTable], Iterator[tuple[Tensor, Attributes]]]
_FEW_USERS = 4  # so few are summed by one product, which needs no table with a contiguous row for each attribute


class _Column(NamedTuple):
    """One attribute of each item: its place among the items' rows, x unless it is 1 everywhere, and, where most of the column
    is padding (a set's later members), which items have one."""

    rows: Tensor
    x: Tensor | None
    there: Tensor | None


@dataclass(frozen=True)
class _Chosen:
    """The items of the last question, which the next mostly asks for again."""

    items: Ints
    self_terms: Tensor
    columns: list[_Column]


class ItemSide:
    """What a pairwise model's scores take of the items.

    Beside the table itself, which is not copied, n items of F attributes hold what the model keeps of their distinct rows
    (K + 2 numbers each for GML-FM) or n D numbers of vectors, and n (F + 1) numbers of the items asked for last.
    """

    def __init__(self, model: PairwiseModel, table: Tensor, items: AttributeTable, blocks: Blocks) -> None:
        """blocks: a side's entities some at a time, as rows made ready and the attributes' places in them."""
        self._model, self._table, self._items, self._blocks = model, table, items, blocks
        self._last: _Chosen | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def n_rows(self) -> int:
        return self._bounds[1] - self._bounds[0]

    def by_table(self, left: Tensor, user_side: Attributes, items: Ints) -> Tensor:
        """cross(u, i) + own(i), the sum of x_a x_b pair(a, b): pairs of DISTINCT attributes once, then sums by side."""
        table = self._model.pair_table(left, self._kept)
        if len(user_side.ids) <= _FEW_USERS:
            shares = table.new_zeros(len(user_side.ids), len(left)).scatter_add_(1, user_side.ids, user_side.x)
            of_user = shares @ table
        else:
            of_user = functional.embedding_bag(user_side.ids, table.contiguous(), per_sample_weights=user_side.x, mode="sum")
        chosen = self._choose(items)
        found = chosen.self_terms.repeat(len(user_side.ids), 1)
        for rows, x, there in chosen.columns:
            part = of_user.index_select(1, rows)
            if there is not None:
                found.index_add_(1, there, part if x is None else part * x)
            elif x is None:
                found += part
            else:
                found.addcmul_(part, x)
        return found

    def by_vectors(self, user_side: Tensor, items: Ints) -> Tensor:
        """vector_u . vector_i + own(i): user side (N, D) -> (N, len(items))."""
        if 4 * len(items) < len(self):
            chosen = torch.from_numpy(items.astype(np.int64)).to(self._table.device)
            return (user_side @ self._vectors[chosen].T).add_(self._own[chosen])
        # Scores of some items more cost less than a copy of most of the vectors.
        found = (self._vectors @ user_side.T).T if len(user_side) <= _FEW_USERS else user_side @ self._vectors.T
        found = found + self._own
        if len(items) == len(self) and np.array_equal(items, np.arange(len(self))):
            return found
        return found.index_select(1, torch.from_numpy(items).to(found.device))

    def _choose(self, items: Ints) -> _Chosen:
        if self._last is None or not np.array_equal(self._last.items, items):
            columns = [self._column(at, items) for at in range(self._items.ids.shape[1])]
            own = self._own[torch.from_numpy(items.astype(np.int64)).to(self._table.device)]
            self._last = _Chosen(items.copy(), own, [one for one in columns if len(one.rows)])
        return self._last

    def _column(self, at: int, items: Ints) -> _Column:
        device = self._table.device
        rows, x = self._items.ids[items, at] - self._bounds[0], self._items.values[items, at]
        there = np.flatnonzero(x)
        sparse = 2 * len(there) < len(items)
        if sparse:
            rows, x = rows[there], x[there]
        # Half the bytes of the usual index: with a million items it is the index that takes the time.
        places = torch.from_numpy(np.maximum(rows, 0).astype(np.int32)).to(device)
        scale = None if (x == 1).all() else torch.from_numpy(x.astype(np.float32)).to(device)
        return _Column(places, scale, torch.from_numpy(there).to(device) if sparse else None)

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """The items' rows stand together at the end of the table; padding is row 0."""
        ids = self._items.ids
        first = int(ids.min(initial=len(self._table), where=self._items.values != 0))
        return first, int(ids.max(initial=0)) + 1

    @cached_property
    def _kept(self) -> tuple[Tensor, ...]:
        return self._model.item_cache(self._table[self._bounds[0] : self._bounds[1]])

    @cached_property
    def _own(self) -> Tensor:
        return torch.cat([self._model.self_terms(rows, one, is_user=False) for rows, one in self._blocks(self._items)])

    @cached_property
    def _vectors(self) -> Tensor:
        return torch.cat([self._model.side_vectors(rows, one, is_user=False).vector for rows, one in self._blocks(self._items)])
