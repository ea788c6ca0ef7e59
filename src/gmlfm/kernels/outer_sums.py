r"""Sums of outer products over an entity's attributes, as which a metric of R columns enters a score by sides:

.. math:: \ell_n = \sum_f x_{nf} \, w_f, \qquad P_n = \sum_f x_{nf} \, v_f \, [1, z_f]^\top \in R^{K \times (1 + R)}

O(F K R) an entity. On a CPU by compiled kernels, part by part; elsewhere as PyTorch has it.

Letters: N entities of F attributes, U distinct rows (w, v, z) of 1 + K + R numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gmlfm.kernels.cpu.outer_sums import add_outer, add_outer_back, sum_parts
from gmlfm.kernels.cpu.parts import Parts

_ENTITIES_PER_PART, _MOST_PARTS = 256, 8
_parts: dict[int, Parts] = {}


def outer_sums(rows: Tensor, k: int, ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """rows: (U, 1 + K + R); ids: (..., F) places among them; x: (..., F) -> l (...), and P by columns (..., (1 + R) K)."""
    shape, n = ids.shape[:-1], math.prod(ids.shape[:-1])
    flat_ids, flat_x = ids.reshape(n, ids.shape[-1]), x.reshape(n, ids.shape[-1])
    if rows.device.type == "cpu" and rows.dtype == torch.float32:
        linear, vectors = _OuterSums.apply(rows, k, flat_ids, flat_x)  # type: ignore[no-untyped-call]
    else:
        linear, vectors = by_products(rows, k, flat_ids, flat_x)
    return linear.view(shape), vectors.view(*shape, vectors.shape[-1])


def by_products(rows: Tensor, k: int, ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The same by PyTorch's own operations: ids, x (N, F)."""
    # On a GPU the way back of index_select adds where ids point, that of an index in brackets sorts them first.
    values = rows.index_select(0, ids.flatten()).view(*ids.shape, rows.shape[1])
    taken = values[..., : 1 + k] * x.unsqueeze(-1)
    if rows.shape[1] == 1 + k:
        total = taken.sum(-2)
        return total[:, 0], total[:, 1:]
    ones_and_z = torch.cat([torch.ones_like(values[..., :1]), values[..., 1 + k :]], dim=-1)
    products = ones_and_z.transpose(1, 2) @ taken[..., 1:]
    return taken[..., 0].sum(-1), products.flatten(1)


class _OuterSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, k: int, ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        arrays = [tensor.detach().contiguous().numpy() for tensor in (rows, ids, x)]
        rank, n = rows.shape[1] - 1 - k, len(ids)
        linear, vectors = np.empty(n, np.float32), np.empty((n, k * (1 + rank)), np.float32)

        def add(part: int, thread: int) -> None:
            begin = part * _ENTITIES_PER_PART
            add_outer(arrays[0], k, arrays[1], arrays[2], linear, vectors, begin, min(begin + _ENTITIES_PER_PART, n))

        _threads().run(add, -(-n // _ENTITIES_PER_PART))
        ctx.arrays, ctx.k = arrays, k
        return torch.from_numpy(linear), torch.from_numpy(vectors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        rows, ids, x = ctx.arrays
        linear_grads, vector_grads = (grad.contiguous().numpy() for grad in grads)
        # As many parts, each with sums of its own, whatever the threads: so the result does not depend on them.
        n_parts = min(_MOST_PARTS, -(-len(ids) // _ENTITIES_PER_PART)) or 1
        row_grads, bounds = np.zeros((n_parts, *rows.shape), np.float32), np.linspace(0, len(ids), n_parts + 1).astype(int)

        def add(part: int, thread: int) -> None:
            begin, end = int(bounds[part]), int(bounds[part + 1])
            add_outer_back(rows, ctx.k, ids, x, linear_grads, vector_grads, row_grads[part], begin, end)

        def add_up(part: int, thread: int) -> None:
            begin = part * _ENTITIES_PER_PART
            sum_parts(row_grads, begin, min(begin + _ENTITIES_PER_PART, len(rows)))

        _threads().run(add, n_parts)
        if n_parts > 1:
            _threads().run(add_up, -(-len(rows) // _ENTITIES_PER_PART))
        return torch.from_numpy(row_grads[0]), None, None, None


def _threads() -> Parts:
    n_threads = torch.get_num_threads()
    if n_threads not in _parts:
        _parts[n_threads] = Parts(n_threads)
    return _parts[n_threads]
