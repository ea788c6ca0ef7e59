r"""A newcomer's own row from the few things she chose, with everything else frozen.

The score is linear in her row's w and, for the models here, smooth in its v; a few dozen gradient steps on one row over her
items against sampled others, starting at the unknown row, take milliseconds.

.. math:: \min_{r} \ \frac1{|P|} \sum_{i \in P} (1 - \hat y_r(i))^2 + \frac1{|N|} \sum_{j \in N} (1 + \hat y_r(j))^2
   + \lambda \|r - r_{unknown}\|^2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gmlfm.models.base import Attributes, Model, Pairwise

_STEPS, _RATE = 40, 0.05
_N_OTHERS = 200


def folded_row(
    model: Model,
    table: Tensor,
    unknown: int,
    asking: Attributes,
    chosen: Attributes,
    others: Attributes,
    pull: float = 0.1,
) -> Tensor:
    """The newcomer's row (width,). asking: her attributes (1, F), the id first; chosen, others: items (1, G, F')."""
    start = table[unknown].clone()
    own = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([own], lr=_RATE)
    distinct, places = torch.unique(torch.cat([one.ids.flatten() for one in (asking, chosen, others)]), return_inverse=True)
    sizes = [one.ids.numel() for one in (asking, chosen, others)]
    parts = [
        Attributes(found.view(one.ids.shape), one.x, one.fields)
        for found, one in zip(places.split(sizes), (asking, chosen, others), strict=True)
    ]
    # Her row stands in for the id, after the rows that are frozen.
    ids = parts[0].ids.clone()
    ids[0, 0] = len(distinct)
    her = Attributes(ids, asking.x, asking.fields)
    model.eval()
    with torch.no_grad():
        frozen = model.ready(table[distinct])
    given = (frozen, start, her, parts[1:])
    scores = _scores_by_pairs(model, *given) if isinstance(model, Pairwise) else _scores(model, *given)
    for _ in range(_STEPS):
        liked, rest = scores(model.ready(own.unsqueeze(0)))
        loss = (1.0 - liked).square().mean() + (1.0 + rest).square().mean() + pull * (own - start).square().sum()
        # Of her row alone: the model's own parameters are frozen and must not gather gradients either.
        (own.grad,) = torch.autograd.grad(loss, [own])
        optimiser.step()
    return own.detach()


_OfRow = Callable[[Tensor], list[Tensor]]  # her row, made ready: (1, width) -> scores of each side's items


def _scores(model: Model, frozen: Tensor, start: Tensor, her: Attributes, items: Sequence[Attributes]) -> _OfRow:
    def of_row(row: Tensor) -> list[Tensor]:
        rows = torch.cat([frozen, row])
        return [model.scores(rows, her, one)[0] for one in items]

    return of_row


def _scores_by_pairs(model: Pairwise, frozen: Tensor, start: Tensor, her: Attributes, items: Sequence[Attributes]) -> _OfRow:
    """Only her id's linear term and its pairs change with her row; a step costs O(R K) for R frozen rows."""
    width = 1 if model.ids_only else None
    beside = _shares(her.ids[:, 1:], her.x[:, 1:], len(frozen)) if width is None else frozen.new_zeros(1, len(frozen))
    shares = [_shares(one.ids[0, :, :width], one.x[0, :, :width], len(frozen)) + beside for one in items]

    def own_terms(row: Tensor) -> list[Tensor]:
        weight, distance = model.pair_parts(row, frozen)
        pairs = (weight if distance is None else weight * distance)[0]
        return [model.linear(row) + one @ pairs for one in shares]

    with torch.no_grad():
        first = model.ready(start.unsqueeze(0))
        at_start = _scores(model, frozen, start, her, items)(first)
        fixed = [whole - own for whole, own in zip(at_start, own_terms(first), strict=True)]
    return lambda row: [rest + own for rest, own in zip(fixed, own_terms(row), strict=True)]


def _shares(ids: Tensor, x: Tensor, n_rows: int) -> Tensor:
    """x by row: (G, F) -> (G, n_rows)."""
    return x.new_zeros(len(ids), n_rows).scatter_add_(1, ids, x)


def other_items(n_items: int, chosen: np.ndarray, seed: int = 0) -> np.ndarray:
    """Items she did not name, to set hers apart from."""
    named = np.zeros(n_items, bool)
    named[chosen] = True
    free = np.flatnonzero(~named)
    picked: np.ndarray = np.random.default_rng([seed, 40]).choice(free, min(_N_OTHERS, len(free)), replace=False)
    return picked
