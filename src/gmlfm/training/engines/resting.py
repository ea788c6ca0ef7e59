"""Weight decay of the dense parameters that have a resting point, such as a gate, which is to stay shut without a reason."""

from __future__ import annotations

import torch
from torch import Tensor

from gmlfm.models.gradient import GradientModel

# As a prior does, the resting point weighs the less the more rows there are: as much as so many of them.
_PRIOR_ROWS = 250_000.0


@torch.no_grad()
def draw_back(model: GradientModel, lr: float | Tensor, n_rows: int) -> None:
    """After a step of an epoch of n_rows. lr: a tensor where a recorded step must not hold it as a number."""
    share = lr * (_PRIOR_ROWS / n_rows)
    share = share.clamp(max=1.0) if isinstance(share, Tensor) else min(share, 1.0)
    for parameter, rest in model.resting_points():
        parameter.sub_((parameter - rest) * share)
