"""MAMO's profiles and tasks: a user's fields as shares of embeddings, their ratings as support and query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.models.base import Floats, Ints, Layout, Ratings


@dataclass(frozen=True)
class Profiles:
    """N profiles: rows (N, F) of the embedding table, shares (N, P, F) of each attribute in each field, mostly 0."""

    rows: Tensor
    shares: Tensor

    def profiles(self, embedding: Tensor) -> Tensor:
        """(N, P K): field by field the sum of x times the embedding."""
        # embedding's backward adds up in a fixed order on a CPU; indexing's does not promise to.
        return (self.shares @ functional.embedding(self.rows, embedding)).flatten(1)


@dataclass(frozen=True)
class ProfileSide:
    """One side's profile fields, whose rows follow one another in the embedding table from `start` to `end`.

    Attributes of other fields (the id, the context, padding) fall outside the blocks and take no part.
    """

    fields: tuple[FieldCode, ...]
    start: int

    @property
    def n_fields(self) -> int:
        return len(self.fields)

    @property
    def end(self) -> int:
        return self.start + sum(field.end - field.offset for field in self.fields)

    def attributes(self, table: AttributeTable, numbers: npt.NDArray[np.integer]) -> Profiles:
        ids, x = table.ids[numbers], table.values[numbers]
        rows = np.zeros(ids.shape, np.int64)
        shares = np.zeros((len(ids), self.n_fields, ids.shape[1]), np.float32)
        start = self.start
        for number, field in enumerate(self.fields):
            is_inside = (ids >= field.offset) & (ids < field.end)
            rows[is_inside] = ids[is_inside] - field.offset + start
            shares[:, number][is_inside] = x[is_inside]
            start += field.end - field.offset
        return Profiles(torch.from_numpy(rows), torch.from_numpy(shares))


@dataclass(frozen=True)
class ByUser:
    """Ratings sorted by user: those of users[n] stand from starts[n] to starts[n + 1]."""

    users: Ints
    starts: npt.NDArray[np.int64]
    items: Ints
    labels: Floats

    @classmethod
    def of(cls, ratings: Ratings) -> ByUser:
        order = np.argsort(ratings.users, kind="stable")
        users, counts = np.unique(ratings.users, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(users, starts, ratings.items[order], ratings.labels[order])

    def with_ratings(self, n: int) -> Ints:
        """Users with `n` ratings or more."""
        return self.users[np.diff(self.starts) >= n]

    def places(self, user: int) -> npt.NDArray[np.int64]:
        index = int(np.searchsorted(self.users, user))
        if index == len(self.users) or self.users[index] != user:
            return np.empty(0, np.int64)
        return np.arange(self.starts[index], self.starts[index + 1])


@dataclass(frozen=True)
class Episode:
    """A user's ratings: the first n_query are the query set, the others the support set."""

    user: int
    items: Ints
    labels: Floats
    n_query: int


def divide(ratings: ByUser, user: int, generator: np.random.Generator) -> Episode:
    order = generator.permutation(ratings.places(user))
    return Episode(user, ratings.items[order], ratings.labels[order], max(1, len(order) // 4))


def profile_sides(layout: Layout) -> tuple[ProfileSide, ProfileSide]:
    """Users and items in one table, without the rows of fields that stand in no profile."""
    user = ProfileSide(_profile_fields(layout, "user"), 1)  # row 0 is for what takes no part
    return user, ProfileSide(_profile_fields(layout, "item"), user.end)


def _profile_fields(layout: Layout, part: Literal["user", "item"]) -> tuple[FieldCode, ...]:
    fields = [field for field in layout.fields if field.part == part]
    return tuple([field for field in fields if field.kind != "id"] or fields)


@dataclass(frozen=True)
class ScoringData:
    """The users and items of training, by number; the items that are scored; the ratings that users are adapted on."""

    users: AttributeTable
    training_items: AttributeTable
    items: AttributeTable
    support: ByUser


def distinct_users(numbers: Ints) -> Iterator[npt.NDArray[np.int64]]:
    """The places of each distinct user; users without a number are each their own."""
    for place in np.flatnonzero(numbers < 0):
        yield np.array([place])
    numbered = np.flatnonzero(numbers >= 0)
    order = numbered[np.argsort(numbers[numbered], kind="stable")]
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    yield from np.split(order, starts[1:]) if len(order) else ()
