"""Scores from a table that stands still: as they are, or as a function of one row, the user's id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gmlfm.models.gradient import Attributes, GradientModel, gather
from gmlfm.models.pairwise import PairwiseModel

RowScores = Callable[[Tensor], Tensor]  # a row (width,) -> scores (B, G)


@torch.no_grad()
def frozen_scores(model: GradientModel, table: Tensor, users: Attributes, items: Attributes) -> Tensor:
    """users (B, F), items (B, G, F'), their ids rows of the table -> (B, G)."""
    if model.whole_table:
        return model.scores(model.transform_rows(table), users, items)
    if isinstance(model, PairwiseModel):
        distinct = [torch.unique(side.ids, return_inverse=True) for side in (users, items)]
        if len(distinct[0][0]) * len(distinct[1][0]) <= users.ids.shape[1] * items.ids.numel():
            (user_rows, user_ids), (item_rows, item_ids) = distinct
            rows = (table[user_rows], table[item_rows])
            return _by_table(model, rows, replace(users, ids=user_ids), replace(items, ids=item_ids))
    distinct_rows, (users, items) = gather(users, items)
    return model.scores(model.transform_rows(table[distinct_rows]), users, items)


def _by_table(model: PairwiseModel, rows: tuple[Tensor, Tensor], users: Attributes, items: Attributes) -> Tensor:
    """Where few distinct attributes meet often: what each pair of them adds once, and looked up. rows: the distinct rows of
    each side, among which its ids are places."""
    user_rows, item_rows = (model.transform_rows(side) for side in rows)
    pairs = model.pair_values(user_rows, item_rows)
    user, item = model.counting(users), model.counting(items)
    u, i = user.ids[:, None, :, None], item.ids[:, :, None]
    cross = pairs[u, i] * user.x[:, None, :, None] * item.x[:, :, None]
    self_terms = model.self_terms(user_rows, users, is_user=True).unsqueeze(1) + model.self_terms(
        item_rows, items, is_user=False
    )
    return self_terms + cross.sum((-1, -2))


def scores_of_row(model: GradientModel, table: Tensor, row: int, users: Attributes, items: Attributes) -> RowScores:
    """users: the row stands at the first place of each. Gradients go to the row alone."""
    if model.whole_table:
        return _in_whole_table(model, table, row, users, items)
    distinct, (users, items) = gather(users, items)
    users.ids[:, 0] = len(distinct)  # behind the frozen rows
    with torch.no_grad():
        frozen = model.transform_rows(table[distinct])
    if isinstance(model, PairwiseModel):
        return row_scores_by_pairs(model, frozen, table[row], users, items)
    return row_scores(model, frozen, users, items)


def scores_of_item_row(model: GradientModel, table: Tensor, row: int, users: Attributes, items: Attributes) -> RowScores:
    """As scores_of_row, of the row that stands at the first place of each item."""
    if model.whole_table:
        item_ids = items.ids.clone()
        item_ids[..., 0] = row
        index, items = torch.tensor([row], device=table.device), replace(items, ids=item_ids)
        return lambda values: model.scores(model.transform_rows(table.index_copy(0, index, values.unsqueeze(0))), users, items)
    distinct, (users, items) = gather(users, items)
    items.ids[..., 0] = len(distinct)
    with torch.no_grad():
        frozen = model.transform_rows(table[distinct])
    return row_scores(model, frozen, users, items)


def row_scores(model: GradientModel, frozen: Tensor, users: Attributes, items: Attributes) -> RowScores:
    """All of the score anew for each row."""
    return lambda row: model.scores(torch.cat([frozen, model.transform_rows(row.unsqueeze(0))]), users, items)


def row_scores_by_pairs(model: PairwiseModel, frozen: Tensor, start: Tensor, users: Attributes, items: Attributes) -> RowScores:
    """Only the id's linear term and its pairs change with the row; that costs O(R K) for R frozen rows, and a look-up."""
    user, item = model.counting(users), model.counting(items)
    beside, beside_x = user.ids[:, 1:], user.x[:, 1:]

    def row_terms(row: Tensor) -> Tensor:
        transformed = model.transform_rows(row.unsqueeze(0))
        pairs = model.pair_values(transformed, frozen)[0]
        within = (pairs[beside] * beside_x).sum(-1, keepdim=True)
        return user.x[:, :1] * (model.linear(transformed) + within + (pairs[item.ids] * item.x).sum(-1))

    with torch.no_grad():
        fixed = row_scores(model, frozen, users, items)(start) - row_terms(start)
    return lambda row: fixed + row_terms(row)


def _in_whole_table(model: GradientModel, table: Tensor, row: int, users: Attributes, items: Attributes) -> RowScores:
    index = torch.tensor([row], device=table.device)
    ids = users.ids.clone()
    ids[:, 0] = row
    users = replace(users, ids=ids)
    return lambda values: model.scores(model.transform_rows(table.index_copy(0, index, values.unsqueeze(0))), users, items)
