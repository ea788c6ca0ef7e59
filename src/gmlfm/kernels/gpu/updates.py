"""The optimisers, by rows and for the dense parameters: the twin of gmlfm.training.rows."""

from __future__ import annotations

import triton
import triton.language as tl

from gmlfm.kernels import codes

_SGD, _ADAGRAD, _ADAM = tl.constexpr(codes.SGD), tl.constexpr(codes.ADAGRAD), tl.constexpr(codes.ADAM)


@triton.jit
def _updated(
    values, gradient, first_moment, second_moment, updates, bias_correction, lr, N_COUNTS: tl.constexpr, OPTIMISER: tl.constexpr
):
    """New values and moments. bias_correction: 1 / (1 - 0.9^c) by count c, then 1 / (1 - 0.999^c), N_COUNTS each."""
    if OPTIMISER == _SGD:
        return values - lr * gradient, first_moment, second_moment
    if OPTIMISER == _ADAGRAD:
        first_moment += gradient * gradient
        return values - lr * gradient / (tl.sqrt(first_moment) + 1e-10), first_moment, second_moment
    first_moment = 0.9 * first_moment + 0.1 * gradient
    second_moment = 0.999 * second_moment + 0.001 * gradient * gradient
    count = tl.minimum(updates.to(tl.int32), N_COUNTS - 1)
    mean, square = first_moment * tl.load(bias_correction + count), second_moment * tl.load(bias_correction + N_COUNTS + count)
    return values - lr * mean / (tl.sqrt(square) + 1e-8), first_moment, second_moment


@triton.jit
def update_rows(
    step, alive, lr, first_slot, rows, table, first_moment, second_moment, updates, gradient_w, gradient_v, back,
    bias_correction, decay,
    K: tl.constexpr, WIDE: tl.constexpr, HAS_Z: tl.constexpr, N_COUNTS: tl.constexpr, OPTIMISER: tl.constexpr,
):  # fmt: skip
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    slot, ks = tl.program_id(0), tl.arange(0, WIDE)
    # Row 0 is padding and stays as it is.
    row = tl.load(rows + begin + slot, mask=begin + slot < end, other=0).to(tl.int64)
    if (row > 0) & (tl.load(alive) != 0):
        # Column 0 is w; the rest v.
        inside = ks < 1 + K
        gradient = tl.load(gradient_v + slot * K + ks - 1, mask=inside & (ks > 0), other=0.0)
        if HAS_Z:
            gradient += tl.load(back + slot * K + ks - 1, mask=inside & (ks > 0), other=0.0)
        gradient = tl.where(ks == 0, tl.load(gradient_w + slot), gradient)
        places = row * (1 + K) + ks
        rate = tl.load(lr)
        values = tl.load(table + places, mask=inside, other=0.0) * (1.0 - rate * decay)
        moment, square, count = values, values, rate
        if OPTIMISER != _SGD:
            moment = tl.load(first_moment + places, mask=inside, other=0.0)
        if OPTIMISER == _ADAM:
            square = tl.load(second_moment + places, mask=inside, other=0.0)
            count = tl.load(updates + row) + 1.0
        values, moment, square = _updated(values, gradient, moment, square, count, bias_correction, rate, N_COUNTS, OPTIMISER)
        tl.store(table + places, values, mask=inside)
        if OPTIMISER != _SGD:
            tl.store(first_moment + places, moment, mask=inside)
        if OPTIMISER == _ADAM:
            tl.store(second_moment + places, square, mask=inside)
            tl.store(updates + row, count)


