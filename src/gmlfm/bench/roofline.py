"""How fast the machine could be: operations and bytes counted for a step, over the rates that the machine reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gmlfm.kernels.spec import PairsSpec, SumsSpec

if TYPE_CHECKING:
    from gmlfm.bench.contenders import Contender

_PAIR_OPERATIONS = 12  # by factor: two products forward, four updates back, two operations each
_ADAM_OPERATIONS = 12
SGEMM_SIZE = 4096
_MOVED = 6  # numbers by number: the row and two moments, in and out


def counted(contender: Contender) -> dict[str, float] | None:
    """Operations and bytes an instance of a step by rows, averaged over the first steps; None where they are not known."""
    spec, k = contender.model.kernel_spec(), contender.task.k
    n_layers = spec.n_layers if isinstance(spec, PairsSpec) else 0
    is_fm = isinstance(spec, SumsSpec) and not spec.translated and not spec.ids_only
    if not contender.batches or (not isinstance(spec, PairsSpec) and not is_fm):
        return None
    operations, moved, instances = 0.0, 0.0, 0
    for batch in list(contender.batches[0].steps(contender.groups_per_step))[:8]:
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


class Sgemm:
    """A large matrix product, once at a time, so that it is measured in turn with what is compared to it."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._left, self._right, self._product = (torch.ones(SGEMM_SIZE, SGEMM_SIZE, device=device) for _ in range(3))
        self()

    def __call__(self) -> dict[str, float]:
        """Operations and seconds, by the clock and of the processors."""
        started, busy = time.perf_counter(), time.process_time()
        torch.mm(self._left, self._right, out=self._product)
        if self._device == "cuda":
            torch.cuda.synchronize()
        seconds, busy_seconds = time.perf_counter() - started, time.process_time() - busy
        return {"operations": 2.0 * SGEMM_SIZE**3, "seconds": seconds, "busy": busy_seconds}
