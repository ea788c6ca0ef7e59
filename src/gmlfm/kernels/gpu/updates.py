"""The optimisers, by rows and for the dense parameters: the twin of gmlfm.training.rows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _updated(values, gradient, first, second, updates, fading, lr, N_FADING: tl.constexpr, OPTIMISER: tl.constexpr):
    """New values and moments: sgd 0, adagrad 1, adam 2. fading: 1 / (1 - 0.9^c) by count, then 1 / (1 - 0.999^c)."""
    if OPTIMISER == 0:
        return values - lr * gradient, first, second
    if OPTIMISER == 1:
        first += gradient * gradient
        return values - lr * gradient / (tl.sqrt(first) + 1e-10), first, second
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient * gradient
    at = tl.minimum(updates.to(tl.int32), N_FADING - 1)
    full, full_square = first * tl.load(fading + at), second * tl.load(fading + N_FADING + at)
    return values - lr * full / (tl.sqrt(full_square) + 1e-8), first, second


@triton.jit
def update_rows(
    step,
    alive,
    lr,
    first_slot,
    rows,
    table,
    first,
    second,
    updates,
    gradient_w,
    gradient_v,
    back,
    fading,
    decay,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    Z: tl.constexpr,
    N_FADING: tl.constexpr,
    OPTIMISER: tl.constexpr,
):
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    slot, ks = tl.program_id(0), tl.arange(0, WIDE)
    # Row 0 is padding and stays as it is.
    row = tl.load(rows + begin + slot, mask=begin + slot < end, other=0).to(tl.int64)
    if (row > 0) & (tl.load(alive) != 0):
        # Column 0 is w; the rest v.
        inside = ks < 1 + K
        gradient = tl.load(gradient_v + slot * K + ks - 1, mask=inside & (ks > 0), other=0.0)
        if Z:
            gradient += tl.load(back + slot * K + ks - 1, mask=inside & (ks > 0), other=0.0)
        gradient = tl.where(ks == 0, tl.load(gradient_w + slot), gradient)
        at = row * (1 + K) + ks
        rate = tl.load(lr)
        one = tl.load(table + at, mask=inside, other=0.0) * (1.0 - rate * decay)
        moment, square, count = one, one, rate
        if OPTIMISER > 0:
            moment = tl.load(first + at, mask=inside, other=0.0)
        if OPTIMISER == 2:
            square = tl.load(second + at, mask=inside, other=0.0)
            count = tl.load(updates + row) + 1.0
        one, moment, square = _updated(one, gradient, moment, square, count, fading, rate, N_FADING, OPTIMISER)
        tl.store(table + at, one, mask=inside)
        if OPTIMISER > 0:
            tl.store(first + at, moment, mask=inside)
        if OPTIMISER == 2:
            tl.store(second + at, square, mask=inside)
            tl.store(updates + row, count)


@triton.jit
def finish_rows(
    step,
    alive,
    lr,
    first_slot,
    rows,
    table,
    first,
    second,
    updates,
    values,
    gradient_w,
    gradient_v,
    back,
    line,
    layer_partials,
    fading,
    decay,
    TURNS,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    EACH: tl.constexpr,
    BIASED: tl.constexpr,
    N_FADING: tl.constexpr,
    OPTIMISER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Through one layer, and update_rows, in one; a program's share of the layer's slopes goes to its partials.

    back: the slope before the activation; beyond the step's rows it is zero, as values are.
    """
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    ks, inside = tl.arange(0, WIDE), (tl.arange(0, WIDE) < K)[None, :]
    square, fits = ks[:, None] * K + ks[None, :], (ks < K)[:, None] & inside
    matrix = tl.load(line + 1 + K + square, mask=fits, other=0.0)
    at_matrix, at_bias = tl.zeros([WIDE, WIDE], tl.float32), tl.zeros([WIDE], tl.float32)
    living, rate = tl.load(alive) != 0, tl.load(lr)
    for turn in range(TURNS):
        slots = (tl.program_id(0) * TURNS + turn) * EACH + tl.arange(0, EACH)
        row = tl.load(rows + begin + slots, mask=begin + slots < end, other=0).to(tl.int64)
        at = slots[:, None] * K + ks[None, :]
        held = (begin + slots < end)[:, None] & inside
        v = tl.load(values + at, mask=held, other=0.0)
        one = tl.load(back + at, mask=held, other=0.0)
        at_matrix += tl.dot(tl.trans(one), v, input_precision=PRECISION)
        at_bias += tl.sum(one, 0)
        gradient = tl.load(gradient_v + at, mask=held, other=0.0) + tl.dot(one, matrix, input_precision=PRECISION)
        goes = (row > 0) & living
        wide_goes = goes[:, None] & inside
        place = row[:, None] * (1 + K) + 1 + ks[None, :]
        v *= 1.0 - rate * decay
        moment, square_moment, count = v, v, tl.zeros([EACH], tl.float32)
        if OPTIMISER > 0:
            moment = tl.load(first + place, mask=wide_goes, other=0.0)
        if OPTIMISER == 2:
            square_moment = tl.load(second + place, mask=wide_goes, other=0.0)
            count = tl.load(updates + row, mask=goes, other=0.0) + 1.0
        v, moment, square_moment = _updated(
            v, gradient, moment, square_moment, count[:, None], fading, rate, N_FADING, OPTIMISER
        )
        tl.store(table + place, v, mask=wide_goes)
        w = tl.load(table + row * (1 + K), mask=goes, other=0.0) * (1.0 - rate * decay)
        w_moment, w_square = w, w
        if OPTIMISER > 0:
            tl.store(first + place, moment, mask=wide_goes)
            w_moment = tl.load(first + row * (1 + K), mask=goes, other=0.0)
        if OPTIMISER == 2:
            tl.store(second + place, square_moment, mask=wide_goes)
            w_square = tl.load(second + row * (1 + K), mask=goes, other=0.0)
        w, w_moment, w_square = _updated(
            w, tl.load(gradient_w + slots), w_moment, w_square, count, fading, rate, N_FADING, OPTIMISER
        )
        tl.store(table + row * (1 + K), w, mask=goes)
        if OPTIMISER > 0:
            tl.store(first + row * (1 + K), w_moment, mask=goes)
        if OPTIMISER == 2:
            tl.store(second + row * (1 + K), w_square, mask=goes)
            tl.store(updates + row, count, mask=goes)
    partial = layer_partials + tl.program_id(0) * (K * K + K)
    tl.store(partial + square, at_matrix, mask=fits)
    if BIASED:
        tl.store(partial + K * K + ks, at_bias, mask=ks < K)


