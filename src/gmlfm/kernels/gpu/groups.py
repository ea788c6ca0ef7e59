r"""One group a program: scores, loss and the slopes at each attribute of a positive with its negatives.

.. math:: \hat y = w_0 + \sum_i w_i x_i + \sum_{i<j} h^\top (v_i \odot v_j) \, D(z_i, z_j) \, x_i x_j

DISTANCE: 0, D = 1 and h = 1, an FM; 1, the squared distance; 2, the inner product of z at unit length, the cosine.
All pairs are products of small matrices: the user's attributes (A rows) with those of ITEMS items at a time (M rows).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _pairs(left_v, left_z, left_norms, right_v, right_z, right_norms, DISTANCE: tl.constexpr, PRECISION: tl.constexpr):
    """Weights and distances of all pairs: left (A, K), right (M, K) -> (A, M) each. h is in left_v."""
    weights = tl.dot(left_v, tl.trans(right_v), input_precision=PRECISION)
    if DISTANCE == 0:
        distances = tl.full(weights.shape, 1.0, tl.float32)
    else:
        products = tl.dot(left_z, tl.trans(right_z), input_precision=PRECISION)
        if DISTANCE == 1:
            distances = left_norms[:, None] + right_norms[None, :] - 2.0 * products
        else:
            distances = products
    return weights, distances


@triton.jit
def _slope_z(by_distance, own_z, other_z, DISTANCE: tl.constexpr, PRECISION: tl.constexpr):
    """The slope at own z (A, K) from those at the distances (A, M) to others (M, K)."""
    mixed = tl.dot(by_distance, other_z, input_precision=PRECISION)
    if DISTANCE == 1:
        return 2.0 * (own_z * tl.sum(by_distance, 1)[:, None] - mixed)
    return mixed


@triton.jit
def _load_side(slots, x, values, z, weights, ks, WIDE: tl.constexpr, K: tl.constexpr, DISTANCE: tl.constexpr):
    """x v (N, K), z (N, K), |z|^2 and w x of a side's attributes."""
    there = (x != 0)[:, None] & (ks < K)[None, :]
    places = slots.to(tl.int64)[:, None] * K + ks[None, :]
    v = tl.load(values + places, mask=there, other=0.0) * x[:, None]
    linear = tl.load(weights + slots, mask=x != 0, other=0.0) * x
    if DISTANCE == 0:
        return v, v, linear, linear
    z_side = tl.load(z + places, mask=there, other=0.0)
    return v, z_side, tl.sum(z_side * z_side, 1), linear


