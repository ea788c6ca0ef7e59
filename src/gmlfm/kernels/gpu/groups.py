r"""One group a program: scores, loss and the gradients at each attribute of a positive with its negatives.

.. math:: \hat y = w_0 + \sum_i w_i x_i + \sum_{i<j} h^\top (v_i \odot v_j) \, D(z_i, z_j) \, x_i x_j

DISTANCE, LOSS: as gmlfm.kernels.codes numbers them; without a distance D = 1 and h = 1, an FM.
All pairs are products of small matrices: the user's attributes (A rows) with those of ITEMS items at a time (M rows).
"""

from __future__ import annotations

import triton
import triton.language as tl

from gmlfm.kernels import codes

_NO_DISTANCE, _SQUARED_DISTANCE = tl.constexpr(codes.NO_DISTANCE), tl.constexpr(codes.SQUARED_DISTANCE)
_SQUARED, _LOGISTIC = tl.constexpr(codes.SQUARED), tl.constexpr(codes.LOGISTIC)
_BPR, _SOFTMAX = tl.constexpr(codes.BPR), tl.constexpr(codes.SOFTMAX)


@triton.jit
def _pairs(left_v, left_z, left_norms, right_v, right_z, right_norms, DISTANCE: tl.constexpr, PRECISION: tl.constexpr):
    """Weights and distances of all pairs: left (A, K), right (M, K) -> (A, M) each. h is in left_v."""
    weights = tl.dot(left_v, tl.trans(right_v), input_precision=PRECISION)
    if DISTANCE == _NO_DISTANCE:
        distances = tl.full(weights.shape, 1.0, tl.float32)
    else:
        products = tl.dot(left_z, tl.trans(right_z), input_precision=PRECISION)
        if DISTANCE == _SQUARED_DISTANCE:
            distances = left_norms[:, None] + right_norms[None, :] - 2.0 * products
        else:
            distances = products
    return weights, distances


@triton.jit
def _z_grad(by_distance, z, other_z, DISTANCE: tl.constexpr, PRECISION: tl.constexpr):
    """The gradient at z (A, K) from those at its distances (A, M) to other_z (M, K)."""
    mixed = tl.dot(by_distance, other_z, input_precision=PRECISION)
    if DISTANCE == _SQUARED_DISTANCE:
        return 2.0 * (z * tl.sum(by_distance, 1)[:, None] - mixed)
    return mixed


@triton.jit
def _load_side(slots, x, values, z, origin, weights, ks, WIDE: tl.constexpr, K: tl.constexpr, DISTANCE: tl.constexpr):
    """x v (N, K), z less the origin (N, K), its |z|^2 and w x of a side's attributes.

    origin (K,): any point; no squared distance depends on it, but with an origin amid the points the digits that they have in
    common are not squared. What is no attribute has v = 0, so its z does not count.
    """
    is_present = (x != 0)[:, None] & (ks < K)[None, :]
    places = slots.to(tl.int64)[:, None] * K + ks[None, :]
    v = tl.load(values + places, mask=is_present, other=0.0) * x[:, None]
    linear = tl.load(weights + slots, mask=x != 0, other=0.0) * x
    if DISTANCE == _NO_DISTANCE:
        return v, v, linear, linear
    z_side = tl.load(z + places, mask=is_present, other=0.0) - origin[None, :]
    return v, z_side, tl.sum(z_side * z_side, 1), linear


