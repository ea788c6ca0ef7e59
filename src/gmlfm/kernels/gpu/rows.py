"""Rows in and out on the GPU: gathered by slot, slopes of all occurrences of a row summed in a fixed order, rows updated.

Occurrences are sorted by row beforehand, so a row's slopes lie side by side and no two programs add to one place: hot rows
cost no collisions, and the same step always gives the same numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _activated(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        # tanh by exp, exact at both ends.
        small = tl.exp(-2.0 * tl.abs(y))
        size = (1.0 - small) / (1.0 + small)
        return tl.where(y >= 0, size, -size)
    if ACTIVATION == 2:
        return tl.maximum(y, 0.0)
    if ACTIVATION == 3:
        return tl.sigmoid(y)
    return y


@triton.jit
def _through(gradient, out, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        return gradient * (1.0 - out * out)
    if ACTIVATION == 2:
        return tl.where(out > 0, gradient, 0.0)
    if ACTIVATION == 3:
        return gradient * out * (1.0 - out)
    return gradient


@triton.jit
def gather_rows(step, first_slot, rows, table, values, weights, K: tl.constexpr, WIDE: tl.constexpr, EACH: tl.constexpr):
    """v (U, K) and w (U,) of the step's distinct rows; beyond them zeros."""
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    there = begin + slots < end
    row = tl.load(rows + begin + slots, mask=there, other=0).to(tl.int64)
    tl.store(weights + slots, tl.load(table + row * (1 + K), mask=there, other=0.0))
    inside = (ks < K)[None, :]
    v = tl.load(table + row[:, None] * (1 + K) + 1 + ks[None, :], mask=there[:, None] & inside, other=0.0)
    tl.store(values + slots[:, None] * K + ks[None, :], v, mask=inside)


@triton.jit
def activate_rows(
    features,
    z,
    inverses,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    EACH: tl.constexpr,
    ACTIVATION: tl.constexpr,
    LAST: tl.constexpr,
    UNIT: tl.constexpr,
):
    """The activation in place; after the last layer also z, at unit length where UNIT, with 1 / length."""
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    at, inside = slots[:, None] * K + ks[None, :], (ks < K)[None, :]
    y = _activated(tl.load(features + at, mask=inside, other=0.0), ACTIVATION)
    y = tl.where(inside, y, 0.0)
    tl.store(features + at, y, mask=inside)
    if LAST:
        if UNIT:
            squares = tl.sum(y * y, 1)
            short = squares <= 1e-12
            inverse = tl.where(short, 1e6, 1.0 / tl.sqrt(tl.maximum(squares, 1e-12)))
            # A negative sign marks a vector so short that it is only scaled.
            tl.store(inverses + slots, tl.where(short, -inverse, inverse))
            y = y * inverse[:, None]
        tl.store(z + at, y, mask=inside)


