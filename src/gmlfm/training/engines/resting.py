"""Weight decay of the dense parameters that have a resting point, such as a gate, which is to stay shut without a reason."""

from __future__ import annotations

import torch
from torch import Tensor

from gmlfm.models.gradient import GradientModel

# By the square of the rows' decay, which is the less the more steps an epoch has: all rows move these few numbers, and small
# data would follow them too far: measured on Auto, Office and ML-1M (docs/research.md).
_STRENGTH = 22.0


@torch.no_grad()
def draw_back(model: GradientModel, lr: float | Tensor, weight_decay: float) -> None:
    """After a step. lr: a tensor where a recorded step must not hold it as a number."""
    share = lr * (_STRENGTH * weight_decay * weight_decay)
    share = share.clamp(max=1.0) if isinstance(share, Tensor) else min(share, 1.0)
    for parameter, rest in model.resting_points():
        parameter.sub_((parameter - rest) * share)
