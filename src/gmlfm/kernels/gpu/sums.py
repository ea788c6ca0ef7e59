"""Slopes summed by row, in a fixed order.

Occurrences are sorted by row beforehand, so a row's slopes lie side by side and no two programs add to one place: hot rows
cost no collisions, and the same step always gives the same numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gmlfm.kernels.gpu.transform import through


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
        tl.store(back + slot * K + ks, through(zs, y, ACTIVATION), mask=inside)


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
