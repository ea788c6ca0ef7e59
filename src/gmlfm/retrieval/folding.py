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

from gmlfm.models.base import Attributes, Model

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
    frozen = table[distinct]
    model.eval()
    for _ in range(_STEPS):
        rows = model.ready(torch.cat([frozen, own.unsqueeze(0)]))
        liked, rest = (model.scores(rows, her, one) for one in parts[1:])
        loss = (1.0 - liked).square().mean() + (1.0 + rest).square().mean() + pull * (own - start).square().sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return own.detach()


def other_items(n_items: int, chosen: np.ndarray, seed: int = 0) -> np.ndarray:
    """Items she did not name, to set hers apart from."""
    named = np.zeros(n_items, bool)
    named[chosen] = True
    free = np.flatnonzero(~named)
    picked: np.ndarray = np.random.default_rng([seed, 40]).choice(free, min(_N_OTHERS, len(free)), replace=False)
    return picked
