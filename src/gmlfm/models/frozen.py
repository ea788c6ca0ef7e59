"""Scores from a table that stands still: as they are, or as a function of one row, the id of those who ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gmlfm.models.base import Attributes, GradientModel, PairwiseModel

OfRow = Callable[[Tensor], Tensor]  # a row (width,) -> scores (B, G)


@torch.no_grad()
def frozen_scores(model: GradientModel, table: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
    """user side (B, F), item side (B, G, F'), their ids rows of the table -> (B, G)."""
    if model.whole_table:
        return model.scores(model.transform_rows(table), user_side, item_side)
    if isinstance(model, PairwiseModel):
        left, right = (torch.unique(one.ids, return_inverse=True) for one in (user_side, item_side))
        if len(left[0]) * len(right[0]) <= user_side.ids.shape[1] * item_side.ids.numel():
            return _by_table(model, table, left, right, user_side, item_side)
    distinct, user_side, item_side = _gathered(user_side, item_side)
    return model.scores(model.transform_rows(table[distinct]), user_side, item_side)


def _by_table(
    model: PairwiseModel,
    table: Tensor,
    left: tuple[Tensor, Tensor],
    right: tuple[Tensor, Tensor],
    user_side: Attributes,
    item_side: Attributes,
) -> Tensor:
    """Where few distinct attributes meet often: what each pair of them adds once, and looked up. left, right: the distinct rows
    of each side, and the places among them."""
    rows = [model.transform_rows(table[distinct]) for distinct, _ in (left, right)]
    weight, distance = model.pair_parts(*rows)
    pairs = weight if distance is None else weight * distance
    asked, answered = replace(user_side, ids=left[1]), replace(item_side, ids=right[1])
    width = 1 if model.ids_only else None
    u, i = asked.ids[:, None, :width, None], answered.ids[:, :, None, :width]
    across = pairs[u, i] * asked.x[:, None, :width, None] * answered.x[:, :, None, :width]
    own = model.self_terms(rows[0], asked, is_user=True).unsqueeze(1) + model.self_terms(rows[1], answered, is_user=False)
    return own + across.sum((-1, -2))


def scores_of_row(model: GradientModel, table: Tensor, row: int, user_side: Attributes, item_side: Attributes) -> OfRow:
    """user_side: the row stands at the first place of each. Gradients go to the row alone."""
    if model.whole_table:
        return _in_whole_table(model, table, row, user_side, item_side)
    distinct, user_side, item_side = _gathered(user_side, item_side)
    user_side.ids[:, 0] = len(distinct)  # behind the frozen rows
    with torch.no_grad():
        frozen = model.transform_rows(table[distinct])
    if isinstance(model, PairwiseModel):
        return by_pairs(model, frozen, table[row], user_side, item_side)
    return by_whole_scores(model, frozen, table[row], user_side, item_side)


def _gathered(user_side: Attributes, item_side: Attributes) -> tuple[Tensor, Attributes, Attributes]:
    """The distinct rows, and both sides as places among them."""
    flat = torch.cat([user_side.ids.flatten(), item_side.ids.flatten()])
    distinct, places = torch.unique(flat, return_inverse=True)
    here, there = places[: user_side.ids.numel()].clone(), places[user_side.ids.numel() :]
    return (
        distinct,
        replace(user_side, ids=here.view(user_side.ids.shape)),
        replace(item_side, ids=there.view(item_side.ids.shape)),
    )


def by_whole_scores(model: GradientModel, frozen: Tensor, start: Tensor, user_side: Attributes, item_side: Attributes) -> OfRow:
    return lambda row: model.scores(torch.cat([frozen, model.transform_rows(row.unsqueeze(0))]), user_side, item_side)


def by_pairs(model: PairwiseModel, frozen: Tensor, start: Tensor, user_side: Attributes, item_side: Attributes) -> OfRow:
    """Only the id's linear term and its pairs change with the row; that costs O(R K) for R frozen rows, and a look-up."""
    n_beside, n_across = (0, 1) if model.ids_only else (user_side.ids.shape[1] - 1, item_side.ids.shape[2])
    beside, beside_x = user_side.ids[:, 1 : 1 + n_beside], user_side.x[:, 1 : 1 + n_beside]
    across, across_x = item_side.ids[..., :n_across], item_side.x[..., :n_across]

    def own_terms(row: Tensor) -> Tensor:
        ready = model.transform_rows(row.unsqueeze(0))
        weight, distance = model.pair_parts(ready, frozen)
        pairs = (weight if distance is None else weight * distance)[0]
        among = (pairs[beside] * beside_x).sum(-1, keepdim=True)
        return model.linear(ready) + among + (pairs[across] * across_x).sum(-1)

    with torch.no_grad():
        fixed = by_whole_scores(model, frozen, start, user_side, item_side)(start) - own_terms(start)
    return lambda row: fixed + own_terms(row)


def _in_whole_table(model: GradientModel, table: Tensor, row: int, user_side: Attributes, item_side: Attributes) -> OfRow:
    at = torch.tensor([row], device=table.device)
    ids = user_side.ids.clone()
    ids[:, 0] = row
    asked = replace(user_side, ids=ids)
    return lambda own: model.scores(model.transform_rows(table.index_copy(0, at, own.unsqueeze(0))), asked, item_side)
