"""A small batch and a small history, and what checks a model against a slow loop over its own equation, in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import History
from gmlfm.models.base import FitInputs, Ints, Layout, Model, Positives, Ratings, UserSide
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.pairwise import PairwiseModel

K, B, G = 3, 2, 3
# user id, user field, item id, item set: two fields a side, the set with up to two members and padding
LAYOUT = Layout(
    (
        FieldCode("user", "user", "id", 1, 4),
        FieldCode("user", "city", "category", 7, 2),
        FieldCode("item", "item", "id", 11, 5),
        FieldCode("item", "tags", "set", 18, 3),
    )
)
HISTORY = np.array([[1, 1, 0, 0, 1], [0, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], float)
Row = list[tuple[int, float, int]]  # (row of the table, x, field) of each attribute
NO_PLAN: Any = None  # for models that are fitted at once


def rows_and_batch(width: int, seed: int = 0) -> tuple[Tensor, Attributes, Attributes]:
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(LAYOUT.n_rows, width)))
    rows[0] = 0.0
    user_side = np.stack([rng.integers(3, 7, B), rng.integers(9, 11, B)], axis=1)
    item_side = np.stack([rng.integers(13, 18, (B, G)), rng.integers(20, 23, (B, G)), np.zeros((B, G))], axis=2).astype(int)
    item_side[0, :, 2] = 18  # some sets have a second member, the unknown one; the others are padded
    x_user, x_item = rng.uniform(0.5, 1.5, user_side.shape), rng.uniform(0.5, 1.5, item_side.shape) * (item_side > 0)
    x_item[1, 0, 1] = 0.0  # an attribute all the same, no padding
    fields = LAYOUT.field_of_row()

    def attributes(ids: Any, x: Any) -> Attributes:
        return Attributes(torch.from_numpy(ids), torch.from_numpy(x), torch.from_numpy(fields[ids].astype(np.int64)))

    return rows, attributes(user_side, x_user), attributes(item_side, x_item)


def joined_row(user_side: Attributes, item_side: Attributes, b: int, g: int) -> Row:
    """Every attribute of a user and an item but padding."""
    assert user_side.fields is not None
    assert item_side.fields is not None
    both = [
        *zip(user_side.ids[b].tolist(), user_side.x[b].tolist(), user_side.fields[b].tolist(), strict=True),
        *zip(item_side.ids[b, g].tolist(), item_side.x[b, g].tolist(), item_side.fields[b, g].tolist(), strict=True),
    ]
    return [attribute for attribute in both if attribute[0] != 0]


def check(model: GradientModel, slow: Callable[[Tensor, Row], Tensor], width: int) -> None:
    """The scores are those of the slow loop and, where they decompose, those of the side vectors."""
    model.double().eval()
    rows, user_side, item_side = rows_and_batch(width)
    scores = model.scores(model.transform_rows(rows), user_side, item_side)
    assert scores.shape == (B, G)
    for b in range(B):
        for g in range(G):
            expected = slow(rows, joined_row(user_side, item_side, b, g))
            torch.testing.assert_close(scores[b, g], expected.reshape(()), rtol=1e-9, atol=1e-9)
    if isinstance(model, PairwiseModel) and model.decomposes:
        user = model.side_vectors(model.transform_rows(rows), user_side, is_user=True)
        flat = Attributes(item_side.ids.flatten(0, 1), item_side.x.flatten(0, 1))
        item = model.side_vectors(model.transform_rows(rows), flat, is_user=False)
        by_sides = (
            user.self_terms.unsqueeze(1)
            + item.self_terms.view(B, G)
            + torch.einsum("bd,bgd->bg", user.vector, item.vector.view(B, G, -1))
        )
        torch.testing.assert_close(by_sides, scores, rtol=1e-9, atol=1e-9)


def linear(rows: Tensor, row: Row) -> Tensor:
    return sum((rows[i, 0] * x for i, x, _ in row), torch.zeros((), dtype=torch.float64))


def by_fields(rows: Tensor, row: Row) -> list[Tensor]:
    sums = [torch.zeros(K, dtype=torch.float64) for _ in LAYOUT.fields]
    for i, x, field in row:
        sums[field] = sums[field] + x * rows[i, 1:]
    return sums


def user_row(row: Row) -> int:
    return row[0][0]


def item_row(row: Row) -> int:
    return next(i for i, _, field in row if field == 2)


def inputs_of(history: npt.NDArray[Any] = HISTORY) -> FitInputs:
    """The positives of a history, of which the first occurs twice."""
    users, items = np.nonzero(history)
    users, items = np.r_[users, users[:1]].astype(np.int32), np.r_[items, items[:1]].astype(np.int32)
    n_users, n_items = history.shape
    positives = Positives(users, items, n_users, n_items)
    layout = Layout((FieldCode("user", "user", "id", 1, n_users), FieldCode("item", "item", "id", 3 + n_users, n_items)))
    tables = [_id_table(3, n_users), AttributeTable(*_nothing(0)), _id_table(5 + n_users, n_items)]
    ratings = Ratings(users, items, np.ones(len(users), np.float32))
    return FitInputs(layout, Encoded(*tables), lambda: positives, lambda: ratings)


def attribute_inputs(label_scale: tuple[float, float] = (0.0, 1.0)) -> FitInputs:
    """Four users with a city, five items with a tag or two, as LAYOUT has them."""
    users = np.array([[3, 9], [4, 10], [5, 7], [6, 9]], np.int32)
    items = np.array([[13, 20, 0], [14, 20, 21], [15, 22, 18], [16, 21, 22], [17, 19, 0]], np.int32)
    x = np.where(items > 0, np.array([[1.0, 0.5, 0.7]]), 0.0).astype(np.float32)
    tables = AttributeTable(users, np.ones(users.shape, np.float32)), AttributeTable(*_nothing(0)), AttributeTable(items, x)
    return replace(inputs_of(), layout=LAYOUT, encoded=Encoded(*tables), label_scale=label_scale)


def users_of(numbers: npt.NDArray[Any] | list[int], history: list[int] | None = None) -> UserSide:
    """Users of whom a model knows the number, and perhaps a history that comes with the question, the same for all."""
    chosen = None if history is None else History.of([history] * len(numbers))
    return UserSide(np.array(numbers, np.int32), AttributeTable(*_nothing(len(numbers))), chosen)


def score_all(model: Model, n_users: int = 4) -> npt.NDArray[np.float32]:
    return model.score_all(users_of(list(range(n_users))), np.arange(5, dtype=np.int32))


def _id_table(start: int, n: int) -> AttributeTable:
    return AttributeTable(np.arange(start, start + n, dtype=np.int32)[:, None], np.ones((n, 1), np.float32))


def _nothing(n: int) -> tuple[Ints, npt.NDArray[np.float32]]:
    return np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32)
