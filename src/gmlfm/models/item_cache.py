"""The items' half of every score, computed once and kept between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.attributes import PADDING, AttributeTable
from gmlfm.models.base import Ints
from gmlfm.models.gradient import Attributes
from gmlfm.models.pairwise import PairwiseModel

Blocks = Callable[[AttributeTable], Iterator[tuple[Tensor, Attributes]]]
_NUMBERS_PER_TILE = 250_000  # stay near the processor
_FEW_USERS = 4  # so few are summed by one product, which needs no table with a contiguous row for each attribute


class _Column(NamedTuple):
    """One attribute of each item: its place among the items' rows, x unless it is 1 everywhere, and, where most of the column
    is padding (a set's later members), which items have one."""

    rows: Tensor
    x: Tensor | None
    present: Tensor | None


@dataclass(frozen=True)
class _Chosen:
    """The items of the last call, which the next mostly names again."""

    items: Ints
    self_terms: Tensor
    columns: list[_Column]


class ItemCache:
    """What a pairwise model's scores take of the items.

    Beside the table itself, which is not copied, n items of F attributes hold what the model caches of their distinct rows
    (K + 2 numbers each for GML-FM) or n D numbers of vectors, and n (F + 1) or n D numbers of the items named last.
    """

    def __init__(
        self,
        model: PairwiseModel,
        table: Tensor,
        items: AttributeTable,
        blocks: Blocks,
        centred: Callable[[Tensor], Tensor],
    ) -> None:
        """blocks: a side's entities some at a time, as transformed rows and the attributes' places in them; centred: moves
        transformed rows to the origin from which the vectors of both sides are taken."""
        self._model, self._table, self._items, self._blocks, self._centred = model, table, items, blocks, centred
        self._last: _Chosen | None = None
        self._last_vectors: tuple[Ints, Tensor, Tensor] | None = None
        self._last_index: tuple[Ints, Tensor] | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def n_rows(self) -> int:
        return self._bounds[1] - self._bounds[0]

    def by_table(self, left: Tensor, users: Attributes, items: Ints) -> Tensor:
        """cross(u, i) + self_terms(i), the sum of x_a x_b pair(a, b): pairs of DISTINCT attributes once, then sums by side."""
        table = self._model.pair_table(left, self._cached_rows)
        counting = self._model.counting(users)
        ids, x = counting.ids, counting.x
        if len(ids) <= _FEW_USERS:
            shares = table.new_zeros(len(ids), len(left)).scatter_add_(1, ids, x)
            by_user = shares @ table
        else:
            by_user = functional.embedding_bag(ids, table.contiguous(), per_sample_weights=x, mode="sum")
        chosen = self._choose(items)
        scores = chosen.self_terms.repeat(len(ids), 1)
        for column in chosen.columns:
            cross = by_user.index_select(1, column.rows)
            if column.present is not None:
                scores.index_add_(1, column.present, cross if column.x is None else cross * column.x)
            elif column.x is None:
                scores += cross
            else:
                scores.addcmul_(cross, column.x)
        return scores

    def by_vectors(self, users: Tensor, items: Ints, out: Tensor | None = None) -> Tensor:
        """vector_u . vector_i + self_terms(i): users (N, D) -> (N, len(items)), written to `out` where it is given."""
        if len(users) <= _FEW_USERS and 4 * len(items) >= len(self):
            # Scores of some items more cost less than a copy of most of the vectors.
            products = torch.mv(self._vectors, users[0]).unsqueeze(0) if len(users) == 1 else (self._vectors @ users.T).T
            scores = products + self._self_terms
            return scores if self._are_all(items) else scores.index_select(1, self._index_of(items))
        vectors, self_terms = self._vectors_of(items)
        if out is None or torch.get_num_threads() > 1:  # threads would have to meet after every tile
            return torch.addmm(self_terms, users, vectors.T, out=out)
        # A product into memory that is new takes half as long again as one that stays near the processor and is then copied.
        step = max(1, _NUMBERS_PER_TILE // max(len(users), 1))
        tile = users.new_empty(len(users), min(step, len(items)))
        for start in range(0, len(items), step):
            block = slice(start, min(start + step, len(items)))
            out[:, block] = torch.addmm(self_terms[block], users, vectors[block].T, out=tile[:, : block.stop - start])
        return out

    def pairs_by_vectors(self, users: Tensor, items: Ints) -> Tensor:
        """vector_u . vector_i + self_terms(i) of each user's own items: users (N, D), items (N, G) -> (N, G)."""
        chosen = torch.from_numpy(items.astype(np.int64)).to(self._table.device)
        return torch.bmm(self._vectors[chosen], users.unsqueeze(-1)).squeeze(-1) + self._self_terms[chosen]

    def _are_all(self, items: Ints) -> bool:
        return len(items) == len(self) and np.array_equal(items, np.arange(len(self)))

    def _vectors_of(self, items: Ints) -> tuple[Tensor, Tensor]:
        """The vectors and self terms of some items; those of the last call, unless they are all, are kept."""
        if self._are_all(items):
            return self._vectors, self._self_terms
        last = self._last_vectors  # another thread may replace it
        if last is None or not _are_same(last[0], items):
            chosen = torch.from_numpy(items.astype(np.int64)).to(self._table.device)
            self._last_vectors = last = _to_compare(items), self._vectors[chosen], self._self_terms[chosen]
        return last[1:]

    def _index_of(self, items: Ints) -> Tensor:
        """The items of the last call, on the device of the table."""
        last = self._last_index  # another thread may replace it
        if last is None or not _are_same(last[0], items):
            self._last_index = last = _to_compare(items), torch.from_numpy(items.copy()).to(self._table.device)
        return last[1]

    def _choose(self, items: Ints) -> _Chosen:
        last = self._last  # another thread may replace it
        if last is None or not _are_same(last.items, items):
            width = 1 if self._model.ids_only else self._items.ids.shape[1]
            columns = [self._column(number, items) for number in range(width)]
            self_terms = self._self_terms[torch.from_numpy(items.astype(np.int64)).to(self._table.device)]
            self._last = last = _Chosen(_to_compare(items), self_terms, [column for column in columns if len(column.rows)])
        return last

    def _column(self, number: int, items: Ints) -> _Column:
        device = self._table.device
        rows, x = self._items.ids[items, number] - self._bounds[0], self._items.values[items, number]
        x = np.ones_like(x) if self._model.ids_only else x
        present = np.flatnonzero(x)
        is_sparse = 2 * len(present) < len(items)
        if is_sparse:
            rows, x = rows[present], x[present]
        # Half the bytes of the usual index: with a million items it is the index that takes the time.
        places = torch.from_numpy(np.maximum(rows, 0).astype(np.int32)).to(device)
        scale = None if (x == 1).all() else torch.from_numpy(x.astype(np.float32)).to(device)
        return _Column(places, scale, torch.from_numpy(present).to(device) if is_sparse else None)

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """The items' rows stand together at the end of the table; padding is row 0."""
        ids = self._items.ids
        first_row = int(ids.min(initial=len(self._table), where=ids != PADDING))
        return first_row, int(ids.max(initial=0)) + 1

    @cached_property
    def _cached_rows(self) -> tuple[Tensor, ...]:
        return self._model.item_cache(self._table[self._bounds[0] : self._bounds[1]])

    @cached_property
    def _self_terms(self) -> Tensor:
        return torch.cat([self._model.self_terms(rows, side, is_user=False) for rows, side in self._blocks(self._items)])

    @cached_property
    def _vectors(self) -> Tensor:
        self_terms, vectors = [], []
        for rows, side in self._blocks(self._items):
            centred = self._centred(rows)
            own = self._model.side_vectors(centred, side, is_user=False)
            vectors.append(own.vector)
            self_terms.append(own.self_terms if centred is rows else self._model.self_terms(rows, side, is_user=False))
        self.__dict__.setdefault("_self_terms", torch.cat(self_terms))  # found by the way
        return torch.cat(vectors)


def _to_compare(items: Ints) -> Ints:
    """Items to be compared with those of later calls: themselves, where nobody writes to them, else a copy."""
    return items.copy() if items.flags.writeable else items


def _are_same(earlier: Ints, items: Ints) -> bool:
    return (earlier is items and not items.flags.writeable) or np.array_equal(earlier, items)
