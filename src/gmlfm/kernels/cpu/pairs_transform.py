"""GML-FM's transform z = layers(v) of a step's distinct rows, there and back, and the update of these rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Ints, Longs, Rows, Rule
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.maths import activate, add_scaled, through_activation, through_unit_length, to_unit_length
from gmlfm.kernels.cpu.rows import update_row

_ONE = np.float32(1.0)


class PairsShape(NamedTuple):
    """A PairsSpec or GatedSpec as the kernels take it, its activation by code.

    The packed parameters are the global bias, h, the layers' matrices, their biases, then the gate. rank: numbers of z, which
    are K, or fewer behind one layer without activation. gated: a pair counts 1 + gate times its cosine.
    """

    k: int
    rank: int
    n_layers: int
    activation: int
    has_biases: bool
    unit: bool
    cosine: bool
    gated: bool


class PairsWork(NamedTuple):
    """Buffers for one step of at most U distinct rows: features (n_layers + 1, U, K) from v to before unit length; z (U, R);
    inverses: 1 / length; and for each part the gradients of w (U, 1), v (U, K), z (U, R) and of the packed
    parameters."""

    rows: Ints
    user_slots: Ints
    item_slots: Ints
    features: Floats
    z: Floats
    inverses: Floats
    w_grads: Floats
    v_grads: Floats
    z_grads: Floats
    dense_grads: Floats
    losses: Floats
    n_distinct: Longs


@compiled
def matrices_of(shape: PairsShape, packed_params: Floats) -> Any:
    begin = 1 + shape.k
    return packed_params[begin : begin + shape.n_layers * shape.rank * shape.k].reshape(shape.n_layers, shape.rank, shape.k)


@compiled
def biases_of(shape: PairsShape, packed_params: Floats) -> Any:
    begin = 1 + shape.k + shape.n_layers * shape.rank * shape.k
    end = begin + shape.n_layers * shape.k if shape.has_biases else begin
    return packed_params[begin:end].reshape(shape.n_layers if shape.has_biases else 0, shape.k)


@compiled
def gate_place(shape: PairsShape) -> int:
    """Of the gate among the packed parameters."""
    return 1 + shape.k + shape.n_layers * (shape.rank * shape.k + (shape.rank if shape.has_biases else 0))


@compiled
def narrow(shape: PairsShape, wide: Floats) -> Floats:
    """A buffer of (U, K) as one of (U, R)."""
    return wide.reshape(-1)[: wide.shape[0] * shape.rank].reshape(wide.shape[0], shape.rank)


@compiled
def transform(shape: PairsShape, table: Floats, packed_params: Floats, work: PairsWork, begin: int, end: int) -> None:
    """z of the slots begin to end."""
    matrices, biases = matrices_of(shape, packed_params), biases_of(shape, packed_params)
    v, z, last = work.features[0], work.z, narrow(shape, work.features[shape.n_layers])
    for slot in range(begin, end):
        for k in range(shape.k):
            v[slot, k] = table[work.rows[slot], 1 + k]
    for layer in range(shape.n_layers):
        source, target = work.features[layer, begin:end], narrow(shape, work.features[layer + 1])[begin:end]
        np.dot(source, matrices[layer].T, target)
        for slot in range(end - begin):
            if shape.has_biases:
                add_scaled(target, slot, _ONE, biases, layer)
            activate(shape.activation, target, slot)
    for slot in range(begin, end):
        if shape.unit:
            work.inverses[slot] = to_unit_length(last, z, slot)
        else:
            for k in range(shape.rank):
                z[slot, k] = last[slot, k]


@compiled
def finish_rows(
    shape: PairsShape,
    rule: Rule,
    rows: Rows,
    packed_params: Floats,
    work: PairsWork,
    begin: int,
    end: int,
    thread: int,
    n_threads: int,
) -> None:
    """The slots begin to end: their gradients summed over threads, back through the transform, and the rows updated.

    The layers' gradients of these rows go to this thread's packed gradients; z, no longer needed, holds what comes back from
    layer to layer, or the last features where z is narrow.
    """
    matrices, packed_grads = matrices_of(shape, packed_params), work.dense_grads[thread]
    w_grads, v_grads, z_grads, z = work.w_grads[0], work.v_grads[0], work.z_grads[0], work.z
    for other in range(1, n_threads):
        other_w_grads, other_v_grads, other_z_grads = work.w_grads[other], work.v_grads[other], work.z_grads[other]
        for slot in range(begin, end):
            w_grads[slot, 0] += other_w_grads[slot, 0]
            add_scaled(v_grads, slot, _ONE, other_v_grads, slot)
            add_scaled(z_grads, slot, _ONE, other_z_grads, slot)
    if shape.unit:
        for slot in range(begin, end):
            through_unit_length(z, slot, work.inverses[slot], z_grads, slot)
    back, spare = z_grads[begin:end], z[begin:end] if shape.rank == shape.k else work.features[shape.n_layers, begin:end]
    matrix_grads, bias_grads = matrices_of(shape, packed_grads), biases_of(shape, packed_grads)
    for layer in range(shape.n_layers - 1, -1, -1):
        source, out = work.features[layer, begin:end], narrow(shape, work.features[layer + 1])[begin:end]
        for slot in range(end - begin):
            through_activation(shape.activation, out, slot, back, slot)
            if shape.has_biases:
                add_scaled(bias_grads, layer, _ONE, back, slot)
        np.dot(back.T, source, matrix_grads[layer])
        np.dot(back, matrices[layer], spare)
        back, spare = spare, back
    row_grad = np.empty((1, 1 + shape.k), np.float32)
    for slot in range(begin, end):
        row_grad[0, 0] = w_grads[slot, 0]
        for k in range(shape.k):
            row_grad[0, 1 + k] = v_grads[slot, k] + back[slot - begin, k]
        update_row(rule, rows, work.rows[slot], row_grad, 0)
