"""Scores from a model, its table and encoded attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded
from gmlfm.errors import DataError
from gmlfm.models.base import Attributes, GradientModel, PairwiseModel
from gmlfm.retrieval.folding import folded_row, other_items
from gmlfm.retrieval.item_cache import ItemSide
from gmlfm.training.sampling.groups import user_side_of

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
_PAIRS_PER_BLOCK = 20_000  # their gathered factors should stay near the processor
_NUMBERS_PER_BLOCK = 4_000_000  # of scores and table entries held at a time


class Scorer:
    """Scores from a model, its table of rows and encoded attributes."""

    def __init__(
        self,
        model: GradientModel,
        table: Tensor,
        encoded: Encoded,
        field_of_row: npt.NDArray[np.int16] | None = None,
        label_scale: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        """label_scale: centre and spread of the labels that the model was trained on, to give scores in their units."""
        self.model, self._table, self.encoded, self.label_scale = model, table, encoded, label_scale
        self._field_of_row = field_of_row if model.needs_fields else None

    def over(self, encoded: Encoded) -> Scorer:
        """The same model over other data."""
        return Scorer(self.model, self._table, encoded, self._field_of_row, self.label_scale)

    @cached_property
    def _rows(self) -> Tensor:
        """The whole table, made ready for scoring."""
        with self._quiet():
            return self.model.transform_rows(self._table)

    def rows_of(self, ids: Tensor) -> Tensor:
        """Some of the table's rows, made ready; no others are, unless the model has to see them all."""
        if self.model.whole_table:
            return self._rows[ids]
        with self._quiet():
            return self.model.transform_rows(self._table[ids])

    @cached_property
    def _item_side(self) -> ItemSide:
        return ItemSide(self._pairwise(), self._table, self.encoded.item, self._blocks_of)

    def score_pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return self.score_pairs_for(user_side_of(self.encoded, users, rows), items)

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return self.score_all_for(user_side_of(self.encoded, users, rows), items)

    def score_all_for(
        self, user_side: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        """Exact, by the cheapest form for this model: attribute-pair tables, one inner product, or pair after pair.

        history: the items of one newcomer, to which a row of her own is fitted.
        """
        own_row = None
        if history is not None and not self.model.whole_table:
            own_row = self._folded(user_side, history)
        model = self.model
        if not isinstance(model, PairwiseModel):
            return self._in_units(self._batched(user_side, np.broadcast_to(items, (len(user_side), len(items))), own_row))
        result = np.empty((len(user_side), len(items)), np.float32)
        by_table, items_here = self._tables_are_cheaper(model), self._item_side
        step = max(1, _NUMBERS_PER_BLOCK // max((items_here.n_rows if by_table else 0) + len(items), 1))
        with self._quiet():
            for start in range(0, len(user_side), step):
                part = slice(start, start + step)
                rows, asked = self._user_side_rows(self._attributes(user_side.ids[part], user_side.values[part]), own_row)
                if by_table:
                    across = items_here.by_table(rows, asked, items)
                else:
                    across = items_here.by_vectors(model.side_vectors(rows, asked, is_user=True).vector, items)
                across += model.self_terms(rows, asked, is_user=True).unsqueeze(1)
                result[part] = across.cpu().numpy()
        return self._in_units(result)

    def _user_side_rows(self, user_side: Attributes, own_row: Tensor | None) -> tuple[Tensor, Attributes]:
        """The distinct rows of those who ask, and their places; a newcomer's own row stands in for her id."""
        rows, asked = self._gathered(user_side)
        if own_row is not None:
            asked.ids[:, 0] = len(rows)
            rows = torch.cat([rows, own_row])
        return rows, asked

    def _folded(self, user_side: AttributeTable, history: Ints) -> Tensor:
        """The newcomer's row, made ready: (1, width)."""
        others = other_items(len(self.encoded.item), history)
        liked, rest = (
            self._attributes(self.encoded.item.ids[chosen][None], self.encoded.item.values[chosen][None])
            for chosen in (history, others)
        )
        asked = self._attributes(user_side.ids, user_side.values)
        row = folded_row(self.model, self._table, int(user_side.ids[0, 0]), asked, liked, rest)
        with self._quiet():
            return self.model.transform_rows(row.unsqueeze(0))

    def with_weights(self, weights: Mapping[str, Tensor]) -> Scorer:
        """The same with other numbers of the same shapes."""
        load_dense = {name.removeprefix("dense."): one for name, one in weights.items() if name.startswith("dense.")}
        self.model.load_state_dict(load_dense)
        return Scorer(self.model, weights["table"], self.encoded, self._field_of_row, self.label_scale)

    def positions(self, table: AttributeTable) -> Tensor:
        """Where each of a side's entities stands in the learned metric: (N, D)."""
        model = self._pairwise()
        with self._quiet():
            return torch.cat([model.position(rows, one) for rows, one in self._blocks_of(table)])

    def _tables_are_cheaper(self, model: PairwiseModel) -> bool:
        """Multiplications for a user and an item: D by vectors, some 2K by tables for each of the user's attributes."""
        if model.ids_only or not model.decomposes:
            return not model.ids_only
        user_width = self.encoded.user.ids.shape[1] + self.encoded.context.ids.shape[1]
        rows_per_item = self._item_side.n_rows / max(len(self.encoded.item), 1)
        by_tables = user_width * rows_per_item * (2.0 * model.row_width + 1.0) + self.encoded.item.ids.shape[1]
        return bool(by_tables < model.side_width)

    def _blocks_of(self, table: AttributeTable) -> Iterator[tuple[Tensor, Attributes]]:
        """A side's entities, some at a time: their distinct rows made ready, and their places in them."""
        step = max(1, _NUMBERS_PER_BLOCK // (16 * self.model.row_width * table.ids.shape[1]))
        for start in range(0, len(table), step):
            yield self._gathered(self._attributes(table.ids[start : start + step], table.values[start : start + step]))

    def _gathered(self, attributes: Attributes) -> tuple[Tensor, Attributes]:
        distinct, places = torch.unique(attributes.ids, return_inverse=True)
        return self.rows_of(distinct), Attributes(places, attributes.x, attributes.fields)

    def score_pairs_for(self, user_side: AttributeTable, items: Ints, users: Ints | None = None) -> Floats:
        return self._in_units(self._batched(user_side, items))

    def _batched(self, user_side: AttributeTable, items: Ints, own_row: Tensor | None = None) -> Floats:
        """Pair after pair through the model: over the whole table made ready once, or a few pairs over their own rows."""
        result = np.empty(items.shape, np.float32)
        few = not self.model.whole_table and items.size * self.encoded.item.ids.shape[1] < len(self._table)
        step = max(1, _PAIRS_PER_BLOCK // max(items.shape[1], 1))
        with self._quiet():
            for start in range(0, len(items), step):
                part = slice(start, start + step)
                asked = self._attributes(user_side.ids[part], user_side.values[part])
                item_side = self._attributes(self.encoded.item.ids[items[part]], self.encoded.item.values[items[part]])
                rows, asked, item_side = self._together(asked, item_side) if few else (self._rows, asked, item_side)
                if own_row is not None:
                    asked.ids[:, 0] = len(rows)
                    rows = torch.cat([rows, own_row])
                result[part] = self.model.scores(rows, asked, item_side).cpu().numpy()
        return result

    def _together(self, user_side: Attributes, item_side: Attributes) -> tuple[Tensor, Attributes, Attributes]:
        ids = torch.cat([user_side.ids.flatten(), item_side.ids.flatten()])
        distinct, places = torch.unique(ids, return_inverse=True)
        left, right = places.split([user_side.ids.numel(), item_side.ids.numel()])
        return (
            self.rows_of(distinct),
            Attributes(left.view(user_side.ids.shape), user_side.x, user_side.fields),
            Attributes(right.view(item_side.ids.shape), item_side.x, item_side.fields),
        )

    def _pairwise(self) -> PairwiseModel:
        assert isinstance(self.model, PairwiseModel)
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
