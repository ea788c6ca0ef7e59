"""Weight decay of the dense parameters that have a resting point, such as a gate, which is to stay shut without a reason."""

from __future__ import annotations

import torch
from torch import Tensor

from gmlfm.models.gradient import GradientModel

# A few numbers that all rows share: by the square of the rows' decay, which is the less the more steps an epoch has. A matrix,
# as a prior does: the less the more rows there are to learn it from. Measured on Auto, Office and ML-1M (docs/research.md).
_STRENGTH, _PRIOR_ROWS = 22.0, 65_000.0


@torch.no_grad()
def draw_back(model: GradientModel, lr: float | Tensor, weight_decay: float, n_rows: int) -> None:
    """After a step of a model that learns from n_rows in all. lr: a tensor where a recorded step must not hold a number."""
    if not weight_decay:
        return
    for parameter, rest in model.resting_points():
        strength = _PRIOR_ROWS / n_rows if parameter.ndim > 1 else _STRENGTH * weight_decay * weight_decay
        share = lr * strength
        parameter.sub_((parameter - rest) * (share.clamp(max=1.0) if isinstance(share, Tensor) else min(share, 1.0)))
