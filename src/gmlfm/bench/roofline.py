"""How fast the machine could be: operations and bytes counted for a step, over the rates that the machine reaches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.training.engines.packing import gml_line

if TYPE_CHECKING:
    from gmlfm.bench.contenders import Side

_PAIR_OPERATIONS = 12  # by factor: two products forward, four updates back, two operations each
_ADAM_OPERATIONS = 12
_MOVED = 6  # numbers by number: the row and two moments, in and out


def counted(side: Side) -> dict[str, float] | None:
    """Operations and bytes an instance of a step by rows, averaged over the first steps; None where they are not known."""
    model, k = side.model, side.task.k
    if not isinstance(model, (GMLFM, FM)):
        return None
    layers = gml_line(model).layers if isinstance(model, GMLFM) else 0
    operations, moved, instances = 0.0, 0.0, 0
    for part in list(side.batches[0].steps(side.groups_per_step))[:8]:
        ids = np.concatenate([part.user_ids.ravel(), part.item_ids.ravel()])
        distinct = len(np.unique(ids))
        user_side, item_side = (part.user_x != 0).sum(1), (part.item_x != 0).sum(2)
        if isinstance(model, GMLFM):
            pairs = (user_side * (user_side - 1) // 2).sum() + (item_side * (item_side - 1) // 2).sum()
            pairs += (user_side[:, None] * item_side).sum()
            operations += _PAIR_OPERATIONS * k * float(pairs)
        else:
            operations += _PAIR_OPERATIONS * k * float(user_side.sum() + item_side.sum())
        operations += 3 * 2 * layers * k * k * distinct + _ADAM_OPERATIONS * (1 + k) * distinct
        moved += 4 * _MOVED * (1 + k) * distinct + 8 * ids.size
        instances += part.labels.size
    return {"operations": operations / instances, "bytes": moved / instances}


def measured(device: str) -> dict[str, float]:
    """This device's rates: a large matrix product and a large copy, best of five."""
    n = 8192 if device == "cuda" else 2048
    left, right = (torch.randn(n, n, device=device) for _ in range(2))
    big = torch.randn(2**28 if device == "cuda" else 2**25, device=device)
    target = torch.empty_like(big)

    def best(work: Any) -> float:
        found = []
        for _ in range(6):
            started = time.perf_counter()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            found.append(time.perf_counter() - started)
        return min(found[1:])

    product = best(lambda: torch.mm(left, right))
    copy = best(lambda: target.copy_(big))
    return {"operations_per_second": 2.0 * n**3 / product, "bytes_per_second": 8.0 * big.numel() / copy}