@triton.jit
def walk_groups(
    step,
    slots_of,
    positions,
    user_x,
    item_x,
    labels,
    group_weights,
    shares,
    values,
    z,
    weights,
    line,
    gradient_w,
    gradient_v,
    gradient_z,
    partials,
    loss_partials,
    GROUPS: tl.constexpr,
    F_USER: tl.constexpr,
    F_ITEM: tl.constexpr,
    SIZE: tl.constexpr,
    K: tl.constexpr,
    A: tl.constexpr,
    M: tl.constexpr,
    ITEMS: tl.constexpr,
    WIDE: tl.constexpr,
    DISTANCE: tl.constexpr,
    OBJECTIVE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """slots_of, positions: of the step's occurrences, users' first; values, z: (U, K) by slot; line: the dense parameters.

    partials: for each group the slope at the global bias, then at h.
    """
    inside = tl.program_id(0)
    s = tl.load(step).to(tl.int64)
    ks, places, per_item = tl.arange(0, WIDE), tl.arange(0, A), M // ITEMS
    ms = tl.arange(0, M)
    item_of, f_of = ms // per_item, ms % per_item
    h = tl.load(line + 1 + ks, mask=ks < K, other=0.0) if DISTANCE > 0 else tl.where(ks < K, 1.0, 0.0)
    bias, share = tl.load(line), tl.load(shares + s)
    h_slope = tl.zeros([WIDE], tl.float32)
    bias_slope = tl.zeros([1], tl.float32)
    loss_sum = tl.zeros([1], tl.float32)
    n_occurrences = GROUPS * (F_USER + SIZE * F_ITEM)
    group = s * GROUPS + inside
    user_x = tl.load(user_x + group * F_USER + places, mask=places < F_USER, other=0.0)
    occurrence_user = s * n_occurrences + inside * F_USER + places
    user_slots = tl.load(slots_of + occurrence_user, mask=places < F_USER, other=0)
    user_v, user_z, user_norms, user_linear = _load_side(user_slots, user_x, values, z, weights, ks, WIDE, K, DISTANCE)
    apart = places[:, None] != places[None, :]
    own_w, own_d = _pairs(user_v * h[None, :], user_z, user_norms, user_v, user_z, user_norms, DISTANCE, PRECISION)
    own = bias + tl.sum(user_linear) + 0.5 * tl.sum(tl.where(apart, own_w * own_d, 0.0))
    group_weight = tl.load(group_weights + group) * share
    user_back = tl.zeros([A, WIDE], tl.float32)
    user_z_back = tl.zeros([A, WIDE], tl.float32)
    slope_sum = tl.zeros([1], tl.float32)
    highest, together, positive = -float("inf"), 0.0, 0.0
    if OBJECTIVE >= 2:
        # These compare scores, so all of them are computed first.
        for begin in range(0, SIZE, ITEMS):
            g = begin + item_of
            there = (g < SIZE) & (f_of < F_ITEM)
            at = (group * SIZE + g) * F_ITEM + f_of
            x = tl.load(item_x + at, mask=there, other=0.0)
            occurrence = s * n_occurrences + GROUPS * F_USER + (inside * SIZE + g) * F_ITEM + f_of
            slots = tl.load(slots_of + occurrence, mask=there, other=0)
            v, z_item, norms, linear = _load_side(slots, x, values, z, weights, ks, WIDE, K, DISTANCE)
            w, d = _pairs(user_v * h[None, :], user_z, user_norms, v, z_item, norms, DISTANCE, PRECISION)
            w_in, d_in = _pairs(v * h[None, :], z_item, norms, v, z_item, norms, DISTANCE, PRECISION)
            same = (item_of[:, None] == item_of[None, :]) & (ms[:, None] != ms[None, :])
            parts = tl.sum(w * d, 0) + linear + 0.5 * tl.sum(tl.where(same, w_in * d_in, 0.0), 1)
            scores = own + tl.sum(tl.reshape(parts, [ITEMS, M // ITEMS]), 1)
            gs = begin + tl.arange(0, ITEMS)
            valid = gs < SIZE
            positive += tl.sum(tl.where(gs == 0, scores, 0.0))
            top = tl.maximum(highest, tl.max(tl.where(valid, scores, -float("inf"))))
            together = together * tl.exp(highest - top) + tl.sum(tl.where(valid, tl.exp(scores - top), 0.0))
            highest = top
        if OBJECTIVE == 3:
            loss_sum += group_weight * (tl.log(together) + highest - positive)
    negative_slopes = 0.0
    # BPR's slope at the positive is the negatives' together, so the block with the positive comes last.
    for back in range((SIZE + ITEMS - 1) // ITEMS):
        begin = ((SIZE + ITEMS - 1) // ITEMS - 1 - back) * ITEMS
        g = begin + item_of
        there = (g < SIZE) & (f_of < F_ITEM)
        at = (group * SIZE + g) * F_ITEM + f_of
        x = tl.load(item_x + at, mask=there, other=0.0)
        occurrence = s * n_occurrences + GROUPS * F_USER + (inside * SIZE + g) * F_ITEM + f_of
        slots = tl.load(slots_of + occurrence, mask=there, other=0)
        v, z_item, norms, linear = _load_side(slots, x, values, z, weights, ks, WIDE, K, DISTANCE)
        w, d = _pairs(user_v * h[None, :], user_z, user_norms, v, z_item, norms, DISTANCE, PRECISION)
        w_in, d_in = _pairs(v * h[None, :], z_item, norms, v, z_item, norms, DISTANCE, PRECISION)
        same = (item_of[:, None] == item_of[None, :]) & (ms[:, None] != ms[None, :])
        parts = tl.sum(w * d, 0) + linear + 0.5 * tl.sum(tl.where(same, w_in * d_in, 0.0), 1)
        scores = own + tl.sum(tl.reshape(parts, [ITEMS, M // ITEMS]), 1)
        gs = begin + tl.arange(0, ITEMS)
        valid = gs < SIZE
        label = tl.load(labels + group * SIZE + gs, mask=valid, other=0.0)
        if OBJECTIVE == 0:
            off = scores - label
            loss_sum += group_weight * tl.sum(tl.where(valid, off * off, 0.0))
            slopes = 2.0 * off
        elif OBJECTIVE == 1:
            margin = -label * scores
            soft = tl.maximum(margin, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(margin)))
            loss_sum += group_weight * tl.sum(tl.where(valid, soft, 0.0))
            slopes = -label * tl.sigmoid(margin)
        elif OBJECTIVE == 2:
            margin = scores - positive
            negative = valid & (gs > 0)
            soft = tl.maximum(margin, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(margin)))
            loss_sum += group_weight * tl.sum(tl.where(negative, soft, 0.0))
            slopes = tl.where(negative, tl.sigmoid(margin), 0.0)
            negative_slopes += tl.sum(slopes)
            slopes = tl.where(gs == 0, -negative_slopes, slopes)
        else:
            slopes = tl.exp(scores - highest) / together - tl.where(gs == 0, 1.0, 0.0)
        slopes = tl.where(valid, slopes * group_weight, 0.0)
        slope_sum += tl.sum(slopes)
        by_row = tl.reshape(tl.broadcast_to(slopes[:, None], [ITEMS, M // ITEMS]), [M])
        # x is in v on both sides, so slopes at x v come out; they are multiplied by x at the end.
        at_weight, at_distance = by_row[None, :] * d, by_row[None, :] * w
        in_weight = tl.where(same, by_row[:, None] * d_in, 0.0)
        in_distance = tl.where(same, by_row[:, None] * w_in, 0.0)
        mixed = tl.dot(in_weight, v, input_precision=PRECISION)
        item_back = (tl.dot(tl.trans(at_weight), user_v, input_precision=PRECISION) + mixed) * h[None, :]
        across = tl.dot(at_weight, v, input_precision=PRECISION)
        user_back += across
        if DISTANCE > 0:
            h_slope += tl.sum(user_v * across, 0) + 0.5 * tl.sum(v * mixed, 0)
            item_z_back = _slope_z(tl.trans(at_distance), z_item, user_z, DISTANCE, PRECISION)
            item_z_back += _slope_z(in_distance, z_item, z_item, DISTANCE, PRECISION)
            user_z_back += _slope_z(at_distance, user_z, z_item, DISTANCE, PRECISION)
        position = tl.load(positions + occurrence, mask=there, other=0).to(tl.int64)
        tl.store(gradient_w + position, by_row * x, mask=there)
        goes = there[:, None] & (ks < K)[None, :]
        targets = position[:, None] * K + ks[None, :]
        tl.store(gradient_v + targets, item_back * x[:, None], mask=goes)
        if DISTANCE > 0:
            tl.store(gradient_z + targets, item_z_back, mask=goes)
    own_weight = tl.where(apart, slope_sum[:, None] * own_d, 0.0)
    mixed_own = tl.dot(own_weight, user_v, input_precision=PRECISION)
    if DISTANCE > 0:
        h_slope += 0.5 * tl.sum(user_v * mixed_own, 0)
        own_distance = tl.where(apart, slope_sum[:, None] * own_w, 0.0)
        user_z_back += _slope_z(own_distance, user_z, user_z, DISTANCE, PRECISION)
    there_user = places < F_USER
    position_user = tl.load(positions + occurrence_user, mask=there_user, other=0).to(tl.int64)
    tl.store(gradient_w + position_user, slope_sum * user_x, mask=there_user)
    goes_user = there_user[:, None] & (ks < K)[None, :]
    targets_user = position_user[:, None] * K + ks[None, :]
    tl.store(gradient_v + targets_user, (user_back + mixed_own) * h[None, :] * user_x[:, None], mask=goes_user)
    if DISTANCE > 0:
        tl.store(gradient_z + targets_user, user_z_back, mask=goes_user)
    bias_slope += slope_sum
    one = tl.arange(0, 1)
    tl.store(partials + inside * (1 + K) + one, bias_slope)
    if DISTANCE > 0:
        tl.store(partials + inside * (1 + K) + 1 + ks, h_slope, mask=ks < K)
    tl.store(loss_partials + inside + one, loss_sum)
