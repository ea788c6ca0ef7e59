"""Models whose score is a sum over pairs of attributes: they can be explained, and ranked without scoring every pair."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gmlfm.data.attributes import PADDING, AttributeTable, Role
from gmlfm.errors import OptionError
from gmlfm.models.base import Floats, Ints, UserSide
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.reasons import earlier_terms, strongest_earlier, taken
from gmlfm.models.terms import Terms


@dataclass(frozen=True)
class SideVectors:
    """One side of a score that decomposes: score(u, i) = self_terms_u + self_terms_i + vector_u . vector_i."""

    self_terms: Tensor
    vector: Tensor


class PairwiseModel(GradientModel):
    r"""Write `pair_parts`, what a pair adds; scores, ranking and reasons follow.

    .. math:: \hat y(x) = b + \sum_i w_i x_i + \sum_{i<j} \mathrm{pair}(i, j) \, x_i x_j

    decomposes: the score is also self terms and one inner product; then `side_vectors` and `side_width` give them.
    points: the columns of a transformed row whose differences alone count, so that all may be moved together before side
        vectors are made of them.
    ids_only: of each side only the id, its first attribute, counts, and at x = 1 whatever its x.
    """

    caches_items: ClassVar[bool] = True
    scores_in_threads: ClassVar[bool] = True
    shares_negatives: ClassVar[bool] = True
    points: slice | None = None
    decomposes: bool = False
    ids_only: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        changed = vars(cls)
        if "score_all" in changed and "scores_in_threads" not in changed:
            cls.scores_in_threads = False  # it may take no `out`
        if "pair_parts" in changed and cls.decomposes and not {"side_vectors", "scores", "decomposes"} & set(changed):
            raise OptionError(
                f"{cls.__name__} changes pair_parts but inherits side_vectors, by which it is scored; write side_vectors, too, "
                "or set decomposes = False, by which scores follow from pair_parts."
            )

    def global_term(self) -> Tensor:
        """b."""
        return torch.zeros(())

    def linear(self, rows: Tensor) -> Tensor:
        """w_i of each row: (A, width) -> (A,)."""
        return torch.zeros_like(rows[..., 0])

    @abstractmethod
    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        """What a pair of attributes adds at x = 1, the left one coming first in a row: (A, width), (B, width) -> its weight
        and its distance, (A, B) each, to be multiplied; None where there is no distance."""

    @property
    def side_width(self) -> int:
        """D, the length of the vectors of `side_vectors`."""
        raise NotImplementedError(f"{type(self).__name__} says no length of side vectors, which a model that decomposes does.")

    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideVectors:
        """One side of a score that decomposes: self_terms (N,), vector (N, D)."""
        raise NotImplementedError(f"{type(self).__name__} gives no side vectors, which a model that decomposes does.")

    def history_vectors(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """The linear term and the vector that earlier items add to the user side: (N, 1 + D). A history's items make pairs with
        the item that is scored, not with each other or with the user's other attributes."""
        counting = self.counting(attributes)
        linear = (self.linear(rows)[counting.ids] * counting.x).sum(-1, keepdim=True)
        return torch.cat([linear, self.side_vectors(rows, attributes, is_user=True).vector], dim=-1)

    def earlier_pair_parts(self, earlier: Tensor, scored: Tensor, role: Role) -> tuple[Tensor, Tensor | None]:
        """`pair_parts` of attributes of earlier items in a role with those of the item that is scored."""
        return self.pair_parts(earlier, scored)

    def own_pair_values(self, earlier: Tensor, scored: Tensor, role: Role) -> Tensor:
        """Where earlier_by_own_rows: what earlier items' attributes by their own rows add in pairs with the scored item's, at
        x = 1: (A, width), (B, width) -> (A, B)."""
        raise NotImplementedError(f"{type(self).__name__} says no value of earlier items by their own rows.")

    def scores_after(
        self, rows: Tensor, user_side: Attributes, item_side: Attributes, earlier: list[Tensor], role_fields: Tensor | None
    ) -> list[Tensor]:
        """By sides, a history being one more part of the user's vector."""
        user, item = self.side_vectors(rows, user_side, is_user=True), self.side_vectors(rows, item_side, is_user=False)
        added = torch.stack(earlier).sum(0)
        cross = (item.vector @ (user.vector + added[:, 1:]).unsqueeze(-1)).squeeze(-1)
        return [(user.self_terms + added[:, 0]).unsqueeze(1) + item.self_terms + cross]

    @property
    def item_vector_width(self) -> int | None:
        return self.side_width + 1 if self.decomposes else None

    def check_history(self) -> None:
        if not self.decomposes or self.whole_table:
            raise OptionError(
                f"{type(self).__name__} with these settings has no inner product of two sides, by which a history is summed; "
                "set history = none, or take another distance, such as squared."
            )

    def pair_values(self, left: Tensor, right: Tensor) -> Tensor:
        """What each pair adds at x = 1: (A, width), (B, width) -> (A, B)."""
        weight, distance = self.pair_parts(left, right)
        return weight if distance is None else weight * distance

    def item_cache(self, table: Tensor) -> tuple[Tensor, ...]:
        """What `pair_table` reads of the items' rows, kept between calls: (B, row_width) -> tensors of B rows each.

        A view of the table costs no memory; rows read in full and in order cost the least time.
        """
        return (self.transform_rows(table),)

    def pair_table(self, left: Tensor, item_cache: tuple[Tensor, ...]) -> Tensor:
        """What each pair adds at x = 1: left (A, width), transformed, and B cached rows -> (A, B)."""
        return self.pair_values(left, *item_cache)

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        if self.decomposes:
            user, item = self.side_vectors(rows, user_side, is_user=True), self.side_vectors(rows, item_side, is_user=False)
            return user.self_terms.unsqueeze(1) + item.self_terms + (item.vector @ user.vector.unsqueeze(-1)).squeeze(-1)
        users, items = self.counting(user_side), self.counting(item_side)
        left, right = rows[users.ids], rows[items.ids].flatten(1, 2)
        cross = torch.vmap(self.pair_values)(left, right)
        cross = cross * users.x.unsqueeze(-1) * items.x.flatten(1).unsqueeze(1)
        by_item = cross.sum(1).view(items.ids.shape).sum(-1)
        return self.self_terms(rows, users, is_user=True).unsqueeze(1) + self.self_terms(rows, items, is_user=False) + by_item

    def self_terms(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> Tensor:
        """A side's linear and within-side terms, (N,); the global term is the user's."""
        if self.decomposes:
            return self.side_vectors(rows, attributes, is_user=is_user).self_terms
        counting = self.counting(attributes)
        x, shape = counting.x, counting.ids.shape
        values = rows[counting.ids]
        total = (self.linear(values.flatten(0, -2)).view(shape) * x).sum(-1)
        if shape[-1] > 1:
            flat = values.flatten(0, -3)
            within = torch.vmap(self.pair_values)(flat, flat).triu(1).view(*shape, shape[-1])
            total = total + (within * x.unsqueeze(-1) * x.unsqueeze(-2)).sum((-1, -2))
        return total + self.global_term() if is_user else total

    def counting(self, attributes: Attributes) -> Attributes:
        """Those that count, with the x by which they do."""
        if not self.ids_only:
            return attributes
        ids, x, is_present = attributes.ids[..., :1], attributes.x[..., :1], attributes.is_present[..., :1]
        return Attributes(ids, torch.ones_like(x), is_present=is_present)

    def counting_table(self, table: AttributeTable) -> AttributeTable:
        return AttributeTable(table.ids[:, :1], np.ones_like(table.values[:, :1])) if self.ids_only else table

    def position(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """Where an entity stands in the learned metric, (N, D): near means alike."""
        if self.decomposes:
            return nn.functional.normalize(self.side_vectors(rows, attributes, is_user=False).vector, dim=-1)
        x = attributes.x.abs().unsqueeze(-1)
        return (rows[attributes.ids] * x).sum(-2) / x.sum(-2).clamp_min(1e-12)

    def positions(self, table: AttributeTable) -> Tensor:
        return self.scorer.positions(table)

    def explain(self, user: UserSide, item: int) -> Terms:
        sides = self.scorer.attributes_of(user), taken(self._items, np.array([item]))
        (user_ids, user_x), (item_ids, item_x) = map(self._flat, sides)
        ids, x = np.concatenate([user_ids, item_ids]), np.concatenate([user_x, item_x])
        rows = self.scorer.rows_of(torch.from_numpy(ids).to(self.table.device))
        centre, spread = self._label_scale
        with torch.no_grad():
            linear = self.linear(rows).cpu().double().numpy()
            weight, distance = (None if part is None else part.cpu().double().numpy() for part in self.pair_parts(rows, rows))
            constant = float(self.global_term())
        assert weight is not None
        earlier = None
        if self._history is not None and user.history is not None and len(user.history.items):
            earlier = earlier_terms(self, self._history, self._items, user.history, rows[len(user_ids) :], spread)
        return Terms(ids, x, centre + spread * constant, spread * linear * x, spread * weight, distance, earlier)

    def strongest_earlier(self, users: UserSide, items: Ints) -> Ints:
        if self._history is None:
            return super().strongest_earlier(users, items)
        return strongest_earlier(self.scorer, self._history, self._items, users, items)

    def _flat(self, table: AttributeTable) -> tuple[npt.NDArray[np.int64], Floats]:
        """The rows and x of the attributes that count, without padding."""
        table = self.counting_table(table)
        is_present = table.ids != PADDING
        return table.ids[is_present].astype(np.int64), table.values[is_present]
