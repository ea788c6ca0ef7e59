"""Gradients summed by row, in a fixed order.

Occurrences are sorted by row beforehand, so a row's gradients lie side by side and no two programs add to one place: hot rows
cost no collisions, and the same step always gives the same numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gmlfm.kernels.gpu.transform import through


@triton.jit
def _sum_span(
    start, stop, source_w, source_v, source_z, ks, K: tl.constexpr, WIDE: tl.constexpr, HAS_Z: tl.constexpr
):  # fmt: skip
    """w (1,), v and z (WIDE,) summed over the positions start to stop, eight at a time."""
    v, z, w = tl.zeros([WIDE], tl.float32), tl.zeros([WIDE], tl.float32), tl.zeros([1], tl.float32)
    eight = tl.arange(0, 8)
    for begin in range(start, stop, 8):
        position = (begin + eight).to(tl.int64)
        is_present = (position < stop)[:, None] & (ks < K)[None, :]
        v += tl.sum(tl.load(source_v + position[:, None] * K + ks[None, :], mask=is_present, other=0.0), 0)
        if HAS_Z:
            z += tl.sum(tl.load(source_z + position[:, None] * K + ks[None, :], mask=is_present, other=0.0), 0)
        w += tl.sum(tl.load(source_w + position, mask=position < stop, other=0.0))
    return w, v, z


@triton.jit
def sum_pieces(
    step, first_piece, piece_starts, piece_ends, source_w, source_v, source_z, sum_w, sum_v, sum_z,
    K: tl.constexpr, WIDE: tl.constexpr, HAS_Z: tl.constexpr,
):  # fmt: skip
    """The gradients of each piece's occurrences, summed."""
    s = tl.load(step)
    begin, end = tl.load(first_piece + s), tl.load(first_piece + s + 1)
    piece = begin + tl.program_id(0)
    if piece < end:
        start, stop = tl.load(piece_starts + piece), tl.load(piece_ends + piece)
        ks, slot = tl.arange(0, WIDE), tl.program_id(0)
        w, v, z = _sum_span(start, stop, source_w, source_v, source_z, ks, K, WIDE, HAS_Z)
        tl.store(sum_v + slot * K + ks, v, mask=ks < K)
        if HAS_Z:
            tl.store(sum_z + slot * K + ks, z, mask=ks < K)
        tl.store(sum_w + slot + tl.arange(0, 1), w)


@triton.jit
def sum_rows(
    step, first_slot, first_piece, sources, piece_starts, piece_ends, source_w, source_v, source_z, out, z, inverses,
    gradient_w, gradient_v, back,
    K: tl.constexpr, WIDE: tl.constexpr, HAS_Z: tl.constexpr, ACTIVATION: tl.constexpr, UNIT: tl.constexpr,
    IN_PIECES: tl.constexpr,
):  # fmt: skip
    """The gradients of a row, from the sums of its pieces or, where each row has one piece, from its occurrences; z's go back
    through unit length and activation. Beyond the step's rows zeros."""
    s = tl.load(step)
    begin, end = tl.load(first_slot + s), tl.load(first_slot + s + 1)
    slot, ks = tl.program_id(0), tl.arange(0, WIDE)
    inside = ks < K
    v, z_grad, w = tl.zeros([WIDE], tl.float32), tl.zeros([WIDE], tl.float32), tl.zeros([1], tl.float32)
    if begin + slot < end:
        start, stop = tl.load(piece_starts + begin + slot), tl.load(piece_ends + begin + slot)
        if IN_PIECES:
            offset = tl.load(first_piece + s)
            start, stop = tl.load(sources + begin + slot) - offset, tl.load(sources + begin + slot + 1) - offset
        w, v, z_grad = _sum_span(start, stop, source_w, source_v, source_z, ks, K, WIDE, HAS_Z)
    tl.store(gradient_w + slot + tl.arange(0, 1), w)
    tl.store(gradient_v + slot * K + ks, v, mask=inside)
    if HAS_Z:
        if UNIT:
            unit = tl.load(z + slot * K + ks, mask=inside, other=0.0)
            inverse = tl.load(inverses + slot)
            along = tl.sum(unit * z_grad)
            z_grad = tl.where(inverse < 0, -inverse * z_grad, inverse * (z_grad - along * unit))
        y = tl.load(out + slot * K + ks, mask=inside, other=0.0)
        tl.store(back + slot * K + ks, through(z_grad, y, ACTIVATION), mask=inside)


@triton.jit
def sum_partials(step, alive, partials, loss_partials, packed_grads, losses, N, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The programs' gradients at the global bias and at h, one column a program; column 0 also the loss of the step.

    A loss that is no number ends training: from then on nothing is written."""
    column, block = tl.program_id(0), tl.arange(0, BLOCK)
    total, loss = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for begin in range(0, N, BLOCK):
        is_present = begin + block < N
        total += tl.load(partials + (begin + block) * WIDTH + column, mask=is_present, other=0.0)
        if column == 0:
            loss += tl.load(loss_partials + begin + block, mask=is_present, other=0.0)
    tl.store(packed_grads + column, tl.sum(total))
    if column == 0:
        loss_sum = tl.sum(loss)
        s = tl.load(step)
        tl.store(losses + s, loss_sum)
        # inf - inf and NaN are not equal to 0.
        tl.store(alive, tl.where(loss_sum - loss_sum == 0.0, tl.load(alive), 0))