@triton.jit
def finish_rows(
    step, alive, lr, first_slot, rows, table, first_moment, second_moment, updates, values, gradient_w, gradient_v, back,
    packed_params, layer_partials, bias_correction, decay, BLOCKS_PER_PROGRAM,
    K: tl.constexpr, WIDE: tl.constexpr, EACH: tl.constexpr, HAS_BIASES: tl.constexpr, N_COUNTS: tl.constexpr,
    OPTIMISER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Back through one layer, and update_rows, in one; a program's share of the layer's gradients goes to its partials.

    back: the gradient before the activation; beyond the step's rows it is zero, as values are.
    """
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    ks, inside = tl.arange(0, WIDE), (tl.arange(0, WIDE) < K)[None, :]
    matrix_places, in_matrix = ks[:, None] * K + ks[None, :], (ks < K)[:, None] & inside
    matrix = tl.load(packed_params + 1 + K + matrix_places, mask=in_matrix, other=0.0)
    matrix_grad, bias_grad = tl.zeros([WIDE, WIDE], tl.float32), tl.zeros([WIDE], tl.float32)
    living, rate = tl.load(alive) != 0, tl.load(lr)
    for block in range(BLOCKS_PER_PROGRAM):
        slots = (tl.program_id(0) * BLOCKS_PER_PROGRAM + block) * EACH + tl.arange(0, EACH)
        row = tl.load(rows + begin + slots, mask=begin + slots < end, other=0).to(tl.int64)
        places = slots[:, None] * K + ks[None, :]
        is_present = (begin + slots < end)[:, None] & inside
        v = tl.load(values + places, mask=is_present, other=0.0)
        y_grad = tl.load(back + places, mask=is_present, other=0.0)
        matrix_grad += tl.dot(tl.trans(y_grad), v, input_precision=PRECISION)
        bias_grad += tl.sum(y_grad, 0)
        gradient = tl.load(gradient_v + places, mask=is_present, other=0.0) + tl.dot(y_grad, matrix, input_precision=PRECISION)
        updated = (row > 0) & living
        updated_v = updated[:, None] & inside
        table_places = row[:, None] * (1 + K) + 1 + ks[None, :]
        v *= 1.0 - rate * decay
        moment, square, count = v, v, tl.zeros([EACH], tl.float32)
        if OPTIMISER != _SGD:
            moment = tl.load(first_moment + table_places, mask=updated_v, other=0.0)
        if OPTIMISER == _ADAM:
            square = tl.load(second_moment + table_places, mask=updated_v, other=0.0)
            count = tl.load(updates + row, mask=updated, other=0.0) + 1.0
        v, moment, square = _updated(v, gradient, moment, square, count[:, None], bias_correction, rate, N_COUNTS, OPTIMISER)
        tl.store(table + table_places, v, mask=updated_v)
        w = tl.load(table + row * (1 + K), mask=updated, other=0.0) * (1.0 - rate * decay)
        w_moment, w_square = w, w
        if OPTIMISER != _SGD:
            tl.store(first_moment + table_places, moment, mask=updated_v)
            w_moment = tl.load(first_moment + row * (1 + K), mask=updated, other=0.0)
        if OPTIMISER == _ADAM:
            tl.store(second_moment + table_places, square, mask=updated_v)
            w_square = tl.load(second_moment + row * (1 + K), mask=updated, other=0.0)
        w, w_moment, w_square = _updated(
            w, tl.load(gradient_w + slots), w_moment, w_square, count, bias_correction, rate, N_COUNTS, OPTIMISER
        )
        tl.store(table + row * (1 + K), w, mask=updated)
        if OPTIMISER != _SGD:
            tl.store(first_moment + row * (1 + K), w_moment, mask=updated)
        if OPTIMISER == _ADAM:
            tl.store(second_moment + row * (1 + K), w_square, mask=updated)
            tl.store(updates + row, count, mask=updated)
    partial = layer_partials + tl.program_id(0) * (K * K + K)
    tl.store(partial + matrix_places, matrix_grad, mask=in_matrix)
    if HAS_BIASES:
        tl.store(partial + K * K + ks, bias_grad, mask=ks < K)


@triton.jit
def update_packed(
    step, alive, lr, packed_params, packed_grads, first_moment, second_moment, updates, bias_correction, ticket,
    layer_partials, N_PARTIALS, N,
    HEAD: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, N_COUNTS: tl.constexpr, OPTIMISER: tl.constexpr,
):  # fmt: skip
    """The dense parameters. The last program to finish counts the update and the step.

    Where there are partials, each WIDTH long, the parameters from HEAD on have their gradients in these.
    """
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < N
    living = tl.load(alive) != 0
    count = tl.load(updates) + 1.0
    if living:
        values = tl.load(packed_params + places, mask=inside, other=0.0)
        gradient = tl.load(packed_grads + places, mask=inside & ((N_PARTIALS == 0) | (places < HEAD)), other=0.0)
        for partial in range(N_PARTIALS):
            gradient += tl.load(layer_partials + partial * WIDTH + places - HEAD, mask=inside & (places >= HEAD), other=0.0)
        moment, square = values, values
        if OPTIMISER != _SGD:
            moment = tl.load(first_moment + places, mask=inside, other=0.0)
        if OPTIMISER == _ADAM:
            square = tl.load(second_moment + places, mask=inside, other=0.0)
        values, moment, square = _updated(
            values, gradient, moment, square, count, bias_correction, tl.load(lr), N_COUNTS, OPTIMISER
        )
        tl.store(packed_params + places, values, mask=inside)
        if OPTIMISER != _SGD:
            tl.store(first_moment + places, moment, mask=inside)
        if OPTIMISER == _ADAM:
            tl.store(second_moment + places, square, mask=inside)
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1) == tl.num_programs(0) - 1:
        tl.store(ticket, 0)
        if living:
            tl.store(updates, count)
        tl.store(step, tl.load(step) + 1)