@triton.jit
def update_line(
    step,
    alive,
    lr,
    line,
    gradient,
    first,
    second,
    updates,
    fading,
    ticket,
    layer_partials,
    N_PARTIALS,
    N,
    HEAD: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    N_FADING: tl.constexpr,
    OPTIMISER: tl.constexpr,
):
    """The dense parameters. The last program to finish counts the update and the step.

    Where there are partials, each WIDTH long, the parameters from HEAD on have their slopes in these.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    living = tl.load(alive) != 0
    count = tl.load(updates) + 1.0
    if living:
        one = tl.load(line + at, mask=inside, other=0.0)
        slope = tl.load(gradient + at, mask=inside & ((N_PARTIALS == 0) | (at < HEAD)), other=0.0)
        for partial in range(N_PARTIALS):
            slope += tl.load(layer_partials + partial * WIDTH + at - HEAD, mask=inside & (at >= HEAD), other=0.0)
        moment, square = one, one
        if OPTIMISER > 0:
            moment = tl.load(first + at, mask=inside, other=0.0)
        if OPTIMISER == 2:
            square = tl.load(second + at, mask=inside, other=0.0)
        one, moment, square = _updated(one, slope, moment, square, count, fading, tl.load(lr), N_FADING, OPTIMISER)
        tl.store(line + at, one, mask=inside)
        if OPTIMISER > 0:
            tl.store(first + at, moment, mask=inside)
        if OPTIMISER == 2:
            tl.store(second + at, square, mask=inside)
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1) == tl.num_programs(0) - 1:
        tl.store(ticket, 0)
        if living:
            tl.store(updates, count)
        tl.store(step, tl.load(step) + 1)
