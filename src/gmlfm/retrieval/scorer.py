"""Scores from a model, its table and encoded attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.batches import asking_of
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.errors import DataError
from gmlfm.models.base import Attributes, Model, Pairwise
from gmlfm.retrieval.folding import folded_row, other_items

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
_PAIRS_A_BLOCK = 20_000  # their gathered factors should stay near the processor
_NUMBERS_A_BLOCK = 4_000_000  # of scores and table entries held at a time


class Scorer:
    """Scores from a model, its table of rows and encoded attributes."""

    def __init__(
        self,
        model: Model,
        table: Tensor,
        encoded: Encoded,
        field_of_row: npt.NDArray[np.int16] | None = None,
        label_scale: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        """label_scale: centre and spread of the labels that the model was trained on, to give scores in their units."""
        self.model, self._table, self.encoded, self.label_scale = model, table, encoded, label_scale
        self._field_of_row = field_of_row if model.needs_fields else None
        self._held: tuple[Ints, list[tuple[Tensor, Tensor | None, Tensor | None]]] | None = None

    def over(self, encoded: Encoded) -> Scorer:
        """The same model over other data."""
        return Scorer(self.model, self._table, encoded, self._field_of_row, self.label_scale)

    @cached_property
    def rows(self) -> Tensor:
        """The table, made ready for scoring."""
        self.model.eval()
        with torch.no_grad():
            return self.model.ready(self._table)

    def pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return self.pairs_for(asking_of(self.encoded, users, rows), items)

    def everything(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return self.everything_for(asking_of(self.encoded, users, rows), items)

    def everything_for(
        self, asking: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        """Exact, by the cheapest form for this model: attribute-pair tables, one inner product, or pair after pair.

        history: the items of one newcomer, to which a row of her own is fitted.
        """
        own_row = None
        if history is not None and not self.model.whole_table:
            own_row = self._folded(asking, history)
        model = self.model
        if not isinstance(model, Pairwise):
            return self._in_units(self._batched(asking, np.broadcast_to(items, (len(asking), len(items))), own_row))
        result = np.empty((len(asking), len(items)), np.float32)
        by_table = self._tables_are_cheaper(model)
        width = (self._last - self._first if by_table else 0) + len(items)
        step = max(1, _NUMBERS_A_BLOCK // max(width, 1))
        with self._quiet():
            for start in range(0, len(asking), step):
                part = slice(start, start + step)
                rows, asked = self._asking_rows(self._attributes(asking.ids[part], asking.values[part]), own_row)
                if by_table:
                    across = self._by_table(model, rows, asked, items)
                else:
                    across = model.sides(rows, asked, asking=True).vector @ self._vectors(items).T
                across += self._item_own[items]
                across += model.own(rows, asked, asking=True).unsqueeze(1)
                result[part] = across.cpu().numpy()
        return self._in_units(result)

    def _asking_rows(self, asking: Attributes, own_row: Tensor | None) -> tuple[Tensor, Attributes]:
        """The distinct rows of those who ask, and their places; a newcomer's own row stands in for her id."""
        left, places = torch.unique(asking.ids, return_inverse=True)
        rows = self.rows[left]
        if own_row is not None:
            rows = torch.cat([rows, own_row])
            places[:, 0] = len(left)
        return rows, Attributes(places, asking.x, asking.fields)

    def _folded(self, asking: AttributeTable, history: Ints) -> Tensor:
        """The newcomer's row, made ready: (1, width)."""
        others = other_items(len(self.encoded.item), history)
        liked, rest = (
            self._attributes(self.encoded.item.ids[chosen][None], self.encoded.item.values[chosen][None])
            for chosen in (history, others)
        )
        asked = self._attributes(asking.ids, asking.values)
        row = folded_row(self.model, self._table, int(asking.ids[0, 0]), asked, liked, rest)
        with self._quiet():
            return self.model.ready(row.unsqueeze(0))

    def with_weights(self, weights: Mapping[str, Tensor]) -> Scorer:
        """The same with other numbers of the same shapes."""
        load_dense = {name.removeprefix("dense."): one for name, one in weights.items() if name.startswith("dense.")}
        self.model.load_state_dict(load_dense)
        return Scorer(self.model, weights["table"], self.encoded, self._field_of_row, self.label_scale)

    def positions(self, table: AttributeTable) -> Tensor:
        """Where each of a side's entities stands in the learned metric: (N, D)."""
        model = self._pairwise()
        with self._quiet():
            return torch.cat([model.position(self.rows, one) for one in self._blocks_of(table)])

    def _tables_are_cheaper(self, model: Pairwise) -> bool:
        """Multiplications for a user and an item: D by vectors, some 2K by tables for each of the user's attributes."""
        if model.ids_only or not model.decomposes:
            return not model.ids_only
        n_asking = self.encoded.user.ids.shape[1] + self.encoded.context.ids.shape[1]
        rows_an_item = (self._last - self._first) / max(len(self.encoded.item), 1)
        by_tables = n_asking * rows_an_item * (2.0 * model.row_width + 1.0) + self.encoded.item.ids.shape[1]
        return bool(by_tables < model.side_width)

    def _by_table(self, model: Pairwise, left: Tensor, asking: Attributes, items: Ints) -> Tensor:
        """cross(u, i) = sum of x_a x_b pair(a, b): pairs of DISTINCT attributes once, then sums by side."""
        weight, distance = model.pair_parts(left, self.rows[self._first : self._last])
        table = weight if distance is None else weight.mul_(distance)
        of_user = functional.embedding_bag(asking.ids, table, per_sample_weights=asking.x, mode="sum")
        found = torch.zeros(len(asking.ids), len(items), device=table.device)
        for rows, x, there in self._columns(items):
            part = of_user.index_select(1, rows)
            if there is not None:
                found.index_add_(1, there, part if x is None else part * x)
            elif x is None:
                found += part
            else:
                found.addcmul_(part, x)
        return found

    def _columns(self, items: Ints) -> list[tuple[Tensor, Tensor | None, Tensor | None]]:
        """The items' attributes column by column: rows, x unless it is 1 everywhere, and, where most of a column is padding (a
        set's later members), which items have one. Kept for the next question, which mostly asks for the same items."""
        if self._held is None or not np.array_equal(self._held[0], items):
            chosen = torch.from_numpy(items.astype(np.int64)).to(self._table.device)
            columns = []
            for at in range(self.encoded.item.ids.shape[1]):
                rows, x = self._item_places[chosen, at], self._item_x[chosen, at]
                there = torch.nonzero(x).squeeze(1)
                sparse = 2 * len(there) < len(items)
                if sparse:
                    rows, x = rows[there], x[there]
                if len(there):
                    columns.append((rows, None if bool((x == 1).all()) else x, there if sparse else None))
            self._held = (items.copy(), columns)
        return self._held[1]

    def _vectors(self, items: Ints) -> Tensor:
        everything = np.array_equal(items, np.arange(len(self._item_vectors)))
        chosen = torch.from_numpy(items.astype(np.int64)).to(self._table.device)
        return self._item_vectors if everything else self._item_vectors[chosen]

    @cached_property
    def _first(self) -> int:
        """The items' rows stand together at the end of the table; padding is row 0."""
        ids = self.encoded.item.ids
        return int(ids.min(initial=self._table.shape[0], where=self.encoded.item.values != 0))

    @cached_property
    def _last(self) -> int:
        return int(self.encoded.item.ids.max(initial=0)) + 1

    @cached_property
    def _item_places(self) -> Tensor:
        places = np.maximum(self.encoded.item.ids.astype(np.int64) - self._first, 0)
        return torch.from_numpy(places).to(self._table.device)

    @cached_property
    def _item_x(self) -> Tensor:
        return torch.from_numpy(np.array(self.encoded.item.values)).to(self._table.device)

    @cached_property
    def _item_own(self) -> Tensor:
        model = self._pairwise()
        return torch.cat([model.own(self.rows, one, asking=False) for one in self._blocks_of(self.encoded.item)])

    @cached_property
    def _item_vectors(self) -> Tensor:
        model = self._pairwise()
        blocks = self._blocks_of(self.encoded.item)
        return torch.cat([model.sides(self.rows, one, asking=False).vector for one in blocks])

    def _blocks_of(self, table: AttributeTable) -> Iterator[Attributes]:
        step = max(1, _NUMBERS_A_BLOCK // (16 * self.model.row_width * table.ids.shape[1]))
        for start in range(0, len(table), step):
            yield self._attributes(table.ids[start : start + step], table.values[start : start + step])

    def pairs_for(self, asking: AttributeTable, items: Ints, users: Ints | None = None) -> Floats:
        return self._in_units(self._batched(asking, items))

    def _batched(self, asking: AttributeTable, items: Ints, own_row: Tensor | None = None) -> Floats:
        """Pair after pair through the model."""
        result = np.empty(items.shape, np.float32)
        rows = self.rows if own_row is None else torch.cat([self.rows, own_row])
        step = max(1, _PAIRS_A_BLOCK // max(items.shape[1], 1))
        with self._quiet():
            for start in range(0, len(items), step):
                part = slice(start, start + step)
                asked = self._attributes(asking.ids[part], asking.values[part])
                if own_row is not None:
                    asked.ids[:, 0] = len(self.rows)
                answering = self._attributes(self.encoded.item.ids[items[part]], self.encoded.item.values[items[part]])
                result[part] = self.model.scores(rows, asked, answering).cpu().numpy()
        return result

    def _pairwise(self) -> Pairwise:
        assert isinstance(self.model, Pairwise)
        return self.model

    def _in_units(self, scores: Floats) -> Floats:
        centre, spread = self.label_scale
        return _finite(scores if (centre, spread) == (0.0, 1.0) else scores * np.float32(spread) + np.float32(centre))

    def _attributes(self, ids: npt.NDArray[np.int32], values: Floats) -> Attributes:
        device = self._table.device
        x = torch.from_numpy(np.array(values, dtype=np.float32))  # a copy: tables may be read-only
        fields = None
        if self._field_of_row is not None:
            fields = torch.from_numpy(self._field_of_row[ids].astype(np.int64)).to(device)
        return Attributes(torch.from_numpy(ids.astype(np.int64)).to(device), x.to(device), fields)

    def _quiet(self) -> torch.no_grad:
        self.model.eval()
        return torch.no_grad()


def _finite(scores: Floats) -> Floats:
    """NaN must never look like a ranking."""
    if not np.isfinite(scores).all():
        raise DataError(
            "the model gives scores that are no numbers; it was trained with too high an lr, or its file is damaged."
        )
    return scores
