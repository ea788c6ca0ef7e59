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

from gmlfm.kernels.cpu.outer_sums import add_outer, add_outer_back, list_occurrences
from gmlfm.kernels.cpu.parts import Parts
from gmlfm.kernels.cpu.single_threads import torch_threads

_ENTITIES_PER_PART, _ROWS_PER_PART = 256, 1024
_NONE = np.empty(0, np.float32)
_parts: dict[int, Parts] = {}


def outer_sums(rows: Tensor, k: int, ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """rows: (U, 1 + K + R); ids: (..., F) places among them; x: (..., F) -> l (...), and P by columns (..., (1 + R) K)."""
    linear, vectors, _ = _sums(rows, k, ids, x, has_inner=False)
    return linear, vectors


def side_sums(rows: Tensor, k: int, ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Without a metric, R = 0, and beside these the products within an entity (...):
    \(\sum_{f<g} x_f x_g v_f^\top v_g\)."""
    linear, vectors, inner = _sums(rows, k, ids, x, has_inner=True)
    assert inner is not None
    return linear, vectors, inner


def _sums(rows: Tensor, k: int, ids: Tensor, x: Tensor, *, has_inner: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    shape, n = ids.shape[:-1], math.prod(ids.shape[:-1])
    flat_ids, flat_x = ids.reshape(n, ids.shape[-1]), x.reshape(n, ids.shape[-1])
    inner = None
    if rows.device.type == "cpu" and rows.dtype == torch.float32:
        linear, vectors, *more = _OuterSums.apply(rows, k, flat_ids, flat_x, has_inner)  # type: ignore[no-untyped-call]
        inner = more[0] if has_inner else None
    else:
        linear, vectors = by_products(rows, k, flat_ids, flat_x)
        inner = inner_products(rows, k, flat_ids, flat_x) if has_inner else None
    return linear.view(shape), vectors.view(*shape, vectors.shape[-1]), None if inner is None else inner.view(shape)


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


def inner_products(rows: Tensor, k: int, ids: Tensor, x: Tensor) -> Tensor:
    """The products within entities by PyTorch's own operations: ids, x (N, F) -> (N,)."""
    values = rows.index_select(0, ids.flatten()).view(*ids.shape, rows.shape[1])[..., 1 : 1 + k] * x.unsqueeze(-1)
    return 0.5 * (values.sum(-2).square().sum(-1) - values.square().sum((-2, -1)))


class _OuterSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, k: int, ids: Tensor, x: Tensor, has_inner: bool) -> tuple[Tensor, ...]:
        arrays = [tensor.detach().contiguous().numpy() for tensor in (rows, ids, x)]
        rank, n = rows.shape[1] - 1 - k, len(ids)
        linear, vectors = np.empty(n, np.float32), np.empty((n, k * (1 + rank)), np.float32)
        inner = np.empty(n, np.float32) if has_inner else _NONE

        def add(part: int, thread: int) -> None:
            begin = part * _ENTITIES_PER_PART
            add_outer(arrays[0], k, arrays[1], arrays[2], linear, vectors, inner, begin, min(begin + _ENTITIES_PER_PART, n))

        _threads().run(add, -(-n // _ENTITIES_PER_PART))
        ctx.arrays, ctx.k, ctx.vectors = arrays, k, vectors
        return tuple(torch.from_numpy(array) for array in ((linear, vectors, inner) if has_inner else (linear, vectors)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        rows, ids, x = ctx.arrays
        linear_grads, vector_grads, *more = (grad.contiguous().numpy() for grad in grads)
        inner_grads = more[0] if more else _NONE
        starts, places = np.empty(len(rows) + 1, np.int64), np.empty(ids.size, np.int64)
        list_occurrences(ids, x, starts, places)
        row_grads, n_rows = np.empty(rows.shape, np.float32), len(rows)

        def add(part: int, thread: int) -> None:
            begin, end = part * _ROWS_PER_PART, min((part + 1) * _ROWS_PER_PART, n_rows)
            of_sums = ctx.vectors, linear_grads, vector_grads, inner_grads
            add_outer_back(rows, ctx.k, x, starts, places, *of_sums, row_grads, begin, end)

        _threads().run(add, -(-n_rows // _ROWS_PER_PART))
        return torch.from_numpy(row_grads), None, None, None, None


def _threads() -> Parts:
    n_threads = torch_threads()
    if n_threads not in _parts:
        _parts[n_threads] = Parts(n_threads)
    return _parts[n_threads]
