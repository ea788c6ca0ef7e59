r"""A newcomer's own row from the few things they chose, with everything else frozen.

The score is linear in the row's w and, for the models here, smooth in its v; a few dozen gradient steps on one row over the
chosen items against sampled others, starting at the unknown row, take milliseconds.

.. math:: \min_{r} \ \frac1{|P|} \sum_{i \in P} (1 - \hat y_r(i))^2 + \frac1{|N|} \sum_{j \in N} (1 + \hat y_r(j))^2
   + \lambda \|r - r_{unknown}\|^2
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gmlfm.models.base import Ints
from gmlfm.models.frozen import scores_of_row
from gmlfm.models.gradient import Attributes, GradientModel

_STEPS, _RATE, _PULL = 40, 0.05, 0.1
_N_OTHERS = 200


def folded_row(
    model: GradientModel, table: Tensor, unknown: int, user: Attributes, chosen: Attributes, others: Attributes
) -> Tensor:
    """The newcomer's row (width,). user: their attributes (1, F), the id first; chosen, others: items (1, G, F')."""
    start = table[unknown].clone()
    row = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([row], lr=_RATE)
    model.eval()
    score = scores_of_row(model, table, unknown, user, _joined(chosen, others))
    n_chosen = chosen.ids.shape[1]
    for _ in range(_STEPS):
        scores = score(row)
        liked, rest = scores[:, :n_chosen], scores[:, n_chosen:]
        loss = (1.0 - liked).square().mean() + (1.0 + rest).square().mean() + _PULL * (row - start).square().sum()
        # Of this row alone: the model's own parameters are frozen and must not gather gradients either.
        (row.grad,) = torch.autograd.grad(loss, [row])
        optimiser.step()
    return row.detach()


def _joined(left: Attributes, right: Attributes) -> Attributes:
    fields = None if left.fields is None or right.fields is None else torch.cat([left.fields, right.fields], dim=1)
    pairs = ((left.ids, right.ids), (left.x, right.x), (left.is_present, right.is_present))
    ids, x, is_present = (torch.cat(pair, dim=1) for pair in pairs)
    return Attributes(ids, x, fields, is_present)


def other_items(n_items: int, chosen: Ints) -> Ints:
    """A seeded sample of the items that were not chosen, to set the chosen ones apart from."""
    is_chosen = np.zeros(n_items, bool)
    is_chosen[chosen] = True
    free = np.flatnonzero(~is_chosen)
    return np.random.default_rng([0, 40]).choice(free, min(_N_OTHERS, len(free)), replace=False).astype(np.int32)
