"""What every model answers.

A gradient model's parameters are of two kinds: a table with a row for each attribute, which the trainer owns, of which a
model only ever sees the distinct rows of a batch; and the dense parameters, which are the module's own. A counted model is
fitted at once from the training positives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.data.dataset import Rows
from gmlfm.kernels.spec import KernelSpec

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Attributes:
    """Attributes of some users or items as places in the rows at hand: ids (..., F) int64, x (..., F).

    fields (..., F) int64 numbers the field of each, for the models that ask for it (`needs_fields`); padding has any.
    """

    ids: Tensor
    x: Tensor
    fields: Tensor | None = None


@dataclass(frozen=True)
class SideScores:
    """One side of a score that decomposes: score(u, i) = self_terms_u + self_terms_i + vector_u . vector_i."""

    self_terms: Tensor
    vector: Tensor


@dataclass(frozen=True)
class Layout:
    """How the table's rows are laid out: the fields' blocks, one after another behind the padding row."""

    fields: tuple[FieldCode, ...]

    @property
    def n_rows(self) -> int:
        return self.fields[-1].end

    def numbered(self, side: Literal["user", "item"]) -> list[int]:
        """The field numbers of a side: users with context, or items."""
        return [at for at, one in enumerate(self.fields) if (one.part == "item") == (side == "item")]

    def id_field(self, part: Literal["user", "item"]) -> FieldCode:
        return next(one for one in self.fields if one.part == part and one.kind == "id")

    def field_of_row(self) -> npt.NDArray[np.int16]:
        """The field number of every row."""
        sizes = [self.fields[0].offset, *(one.end - one.offset for one in self.fields)]
        return np.repeat(np.array([0, *range(len(self.fields))], np.int16), sizes)


class GradientModel(nn.Module, ABC):
    """Scores of (user with context, item) pairs; higher is better."""

    needs_fields: bool = False  # Attributes carry their fields' numbers
    whole_table: bool = False  # a step sees every row, not the distinct ones of its batch

    @property
    @abstractmethod
    def row_width(self) -> int:
        """Numbers a row of the table holds."""

    @abstractmethod
    def initial_rows(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, row_width) at the start of training."""

    def set_graph(self, user_rows: Rows, item_rows: Rows) -> None:
        """Before training: the id rows of the training positives, for a model that knows them (a graph)."""

    def transform_rows(self, rows: Tensor) -> Tensor:
        """What is computed once for each row before any score: (U, row_width) -> (U, anything)."""
        return rows

    @abstractmethod
    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        """rows: as `ready` gave them; user_side: users with context, (B, F); answering: items, (B, G, F'). Returns (B, G)."""

    @property
    def warm_epochs(self) -> int:
        """Epochs before the model is whole, which early stopping does not judge."""
        return 0

    def begin_epoch(self, number: int) -> None:
        """Told before each epoch, the first being 0."""

    def score_sets(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> list[Tensor]:
        """The scores that the objective is applied to; several where parts are trained side by side."""
        return [self.scores(rows, user_side, item_side)]

    def kernel_spec(self) -> KernelSpec | None:
        """What a compiled engine needs to train this model; None where only the eager engine can."""
        return None

    def penalty(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor | None:
        """What the objective adds for the rows of a batch and the dense parameters, if anything."""
        return None


class PairwiseModel(GradientModel):
    """A model whose score is a sum over pairs of attributes: it can be explained, and ranked without scoring every pair.

    decomposes: the score is also own + own + one inner product of the `sides`.
    ids_only: of each side only the first attribute counts.
    """

    decomposes: bool = True
    ids_only: bool = False

    @property
    @abstractmethod
    def side_width(self) -> int:
        """D, the length of the vectors of `sides`."""

    @abstractmethod
    def linear(self, rows: Tensor) -> Tensor:
        """w_i of each row: (A, width) -> (A,)."""

    @abstractmethod
    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        """What a pair of attributes adds at x = 1, the left one coming first in a row: (A, width), (B, width) -> its weight
        and its distance, (A, B) each, to be multiplied; None where there is no distance."""

    def item_cache(self, table: Tensor) -> tuple[Tensor, ...]:
        """What `pair_table` reads of the items' rows, kept between questions: (B, row_width) -> tensors of B rows each.

        A view of the table costs no memory; rows read in full and in order cost the least time.
        """
        return (self.transform_rows(table),)

    def pair_table(self, left: Tensor, kept: tuple[Tensor, ...]) -> Tensor:
        """What each pair adds at x = 1: left (A, width), made ready, and B kept rows -> (A, B)."""
        weight, distance = self.pair_parts(left, *kept)
        return weight if distance is None else weight * distance

    @abstractmethod
    def side_vectors(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> SideScores:
        """One side precomputed, where the score decomposes: own (N,), vector (N, D); the global bias is the user's."""

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        user, item = self.side_vectors(rows, user_side, is_user=True), self.side_vectors(rows, item_side, is_user=False)
        return user.self_terms.unsqueeze(1) + item.self_terms + (item.vector @ user.vector.unsqueeze(-1)).squeeze(-1)

    def self_terms(self, rows: Tensor, attributes: Attributes, *, is_user: bool) -> Tensor:
        """A side's linear and within-side terms, (N,); the global bias is the user's."""
        return self.side_vectors(rows, attributes, is_user=is_user).self_terms

    def position(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """Where an entity stands in the learned metric, (N, D): near means alike."""
        return nn.functional.normalize(self.side_vectors(rows, attributes, is_user=False).vector, dim=-1)


@dataclass(frozen=True)
class Positives:
    """The training positives as entity numbers."""

    users: Ints
    items: Ints
    n_users: int
    n_items: int


@dataclass(frozen=True)
class Rated:
    """Ratings as entity numbers with their labels."""

    users: Ints
    items: Ints
    labels: Floats


class ClosedFormModel(ABC):
    """A model without gradients. It answers what retrieval asks; a user of number -1 is one without a history."""

    @abstractmethod
    def fit(self, positives: Positives) -> None: ...

    @abstractmethod
    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """(N, len(items)) scores."""

    def score_pairs(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        """users (N,), items (N, G) -> (N, G)."""
        result = np.empty(items.shape, np.float32)
        for at in range(0, len(users), 256):
            part = slice(at, at + 256)
            listed = np.unique(items[part])
            found = self.score_all(users[part], listed.astype(np.int32))
            result[part] = np.take_along_axis(found, np.searchsorted(listed, items[part]), axis=1)
        return result

    def score_pairs_for(self, user_side: AttributeTable, items: Ints, users: Ints | None = None) -> Floats:
        return self.score_pairs(np.full(len(user_side), -1, np.int32) if users is None else users, items)

    def score_all_for(
        self, user_side: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        """By number where users are known. history: the items of one newcomer; without one, nothing is known of her."""
        return self.score_all(np.full(len(user_side), -1, np.int32) if users is None else users, items)

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """Everything that scoring needs, to be saved."""

    @abstractmethod
    def load(self, weights: Mapping[str, Tensor]) -> None: ...
