"""A user's earlier items as attributes of the user side: weights by role, and sums of the items' vectors by these weights."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gmlfm.data.attributes import PADDING, AttributeTable, Role
from gmlfm.data.histories import History
from gmlfm.models.base import HistorySpec
from gmlfm.models.gradient import Attributes

Floats = npt.NDArray[np.float32]


class Bags(NamedTuple):
    """What N users have in one role: items[starts[n]:starts[n + 1]] with the weights beside them."""

    starts: npt.NDArray[np.int64]
    items: npt.NDArray[np.int32]
    weights: Floats


def role_bags(history: History, role: Role, spec: HistorySpec) -> Bags:
    """The items of a role and their weights, of unit length for each user."""
    window = history.latest(1 if role == "last" else spec.length)
    if len(window) == 1:
        return Bags(window.starts, window.items, _weights_alone(role, len(window.items), spec.half_life).copy())
    return Bags(window.starts, window.items, _weights(window, role, spec.half_life))


@lru_cache(maxsize=4096)
def _weights_alone(role: Role, n: int, half_life: float) -> Floats:
    """Of one user with so many items, which are the same for all such users; not to be changed."""
    weights = _weights(History(np.array([0, n]), np.zeros(n, np.int32)), role, half_life)
    return weights


def _weights(window: History, role: Role, half_life: float) -> Floats:
    lengths = window.lengths
    if role == "recent":
        owners = np.repeat(np.arange(len(window)), lengths)
        ages = window.starts[1:][owners] - 1 - np.arange(len(window.items))
        weights = np.exp2(-ages / half_life)
        norms = np.sqrt(np.bincount(owners, weights * weights, minlength=len(window)))
        weights = weights / norms[owners]
    else:
        weights = np.repeat(1.0 / np.sqrt(np.maximum(lengths, 1)), lengths)
    return weights.astype(np.float32)


class EarlierItems(NamedTuple):
    """The distinct items of what N users did before, those of user n being items[starts[n]:starts[n + 1]], and the weight that
    each has in each role, (M, roles); a repeated item's weights are added up."""

    starts: npt.NDArray[np.int64]
    items: npt.NDArray[np.int32]
    weights: Floats


def earlier_items(history: History, spec: HistorySpec) -> EarlierItems:
    """Each item once, whatever its roles."""
    bags = [role_bags(history, role, spec) for role in spec.roles]
    users = np.concatenate([np.repeat(np.arange(len(history)), np.diff(bag.starts)) for bag in bags])
    items = np.concatenate([bag.items for bag in bags])
    width = int(items.max(initial=0)) + 1
    keys, places = np.unique(users * width + items, return_inverse=True)
    weights = np.zeros((len(keys), len(bags)), np.float32)
    roles = np.repeat(np.arange(len(bags)), [len(bag.items) for bag in bags])
    np.add.at(weights, (places, roles), np.concatenate([bag.weights for bag in bags]))
    starts = np.searchsorted(keys // width, np.arange(len(history) + 1))
    return EarlierItems(starts, (keys % width).astype(np.int32), weights)


def in_role(items: AttributeTable, spec: HistorySpec, role: int) -> AttributeTable:
    """Items by the rows that they have in role number `role` of the history, and behind these by their own where they count."""
    ids = np.where(items.ids == PADDING, PADDING, items.ids + np.int32(spec.shift(role))).astype(np.int32)
    if not spec.with_own:
        return AttributeTable(ids, items.values)
    return AttributeTable(np.concatenate([ids, items.ids], 1), np.concatenate([items.values, items.values], 1))


def bag_sums(bags: Bags, vectors: Tensor) -> Tensor:
    """The weighted sum of each bag: vectors (I, D), by item -> (N, D)."""
    device = vectors.device
    items, starts = (torch.from_numpy(array.astype(np.int64)).to(device) for array in (bags.items, bags.starts[:-1]))
    weights = torch.from_numpy(bags.weights).to(device, vectors.dtype)
    return functional.embedding_bag(items, vectors, starts, mode="sum", per_sample_weights=weights)


def pooled_side(user_side: Attributes, n_rows: int, role_fields: Tensor | None, n_roles: int) -> Attributes:
    """The user side with one more attribute for each role, whose rows stand behind `n_rows` others, role after role.

    role_fields: (roles,) the field number of each.
    """
    n_users, device = len(user_side.ids), user_side.ids.device
    places = n_rows + torch.arange(n_roles * n_users, device=device).view(n_roles, n_users).T
    ones = user_side.x.new_ones(n_users, n_roles)
    fields = None
    if user_side.fields is not None and role_fields is not None:
        fields = torch.cat([user_side.fields, role_fields.expand(n_users, -1)], dim=1)
    is_present = torch.cat([user_side.is_present, torch.ones_like(places, dtype=torch.bool)], dim=1)
    return Attributes(torch.cat([user_side.ids, places], 1), torch.cat([user_side.x, ones], 1), fields, is_present)


def distinct_items(bags: list[Bags]) -> tuple[npt.NDArray[np.int32], list[Bags]]:
    """The items that some bags name, and the bags by their places among these."""
    items, places = np.unique(np.concatenate([bag.items for bag in bags]), return_inverse=True)
    by_bag = np.split(places.astype(np.int32), np.cumsum([len(bag.items) for bag in bags])[:-1])
    return items, [bag._replace(items=part) for bag, part in zip(bags, by_bag, strict=True)]
