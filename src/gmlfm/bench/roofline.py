"""How fast the machine could be: operations and bytes counted for a step, over the rates that the machine reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gmlfm.kernels.spec import PairsSpec, SumsSpec

if TYPE_CHECKING:
    from gmlfm.bench.contenders import Side

_PAIR_OPERATIONS = 12  # by factor: two products forward, four updates back, two operations each
_ADAM_OPERATIONS = 12
_MOVED = 6  # numbers by number: the row and two moments, in and out


def counted(side: Side) -> dict[str, float] | None:
    """Operations and bytes an instance of a step by rows, averaged over the first steps; None where they are not known."""
    spec, k = side.model.kernel_spec(), side.task.k
    n_layers = spec.n_layers if isinstance(spec, PairsSpec) else 0
    is_fm = isinstance(spec, SumsSpec) and not spec.translated and not spec.ids_only
    if not isinstance(spec, PairsSpec) and not is_fm:
        return None
    operations, moved, instances = 0.0, 0.0, 0
    for batch in list(side.batches[0].steps(side.groups_per_step))[:8]:
        ids = np.concatenate([batch.user_ids.ravel(), batch.item_ids.ravel()])
        n_distinct = len(np.unique(ids))
        n_user, n_item = (batch.user_x != 0).sum(1), (batch.item_x != 0).sum(2)
        if isinstance(spec, PairsSpec):
            pairs = (n_user * (n_user - 1) // 2).sum() + (n_item * (n_item - 1) // 2).sum()
            pairs += (n_user[:, None] * n_item).sum()
            operations += _PAIR_OPERATIONS * k * float(pairs)
        else:
            operations += _PAIR_OPERATIONS * k * float(n_user.sum() + n_item.sum())
        operations += 3 * 2 * n_layers * k * k * n_distinct + _ADAM_OPERATIONS * (1 + k) * n_distinct
        moved += 4 * _MOVED * (1 + k) * n_distinct + 8 * ids.size
        instances += batch.labels.size
    return {"operations": operations / instances, "bytes": moved / instances}


def measured(device: str) -> dict[str, float]:
    """This device's rates: a large matrix product and a large copy, best of five."""
    n = 8192 if device == "cuda" else 2048
    left, right = (torch.randn(n, n, device=device) for _ in range(2))
    source = torch.randn(2**28 if device == "cuda" else 2**25, device=device)
    target = torch.empty_like(source)

    def best(work: Callable[[], Any]) -> float:
        seconds = []
        for _ in range(6):
            started = time.perf_counter()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
        return min(seconds[1:])

    product = best(lambda: torch.mm(left, right))
    copy = best(lambda: target.copy_(source))
    return {"operations_per_second": 2.0 * n**3 / product, "bytes_per_second": 8.0 * source.numel() / copy}