@triton.jit
def transform_rows(
    step,
    first_slot,
    rows,
    table,
    line,
    values,
    weights,
    features,
    z,
    inverses,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    EACH: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BIASED: tl.constexpr,
    UNIT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """gather_rows, one layer and activate_rows in one, where the layer's matrix fits a program."""
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    slots, ks = tl.program_id(0) * EACH + tl.arange(0, EACH), tl.arange(0, WIDE)
    there, inside = begin + slots < end, (ks < K)[None, :]
    row = tl.load(rows + begin + slots, mask=there, other=0).to(tl.int64)
    at = slots[:, None] * K + ks[None, :]
    tl.store(weights + slots, tl.load(table + row * (1 + K), mask=there, other=0.0))
    v = tl.load(table + row[:, None] * (1 + K) + 1 + ks[None, :], mask=there[:, None] & inside, other=0.0)
    tl.store(values + at, v, mask=inside)
    matrix = tl.load(line + 1 + K + ks[:, None] * K + ks[None, :], mask=(ks < K)[:, None] & inside, other=0.0)
    y = tl.dot(v, tl.trans(matrix), input_precision=PRECISION)
    if BIASED:
        y += tl.load(line + 1 + K + K * K + ks, mask=ks < K, other=0.0)[None, :]
    y = tl.where(inside, _activated(y, ACTIVATION), 0.0)
    tl.store(features + at, y, mask=inside)
    if UNIT:
        squares = tl.sum(y * y, 1)
        short = squares <= 1e-12
        inverse = tl.where(short, 1e6, 1.0 / tl.sqrt(tl.maximum(squares, 1e-12)))
        tl.store(inverses + slots, tl.where(short, -inverse, inverse))
        y = y * inverse[:, None]
    tl.store(z + at, y, mask=inside)


@triton.jit
def sum_pieces(
    step,
    first_piece,
    piece_starts,
    piece_ends,
    source_w,
    source_v,
    source_z,
    sum_w,
    sum_v,
    sum_z,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    Z: tl.constexpr,
):
    """The slopes of each piece's occurrences, summed."""
    s = tl.load(step)
    begin, end = tl.load(first_piece + s), tl.load(first_piece + s + 1)
    piece = begin + tl.program_id(0)
    if piece < end:
        start, stop = tl.load(piece_starts + piece), tl.load(piece_ends + piece)
        ks, slot = tl.arange(0, WIDE), tl.program_id(0)
        inside = ks < K
        v, z, w = tl.zeros([WIDE], tl.float32), tl.zeros([WIDE], tl.float32), tl.zeros([1], tl.float32)
        many = tl.arange(0, 8)
        for at in range(start, stop, 8):
            position = (at + many).to(tl.int64)
            there = (position < stop)[:, None] & inside[None, :]
            v += tl.sum(tl.load(source_v + position[:, None] * K + ks[None, :], mask=there, other=0.0), 0)
            if Z:
                z += tl.sum(tl.load(source_z + position[:, None] * K + ks[None, :], mask=there, other=0.0), 0)
            w += tl.sum(tl.load(source_w + position, mask=position < stop, other=0.0))
        tl.store(sum_v + slot * K + ks, v, mask=inside)
        if Z:
            tl.store(sum_z + slot * K + ks, z, mask=inside)
        tl.store(sum_w + slot + tl.arange(0, 1), w)


@triton.jit
def sum_rows(
    step,
    first_slot,
    first_piece,
    sources,
    piece_starts,
    piece_ends,
    source_w,
    source_v,
    source_z,
    out,
    z,
    inverses,
    gradient_w,
    gradient_v,
    back,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    Z: tl.constexpr,
    ACTIVATION: tl.constexpr,
    UNIT: tl.constexpr,
    IN_PIECES: tl.constexpr,
):
    """The slopes of a row, from the sums of its pieces or, where each row has one piece, from its occurrences; z's go back
    through unit length and activation. Beyond the step's rows zeros."""
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    slot, ks = tl.program_id(0), tl.arange(0, WIDE)
    inside = ks < K
    v, zs, w = tl.zeros([WIDE], tl.float32), tl.zeros([WIDE], tl.float32), tl.zeros([1], tl.float32)
    if begin + slot < end:
        start, stop = tl.load(piece_starts + begin + slot), tl.load(piece_ends + begin + slot)
        if IN_PIECES:
            offset = tl.load(first_piece + s)
            start, stop = tl.load(sources + begin + slot) - offset, tl.load(sources + begin + slot + 1) - offset
        many = tl.arange(0, 8)
        for at in range(start, stop, 8):
            position = (at + many).to(tl.int64)
            there = (position < stop)[:, None] & inside[None, :]
            v += tl.sum(tl.load(source_v + position[:, None] * K + ks[None, :], mask=there, other=0.0), 0)
            if Z:
                zs += tl.sum(tl.load(source_z + position[:, None] * K + ks[None, :], mask=there, other=0.0), 0)
            w += tl.sum(tl.load(source_w + position, mask=position < stop, other=0.0))
    tl.store(gradient_w + slot + tl.arange(0, 1), w)
    tl.store(gradient_v + slot * K + ks, v, mask=inside)
    if Z:
        if UNIT:
            unit = tl.load(z + slot * K + ks, mask=inside, other=0.0)
            inverse = tl.load(inverses + slot)
            along = tl.sum(unit * zs)
            zs = tl.where(inverse < 0, -inverse * zs, inverse * (zs - along * unit))
        y = tl.load(out + slot * K + ks, mask=inside, other=0.0)
        tl.store(back + slot * K + ks, _through(zs, y, ACTIVATION), mask=inside)


@triton.jit
def through_layer(gradient, out, N, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr):
    """Between two layers, on the way back, in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    found = _through(tl.load(gradient + at, mask=inside, other=0.0), tl.load(out + at, mask=inside, other=0.0), ACTIVATION)
    tl.store(gradient + at, found, mask=inside)


@triton.jit
def sum_partials(step, alive, partials, loss_partials, line_gradient, losses, N, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The programs' slopes at the global bias and at h, one column a program; column 0 also the loss of the step.

    A loss that is no number ends training: from then on nothing is written."""
    column, many = tl.program_id(0), tl.arange(0, BLOCK)
    total, loss = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for at in range(0, N, BLOCK):
        there = at + many < N
        total += tl.load(partials + (at + many) * WIDTH + column, mask=there, other=0.0)
        if column == 0:
            loss += tl.load(loss_partials + at + many, mask=there, other=0.0)
    tl.store(line_gradient + column, tl.sum(total))
    if column == 0:
        found = tl.sum(loss)
        s = tl.load(step)
        tl.store(losses + s, found)
        # inf - inf and NaN are not equal to 0.
        tl.store(alive, tl.where(found - found == 0.0, tl.load(alive), 0))


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
