"""Scores of a gradient model: its table, the items' attributes, and the cheapest exact form for each question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import History
from gmlfm.errors import NotFiniteError
from gmlfm.models.base import Floats, HistorySpec, Ints, UserSide
from gmlfm.models.folding import folded_row, other_items
from gmlfm.models.gradient import Attributes, GradientModel, gather
from gmlfm.models.history import pooled_side
from gmlfm.models.item_cache import ItemCache
from gmlfm.models.pairwise import PairwiseModel, SideVectors
from gmlfm.models.role_sums import RoleSums

_FACTORS_PER_BLOCK = 500_000  # of the pairs scored at a time: 2 MB stay near the processor, and larger memory is new each time
_NUMBERS_PER_BLOCK = 4_000_000  # of scores and table entries held at a time
_NUMBERS_KEPT, _USERS_KEPT = 4_000_000, 32_768  # of the vectors of users who were asked for alone: 16 MB at most
_USERS_PER_PRODUCT = 1024  # whose attributes' factors are held at a time
_N_FOR_ORIGIN = 1_000  # items, at least, whose mean is amid them


Vectors = tuple[Tensor, Tensor]  # self terms (N,) and vectors (N, D)


class RowScorer:
    """label_scale: centre and spread of the labels that the model was trained on, to give scores in their units."""

    def __init__(
        self,
        model: GradientModel,
        table: Tensor,
        items: AttributeTable,
        field_of_row: npt.NDArray[np.int16] | None,
        label_scale: tuple[float, float],
        history: HistorySpec | None = None,
    ) -> None:
        self.model, self._table, self._items, self._label_scale = model, table, items, label_scale
        self._field_of_row, self._history = field_of_row, history
        self._pairwise = model if isinstance(model, PairwiseModel) else None
        self._kept_vectors: dict[tuple[bytes, ...], Vectors] = {}

    @cached_property
    def _rows(self) -> Tensor:
        """The whole table, transformed for scoring."""
        with self._no_training():
            return self.model.transform_rows(self._table)

    def rows_of(self, ids: Tensor) -> Tensor:
        """Some of the table's rows, transformed; no others are, unless the model has to see them all."""
        if self.model.whole_table:
            return self._rows[ids]
        with self._no_training():
            return self.model.transform_rows(self._table[ids])

    @cached_property
    def _item_cache(self) -> ItemCache:
        assert self._pairwise is not None
        return ItemCache(self._pairwise, self._table, self._items, self._blocks_of, self.centred)

    @cached_property
    def _origin(self) -> Tensor | None:
        """Amid the points of the items' ids: (1, width), 0 outside of the points' columns."""
        if self._pairwise is None or self._pairwise.points is None or not len(self._items):
            return None
        ids = self._items.ids[:: max(1, len(self._items) // _N_FOR_ORIGIN), 0].astype(np.int64)
        mean = self.rows_of(torch.from_numpy(ids).to(self._table.device)).mean(0, keepdim=True)
        origin = torch.zeros_like(mean)
        origin[:, self._pairwise.points] = mean[:, self._pairwise.points]
        return origin

    def centred(self, rows: Tensor) -> Tensor:
        """Transformed rows with their points moved together, by which no score changes: squared distances by sums of squares
        would lose the digits that all points have in common."""
        return rows if self._origin is None else rows - self._origin

    def score_all(self, users: UserSide, items: Ints, out: Floats | None = None) -> Floats:
        """Exact, by the cheapest form for this model: attribute-pair tables, one inner product, or pair after pair.

        To the history of a user whom training did not see a row of their own is fitted.
        """
        attributes, model = users.attributes, self._pairwise
        if self._history is not None:
            return self._in_units(self._with_history(users, items, out), out)
        own_row = self._folded(attributes, users.history.items) if self._folds(users) and users.history is not None else None
        if model is None:
            return self._in_units(self._by_pairs(attributes, np.broadcast_to(items, (len(users), len(items))), own_row), out)
        result = np.empty((len(users), len(items)), np.float32) if out is None else out
        by_table, cache = self._tables_are_cheaper(model, attributes.ids.shape[1]), self._item_cache
        is_direct = not by_table and self._table.device.type == "cpu"  # a product is written where it belongs
        numbers_per_user = (cache.n_rows if by_table else 0) + len(items)
        step = _USERS_PER_PRODUCT if is_direct else max(1, _NUMBERS_PER_BLOCK // max(numbers_per_user, 1))
        with self._no_training():
            for start in range(0, len(users), step):
                block = slice(start, start + step)
                rows, sides = self._with_own_row(self._attributes(attributes.ids[block], attributes.values[block]), own_row)
                place = torch.from_numpy(result[block]) if is_direct else None
                if by_table:
                    scores = cache.by_table(rows, sides, items)
                else:
                    vectors = model.side_vectors(self.centred(rows), sides, is_user=True).vector
                    scores = cache.by_vectors(vectors, items, place)
                scores += model.self_terms(rows, sides, is_user=True).unsqueeze(1)
                if scores is not place:
                    result[block] = scores.cpu().numpy()
        return self._in_units(result, out)

    def score_pairs(self, users: UserSide, items: Ints) -> Floats:
        if self._history is not None and self._pairwise is not None:
            return self._in_units(self._pairs_with_history(users, items))
        return self._in_units(self._by_pairs(self.attributes_of(users), items, history=users.history))

    def attributes_of(self, users: UserSide) -> AttributeTable:
        """By which users are scored, beside their history."""
        if self._history is None:
            return users.attributes
        is_newcomer = np.ones(len(users), bool) if users.history is None else users.history.lengths == 0
        return self._history.user_attributes(users.attributes, is_newcomer)

    def user_vectors(self, users: UserSide) -> Vectors:
        """The self terms (N,) and vectors (N, D) of users with what they did before, for a model that decomposes. Those of one
        user alone are kept, by all that they are made of."""
        if len(users) != 1:
            return self._user_vectors(users, self._own_vectors(self.attributes_of(users)))
        attributes = self.attributes_of(users)
        of_user = (attributes.ids.tobytes(), attributes.values.tobytes())
        if users.history is None:
            return self._remembered(of_user, lambda: self._own_vectors(attributes))
        key = (*of_user, users.history.items.tobytes())
        return self._remembered(
            key, lambda: self._user_vectors(users, self._remembered(of_user, lambda: self._own_vectors(attributes)))
        )

    def _remembered(self, key: tuple[bytes, ...], make: Callable[[], Vectors]) -> Vectors:
        """Several threads may ask."""
        vectors = self._kept_vectors.get(key)
        if vectors is None:
            vectors = make()
            if len(self._kept_vectors) >= min(_USERS_KEPT, max(1, _NUMBERS_KEPT // vectors[1].shape[1])):
                self._kept_vectors.clear()
            self._kept_vectors[key] = vectors
        return vectors

    def _own_vectors(self, attributes: AttributeTable) -> Vectors:
        """Without what users did before."""
        model = self._pairwise
        assert model is not None
        with self._no_training():
            rows, side = self._gathered(self._attributes(attributes.ids, attributes.values))
            own = model.side_vectors(self.centred(rows), side, is_user=True)
            # Where nothing is moved they are among the vectors' own.
            return own.self_terms if self._origin is None else model.self_terms(rows, side, is_user=True), own.vector

    def _user_vectors(self, users: UserSide, alone: Vectors) -> Vectors:
        if users.history is None:
            return alone
        with self._no_training():
            earlier = torch.stack(self._role_sums(users.history)).sum(0)
            return alone[0] + earlier[:, 0], alone[1] + earlier[:, 1:]

    @cached_property
    def _role_sums(self) -> RoleSums:
        assert self._history is not None
        return RoleSums(self.model, self._table, self._items, self._history, self._blocks_of, self.centred)

    def item_side_vectors(self, items: AttributeTable, id_row: Tensor | None = None) -> SideVectors:
        """Of a few items, to meet user_vectors. id_row: (width,) stands for each item's id, and gradients go to it."""
        assert self._pairwise is not None
        with self._no_training():
            rows, side = self._gathered(self._attributes(items.ids, items.values))
            rows = self.centred(rows)
        if id_row is not None:
            side.ids[:, 0] = len(rows)
            rows = torch.cat([rows, self.centred(self.model.transform_rows(id_row.unsqueeze(0)))])
        return self._pairwise.side_vectors(rows, side, is_user=False)

    def role_vectors(self, items: AttributeTable, role: int) -> Tensor:
        """What items add to a user at weight 1 in role number `role` of the history: (I, 1 + D) where the model decomposes."""
        return self._role_sums.vectors(items, role)

    def item_vectors(self, items: AttributeTable) -> Tensor:
        """The vectors of items that are scored, (I, D), for a model that decomposes."""
        model = self._pairwise
        assert model is not None
        blocks = self._blocks_of(items)
        return torch.cat([model.side_vectors(self.centred(rows), side, is_user=False).vector for rows, side in blocks])

    def _with_history(self, users: UserSide, items: Ints, out: Floats | None) -> Floats:
        if self._pairwise is None:
            everything = np.broadcast_to(items, (len(users), len(items)))
            return self._by_pairs(self.attributes_of(users), everything, history=users.history)
        result = np.empty((len(users), len(items)), np.float32) if out is None else out
        is_direct = self._table.device.type == "cpu"
        step = _USERS_PER_PRODUCT if is_direct else max(1, _NUMBERS_PER_BLOCK // max(len(items), 1))
        with self._no_training():
            for start in range(0, len(users), step):
                block = users.slice(start, start + step)
                self_terms, vectors = self.user_vectors(block)
                place = torch.from_numpy(result[start : start + step]) if is_direct else None
                scores = self._item_cache.by_vectors(vectors, items, place)
                scores += self_terms.unsqueeze(1)
                if scores is not place:
                    result[start : start + step] = scores.cpu().numpy()
        return result

    def _pairs_with_history(self, users: UserSide, items: Ints) -> Floats:
        result = np.empty(items.shape, np.float32)
        assert self._pairwise is not None
        step = max(1, _NUMBERS_PER_BLOCK // max(items.shape[1] * self._pairwise.side_width, 1))
        with self._no_training():
            for start in range(0, len(users), step):
                block = slice(start, start + step)
                self_terms, vectors = self.user_vectors(users.slice(start, start + step))
                scores = self._item_cache.pairs_by_vectors(vectors, items[block])
                result[block] = (scores + self_terms.unsqueeze(1)).cpu().numpy()
        return result

    def positions(self, table: AttributeTable) -> Tensor:
        """Where each of a side's entities stands in the learned metric: (N, D)."""
        assert self._pairwise is not None
        with self._no_training():
            return torch.cat([self._pairwise.position(rows, side) for rows, side in self._blocks_of(table)])

    def _folds(self, users: UserSide) -> bool:
        """Whether a newcomer's own row is fitted to what they chose: where the model has no other use for it."""
        is_newcomer = len(users) == 1 and users.numbers[0] < 0
        return users.history is not None and len(users.history.items) > 0 and is_newcomer and self.model.folds_in

    def _with_own_row(self, side: Attributes, own_row: Tensor | None) -> tuple[Tensor, Attributes]:
        """The distinct rows of the user side, and their places; a newcomer's own row stands in for their id."""
        rows, side = self._gathered(side)
        if own_row is not None:
            side.ids[:, 0] = len(rows)
            rows = torch.cat([rows, own_row])
        return rows, side

    def _folded(self, user: AttributeTable, history: Ints) -> Tensor:
        """The newcomer's row, transformed: (1, width)."""
        others = other_items(len(self._items), history)
        liked, rest = (
            self._attributes(self._items.ids[items][None], self._items.values[items][None]) for items in (history, others)
        )
        side = self._attributes(user.ids, user.values)
        row = folded_row(self.model, self._table, int(user.ids[0, 0]), side, liked, rest)
        with self._no_training():
            return self.model.transform_rows(row.unsqueeze(0))

    def _tables_are_cheaper(self, model: PairwiseModel, user_width: int) -> bool:
        """Multiplications for a user and an item: D by vectors, some 2K by tables for each of the user's attributes."""
        if model.ids_only or not model.decomposes:
            return not (model.ids_only and model.decomposes)
        rows_per_item = self._item_cache.n_rows / max(len(self._items), 1)
        by_tables = user_width * rows_per_item * (2.0 * model.row_width + 1.0) + self._items.ids.shape[1]
        return bool(by_tables < model.side_width)

    def _blocks_of(self, table: AttributeTable) -> Iterator[tuple[Tensor, Attributes]]:
        """A side's entities, some at a time: their distinct rows transformed, and their places in them."""
        step = max(1, _NUMBERS_PER_BLOCK // (16 * self.model.row_width * table.ids.shape[1]))
        for start in range(0, len(table), step):
            yield self._gathered(self._attributes(table.ids[start : start + step], table.values[start : start + step]))

    def _gathered(self, side: Attributes) -> tuple[Tensor, Attributes]:
        distinct, (side,) = gather(side)
        return self.rows_of(distinct), side

    def _by_pairs(
        self, users: AttributeTable, items: Ints, own_row: Tensor | None = None, history: History | None = None
    ) -> Floats:
        """Pair after pair through the model: over the whole table transformed once, or a few pairs over their own rows."""
        result = np.empty(items.shape, np.float32)
        few = not self.model.whole_table and items.size * self._items.ids.shape[1] < len(self._table)
        step = max(1, _FACTORS_PER_BLOCK // max(items.shape[1] * self._items.ids.shape[1] * self.model.row_width, 1))
        with self._no_training():
            for start in range(0, len(items), step):
                block = slice(start, start + step)
                user = self._attributes(users.ids[block], users.values[block])
                item = self._attributes(self._items.ids[items[block]], self._items.values[items[block]])
                rows = self._rows if not few else None
                if rows is None:
                    distinct, (user, item) = gather(user, item)
                    rows = self.rows_of(distinct)
                if own_row is not None:
                    user.ids[:, 0] = len(rows)
                    rows = torch.cat([rows, own_row])
                if self._history is not None:
                    earlier = History.of([()] * len(items)) if history is None else history
                    sums = self._role_sums(earlier.slice(start, min(start + step, len(items))))
                    user = pooled_side(user, len(rows), self._role_fields, len(sums))
                    rows = torch.cat([rows, *sums])
                result[block] = self.model.checked_scores(rows, user, item).cpu().numpy()
        return result

    @cached_property
    def _role_fields(self) -> Tensor | None:
        """The field number of each role's rows of ids."""
        if self._field_of_row is None or self._history is None:
            return None
        first = int(self._items.ids[0, 0])
        rows = [first + self._history.shift(role) for role in range(len(self._history.roles))]
        return torch.from_numpy(self._field_of_row[rows].astype(np.int64)).to(self._table.device)

    def _in_units(self, scores: Floats, out: Floats | None = None) -> Floats:
        centre, spread = self._label_scale
        scaled = _finite(scores if (centre, spread) == (0.0, 1.0) else scores * np.float32(spread) + np.float32(centre))
        if out is None or scaled is out:
            return scaled
        out[:] = scaled
        return out

    def _attributes(self, ids: npt.NDArray[np.int32], values: Floats) -> Attributes:
        device = self._table.device
        x = torch.from_numpy(np.array(values, dtype=np.float32))  # a copy: tables may be read-only
        fields = None
        if self._field_of_row is not None:
            fields = torch.from_numpy(self._field_of_row[ids].astype(np.int64)).to(device)
        return Attributes(torch.from_numpy(ids.astype(np.int64)).to(device), x.to(device), fields)

    def _no_training(self) -> torch.no_grad:
        if self.model.training:
            self.model.eval()
        return torch.no_grad()


def _finite(scores: Floats) -> Floats:
    """NaN must never look like a ranking."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = scores.sum()  # a number only where all of them are; where it is none, it may be too large
    if not np.isfinite(total) and not np.isfinite(scores).all():
        raise NotFiniteError(
            "the model gives scores that are no numbers; it was trained with too high an lr, or its file is damaged."
        )
    return scores
