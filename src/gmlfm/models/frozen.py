"""Scores from a table that stands still: as they are, or as a function of one row, the id of those who ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from gmlfm.models.base import Attributes, Model, Pairwise

OfRow = Callable[[Tensor], Tensor]  # a row (width,) -> scores (B, G)


@torch.no_grad()
def frozen_scores(model: Model, table: Tensor, asking: Attributes, answering: Attributes) -> Tensor:
    """asking (B, F), answering (B, G, F'), their ids rows of the table -> (B, G)."""
    if model.whole_table:
        return model.scores(model.ready(table), asking, answering)
    if isinstance(model, Pairwise):
        left, right = (torch.unique(one.ids, return_inverse=True) for one in (asking, answering))
        if len(left[0]) * len(right[0]) <= asking.ids.shape[1] * answering.ids.numel():
            return _by_table(model, table, left, right, asking, answering)
    distinct, asking, answering = _gathered(asking, answering)
    return model.scores(model.ready(table[distinct]), asking, answering)


def _by_table(
    model: Pairwise,
    table: Tensor,
    left: tuple[Tensor, Tensor],
    right: tuple[Tensor, Tensor],
    asking: Attributes,
    answering: Attributes,
) -> Tensor:
    """Where few distinct attributes meet often: what each pair of them adds once, and looked up. left, right: the distinct rows
    of each side, and the places among them."""
    rows = [model.ready(table[distinct]) for distinct, _ in (left, right)]
    weight, distance = model.pair_parts(*rows)
    pairs = weight if distance is None else weight * distance
    asked, answered = replace(asking, ids=left[1]), replace(answering, ids=right[1])
    width = 1 if model.ids_only else None
    u, i = asked.ids[:, None, :width, None], answered.ids[:, :, None, :width]
    across = pairs[u, i] * asked.x[:, None, :width, None] * answered.x[:, :, None, :width]
    own = model.own(rows[0], asked, asking=True).unsqueeze(1) + model.own(rows[1], answered, asking=False)
    return own + across.sum((-1, -2))


def scores_of_row(model: Model, table: Tensor, row: int, asking: Attributes, answering: Attributes) -> OfRow:
    """asking: the row stands at the first place of each. Gradients go to the row alone."""
    if model.whole_table:
        return _in_whole_table(model, table, row, asking, answering)
    distinct, asking, answering = _gathered(asking, answering)
    asking.ids[:, 0] = len(distinct)  # behind the frozen rows
    with torch.no_grad():
        frozen = model.ready(table[distinct])
    if isinstance(model, Pairwise):
        return by_pairs(model, frozen, table[row], asking, answering)
    return by_whole_scores(model, frozen, table[row], asking, answering)


def _gathered(asking: Attributes, answering: Attributes) -> tuple[Tensor, Attributes, Attributes]:
    """The distinct rows, and both sides as places among them."""
    flat = torch.cat([asking.ids.flatten(), answering.ids.flatten()])
    distinct, places = torch.unique(flat, return_inverse=True)
    here, there = places[: asking.ids.numel()].clone(), places[asking.ids.numel() :]
    return (
        distinct,
        replace(asking, ids=here.view(asking.ids.shape)),
        replace(answering, ids=there.view(answering.ids.shape)),
    )


def by_whole_scores(model: Model, frozen: Tensor, start: Tensor, asking: Attributes, answering: Attributes) -> OfRow:
    return lambda row: model.scores(torch.cat([frozen, model.ready(row.unsqueeze(0))]), asking, answering)


def by_pairs(model: Pairwise, frozen: Tensor, start: Tensor, asking: Attributes, answering: Attributes) -> OfRow:
    """Only the id's linear term and its pairs change with the row; that costs O(R K) for R frozen rows, and a look-up."""
    n_beside, n_across = (0, 1) if model.ids_only else (asking.ids.shape[1] - 1, answering.ids.shape[2])
    beside, beside_x = asking.ids[:, 1 : 1 + n_beside], asking.x[:, 1 : 1 + n_beside]
    across, across_x = answering.ids[..., :n_across], answering.x[..., :n_across]

    def own_terms(row: Tensor) -> Tensor:
        ready = model.ready(row.unsqueeze(0))
        weight, distance = model.pair_parts(ready, frozen)
        pairs = (weight if distance is None else weight * distance)[0]
        among = (pairs[beside] * beside_x).sum(-1, keepdim=True)
        return model.linear(ready) + among + (pairs[across] * across_x).sum(-1)

    with torch.no_grad():
        fixed = by_whole_scores(model, frozen, start, asking, answering)(start) - own_terms(start)
    return lambda row: fixed + own_terms(row)


def _in_whole_table(model: Model, table: Tensor, row: int, asking: Attributes, answering: Attributes) -> OfRow:
    at = torch.tensor([row], device=table.device)
    ids = asking.ids.clone()
    ids[:, 0] = row
    asked = replace(asking, ids=ids)
    return lambda own: model.scores(model.ready(table.index_copy(0, at, own.unsqueeze(0))), asked, answering)
