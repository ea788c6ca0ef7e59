r"""A newcomer's own row from the few things she chose, with everything else frozen.

The score is linear in her row's w and, for the models here, smooth in its v; a few dozen gradient steps on one row over her
items against sampled others, starting at the unknown row, take milliseconds.

.. math:: \min_{r} \ \frac1{|P|} \sum_{i \in P} (1 - \hat y_r(i))^2 + \frac1{|N|} \sum_{j \in N} (1 + \hat y_r(j))^2
   + \lambda \|r - r_{unknown}\|^2
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gmlfm.models.base import Attributes, GradientModel
from gmlfm.models.frozen import scores_of_row

_STEPS, _RATE = 40, 0.05
_N_OTHERS = 200


def folded_row(
    model: GradientModel,
    table: Tensor,
    unknown: int,
    user_side: Attributes,
    chosen: Attributes,
    others: Attributes,
    pull: float = 0.1,
) -> Tensor:
    """The newcomer's row (width,). user_side: her attributes (1, F), the id first; chosen, others: items (1, G, F')."""
    start = table[unknown].clone()
    own = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([own], lr=_RATE)
    model.eval()
    scores = scores_of_row(model, table, unknown, user_side, _joined(chosen, others))
    n_chosen = chosen.ids.shape[1]
    for _ in range(_STEPS):
        found = scores(own)
        liked, rest = found[:, :n_chosen], found[:, n_chosen:]
        loss = (1.0 - liked).square().mean() + (1.0 + rest).square().mean() + pull * (own - start).square().sum()
        # Of her row alone: the model's own parameters are frozen and must not gather gradients either.
        (own.grad,) = torch.autograd.grad(loss, [own])
        optimiser.step()
    return own.detach()


def _joined(left: Attributes, right: Attributes) -> Attributes:
    fields = None if left.fields is None or right.fields is None else torch.cat([left.fields, right.fields], dim=1)
    return Attributes(torch.cat([left.ids, right.ids], dim=1), torch.cat([left.x, right.x], dim=1), fields)


def other_items(n_items: int, chosen: np.ndarray, seed: int = 0) -> np.ndarray:
    """Items she did not name, to set hers apart from."""
    named = np.zeros(n_items, bool)
    named[chosen] = True
    free = np.flatnonzero(~named)
    picked: np.ndarray = np.random.default_rng([seed, 40]).choice(free, min(_N_OTHERS, len(free)), replace=False)
    return picked