@triton.jit
def _score_items(
    begin, group, first_occurrence, slots_of, item_x, values, z, origin, weights, user_terms, user_v, user_z, user_norms, h, ks,
    F_ITEM: tl.constexpr, SIZE: tl.constexpr, K: tl.constexpr, M: tl.constexpr, ITEMS: tl.constexpr, WIDE: tl.constexpr,
    DISTANCE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """ITEMS items of the group from `begin` on: their scores, and what the way back reads of their M attributes:
    whether there is one, its occurrence, x, x v, z; weights and distances of the pairs across and within."""
    ms = tl.arange(0, M)
    item_of, f_of = ms // (M // ITEMS), ms % (M // ITEMS)
    g = begin + item_of
    is_present = (g < SIZE) & (f_of < F_ITEM)
    x = tl.load(item_x + (group * SIZE + g) * F_ITEM + f_of, mask=is_present, other=0.0)
    occurrence = first_occurrence + g * F_ITEM + f_of
    slots = tl.load(slots_of + occurrence, mask=is_present, other=0)
    v, z_item, norms, linear = _load_side(slots, x, values, z, origin, weights, ks, WIDE, K, DISTANCE)
    w, d = _pairs(user_v * h[None, :], user_z, user_norms, v, z_item, norms, DISTANCE, PRECISION)
    w_in, d_in = _pairs(v * h[None, :], z_item, norms, v, z_item, norms, DISTANCE, PRECISION)
    same = (item_of[:, None] == item_of[None, :]) & (ms[:, None] != ms[None, :])
    terms = tl.sum(w * d, 0) + linear + 0.5 * tl.sum(tl.where(same, w_in * d_in, 0.0), 1)
    scores = user_terms + tl.sum(tl.reshape(terms, [ITEMS, M // ITEMS]), 1)
    return scores, is_present, occurrence, x, v, z_item, w, d, w_in, d_in, same


@triton.jit
def walk_groups(
    step, slots_of, positions, user_x, item_x, labels, group_weights, shares, values, z, weights, packed_params,
    gradient_w, gradient_v, gradient_z, partials, loss_partials,
    GROUPS: tl.constexpr, F_USER: tl.constexpr, F_ITEM: tl.constexpr, SIZE: tl.constexpr, K: tl.constexpr,
    A: tl.constexpr, M: tl.constexpr, ITEMS: tl.constexpr, WIDE: tl.constexpr, DISTANCE: tl.constexpr, LOSS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """slots_of, positions: of the step's occurrences, users' first; values, z: (U, K) by slot.

    partials: for each group the gradient at the global bias, then at h.
    """
    inside = tl.program_id(0)
    s = tl.load(step).to(tl.int64)
    ks, places = tl.arange(0, WIDE), tl.arange(0, A)
    has_distance: tl.constexpr = DISTANCE != _NO_DISTANCE
    h = tl.load(packed_params + 1 + ks, mask=ks < K, other=0.0) if has_distance else tl.where(ks < K, 1.0, 0.0)
    bias, share = tl.load(packed_params), tl.load(shares + s)
    h_grad = tl.zeros([WIDE], tl.float32)
    bias_grad = tl.zeros([1], tl.float32)
    loss_sum = tl.zeros([1], tl.float32)
    n_occurrences = GROUPS * (F_USER + SIZE * F_ITEM)
    group = s * GROUPS + inside
    user_x = tl.load(user_x + group * F_USER + places, mask=places < F_USER, other=0.0)
    user_occurrence = s * n_occurrences + inside * F_USER + places
    first_occurrence = s * n_occurrences + GROUPS * F_USER + inside * SIZE * F_ITEM
    user_slots = tl.load(slots_of + user_occurrence, mask=places < F_USER, other=0)
    origin = tl.zeros([WIDE], tl.float32)
    if DISTANCE == _SQUARED_DISTANCE:
        if F_USER > 0:
            first_slot = tl.load(slots_of + s * n_occurrences + inside * F_USER).to(tl.int64)
            origin = tl.load(z + first_slot * K + ks, mask=ks < K, other=0.0)
    user_v, user_z, user_norms, user_linear = _load_side(
        user_slots, user_x, values, z, origin, weights, ks, WIDE, K, DISTANCE
    )  # fmt: skip
    other_place = places[:, None] != places[None, :]
    user_w, user_d = _pairs(user_v * h[None, :], user_z, user_norms, user_v, user_z, user_norms, DISTANCE, PRECISION)
    user_terms = bias + tl.sum(user_linear) + 0.5 * tl.sum(tl.where(other_place, user_w * user_d, 0.0))
    group_weight = tl.load(group_weights + group) * share
    user_back = tl.zeros([A, WIDE], tl.float32)
    user_z_back = tl.zeros([A, WIDE], tl.float32)
    grad_sum = tl.zeros([1], tl.float32)
    highest, normaliser, positive = -float("inf"), 0.0, 0.0
    if LOSS == _BPR or LOSS == _SOFTMAX:
        # These compare scores, so all of them are computed first.
        for begin in range(0, SIZE, ITEMS):
            scores, is_present, occurrence, x, v, z_item, w, d, w_in, d_in, same = _score_items(
                begin, group, first_occurrence, slots_of, item_x, values, z, origin, weights, user_terms, user_v, user_z,
                user_norms, h, ks, F_ITEM, SIZE, K, M, ITEMS, WIDE, DISTANCE, PRECISION,
            )  # fmt: skip
            gs = begin + tl.arange(0, ITEMS)
            valid = gs < SIZE
            positive += tl.sum(tl.where(gs == 0, scores, 0.0))
            top = tl.maximum(highest, tl.max(tl.where(valid, scores, -float("inf"))))
            normaliser = normaliser * tl.exp(highest - top) + tl.sum(tl.where(valid, tl.exp(scores - top), 0.0))
            highest = top
        if LOSS == _SOFTMAX:
            loss_sum += group_weight * (tl.log(normaliser) + highest - positive)
    negative_grads = 0.0
    # BPR's gradient at the positive is the negatives' together, so the block with the positive comes last.
    for back in range((SIZE + ITEMS - 1) // ITEMS):
        begin = ((SIZE + ITEMS - 1) // ITEMS - 1 - back) * ITEMS
        scores, is_present, occurrence, x, v, z_item, w, d, w_in, d_in, same = _score_items(
            begin, group, first_occurrence, slots_of, item_x, values, z, origin, weights, user_terms, user_v, user_z,
            user_norms, h, ks, F_ITEM, SIZE, K, M, ITEMS, WIDE, DISTANCE, PRECISION,
        )  # fmt: skip
        gs = begin + tl.arange(0, ITEMS)
        valid = gs < SIZE
        label = tl.load(labels + group * SIZE + gs, mask=valid, other=0.0)
        if LOSS == _SQUARED:
            off = scores - label
            loss_sum += group_weight * tl.sum(tl.where(valid, off * off, 0.0))
            grads = 2.0 * off
        elif LOSS == _LOGISTIC:
            margin = -label * scores
            soft = tl.maximum(margin, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(margin)))
            loss_sum += group_weight * tl.sum(tl.where(valid, soft, 0.0))
            grads = -label * tl.sigmoid(margin)
        elif LOSS == _BPR:
            margin = scores - positive
            negative = valid & (gs > 0)
            soft = tl.maximum(margin, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(margin)))
            loss_sum += group_weight * tl.sum(tl.where(negative, soft, 0.0))
            grads = tl.where(negative, tl.sigmoid(margin), 0.0)
            negative_grads += tl.sum(grads)
            grads = tl.where(gs == 0, -negative_grads, grads)
        else:
            grads = tl.exp(scores - highest) / normaliser - tl.where(gs == 0, 1.0, 0.0)
        grads = tl.where(valid, grads * group_weight, 0.0)
        grad_sum += tl.sum(grads)
        by_row = tl.reshape(tl.broadcast_to(grads[:, None], [ITEMS, M // ITEMS]), [M])
        # x is in v on both sides, so gradients at x v come out; they are multiplied by x at the end.
        at_weight, at_distance = by_row[None, :] * d, by_row[None, :] * w
        in_weight = tl.where(same, by_row[:, None] * d_in, 0.0)
        in_distance = tl.where(same, by_row[:, None] * w_in, 0.0)
        mixed = tl.dot(in_weight, v, input_precision=PRECISION)
        item_back = (tl.dot(tl.trans(at_weight), user_v, input_precision=PRECISION) + mixed) * h[None, :]
        across = tl.dot(at_weight, v, input_precision=PRECISION)
        user_back += across
        if has_distance:
            h_grad += tl.sum(user_v * across, 0) + 0.5 * tl.sum(v * mixed, 0)
            item_z_back = _z_grad(tl.trans(at_distance), z_item, user_z, DISTANCE, PRECISION)
            item_z_back += _z_grad(in_distance, z_item, z_item, DISTANCE, PRECISION)
            user_z_back += _z_grad(at_distance, user_z, z_item, DISTANCE, PRECISION)
        position = tl.load(positions + occurrence, mask=is_present, other=0).to(tl.int64)
        tl.store(gradient_w + position, by_row * x, mask=is_present)
        stored = is_present[:, None] & (ks < K)[None, :]
        targets = position[:, None] * K + ks[None, :]
        tl.store(gradient_v + targets, item_back * x[:, None], mask=stored)
        if has_distance:
            tl.store(gradient_z + targets, item_z_back, mask=stored)
    user_weight = tl.where(other_place, grad_sum[:, None] * user_d, 0.0)
    user_mixed = tl.dot(user_weight, user_v, input_precision=PRECISION)
    if has_distance:
        h_grad += 0.5 * tl.sum(user_v * user_mixed, 0)
        user_distance = tl.where(other_place, grad_sum[:, None] * user_w, 0.0)
        user_z_back += _z_grad(user_distance, user_z, user_z, DISTANCE, PRECISION)
    is_user = places < F_USER
    user_position = tl.load(positions + user_occurrence, mask=is_user, other=0).to(tl.int64)
    tl.store(gradient_w + user_position, grad_sum * user_x, mask=is_user)
    user_stored = is_user[:, None] & (ks < K)[None, :]
    user_targets = user_position[:, None] * K + ks[None, :]
    tl.store(gradient_v + user_targets, (user_back + user_mixed) * h[None, :] * user_x[:, None], mask=user_stored)
    if has_distance:
        tl.store(gradient_z + user_targets, user_z_back, mask=user_stored)
    bias_grad += grad_sum
    single = tl.arange(0, 1)
    tl.store(partials + inside * (1 + K) + single, bias_grad)
    if has_distance:
        tl.store(partials + inside * (1 + K) + 1 + ks, h_grad, mask=ks < K)
    tl.store(loss_partials + inside + single, loss_sum)
