r"""GML-FM's steps: pairs of attributes, each a weight times a distance, forward and backward.

.. math:: \hat y = w_0 + \sum_i w_i x_i + \sum_{i<j} h^\top (v_i \odot v_j) \, D(z_i, z_j) \, x_i x_j

D is the squared distance, or the cosine, which is the inner product of z at unit length. A step goes in three rounds over
lanes: the distinct rows' z; the groups' pairs, each lane adding to gradients of its own; the gradients' sums, their way
back through the transform, and the rows' updates. The user's side of a group is walked once for all of its items.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from gmlfm.kernels.cpu.arrays import Dense, Floats, Groups, Ints, Rows, Rule
from gmlfm.kernels.cpu.jit import compiled, inlined, threaded
from gmlfm.kernels.cpu.losses import group_loss, share_of_one
from gmlfm.kernels.cpu.maths import (
    activate,
    add_difference,
    add_four,
    add_scaled,
    clear,
    dot,
    four_dots,
    four_ints,
    through_activation,
    through_unit_length,
    to_unit_length,
)
from gmlfm.kernels.cpu.rows import give_slots, take_slots_back, update_dense, update_row

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)


class Shape(NamedTuple):
    """layers: how many, with an activation as maths.activate numbers them; biased: with biases; unit: z at unit length;
    cosine: D is the inner product.

    The dense parameters' line holds the global bias, h, the layers' matrices, then their biases.
    """

    k: int
    layers: int
    activation: int
    biased: bool
    unit: bool
    cosine: bool


class Work(NamedTuple):
    """Room for one step of at most U distinct rows: features (layers + 1, U, K) from v to before unit length; z (U, K);
    norms: |z|^2; inverses: 1 / length; and for each lane the gradients of w (U, 1), v (U, K), z (U, K) and of the line."""

    rows: Ints
    user_side: Ints
    item_side: Ints
    features: Floats
    z: Floats
    norms: Floats
    inverses: Floats
    w_gradients: Floats
    v_gradients: Floats
    z_gradients: Floats
    dense_gradients: Floats
    losses: Floats


@threaded
def run_steps(
    shape: Shape, rule: Rule, groups: Groups, size: int, rows: Rows, dense: Dense, work: Work, lanes: int, losses: Floats
) -> None:
    """Steps of `size` groups each, through all of them; losses: one a step. A loss that is no number ends the run."""
    n_groups = groups.labels.shape[0]
    for at in range(losses.size):
        start, stop = at * size, min((at + 1) * size, n_groups)
        found = give_slots(groups, start, stop, rows.slot, work.rows, work.user_side, work.item_side)
        for lane in prange(lanes):
            transform(shape, rows.table, dense.values[0], work, found * lane // lanes, found * (lane + 1) // lanes)
        share = share_of_one(rule.objective, groups, start, stop)
        n = stop - start
        for lane in prange(lanes):
            begin, end = n * lane // lanes, n * (lane + 1) // lanes
            walk_groups(shape, rule, groups, share, start, begin, end, dense.values[0], rows.table, work, found, lane)
        loss = _ZERO
        for lane in range(lanes):
            loss += work.losses[lane]
        losses[at] = loss
        if np.isfinite(loss):
            for lane in prange(lanes):
                begin, end = found * lane // lanes, found * (lane + 1) // lanes
                finish_rows(shape, rule, rows, dense.values[0], work, begin, end, lane, lanes)
            for lane in range(1, lanes):
                add_scaled(work.dense_gradients, 0, _ONE, work.dense_gradients, lane)
            update_dense(rule, dense, work.dense_gradients)
        take_slots_back(rows.slot, work.rows, found)
        if not np.isfinite(loss):
            break


@compiled
def matrices_of(shape: Shape, line: Floats) -> Any:
    begin = 1 + shape.k
    return line[begin : begin + shape.layers * shape.k * shape.k].reshape(shape.layers, shape.k, shape.k)


@compiled
def biases_of(shape: Shape, line: Floats) -> Any:
    begin = 1 + shape.k + shape.layers * shape.k * shape.k
    end = begin + shape.layers * shape.k if shape.biased else begin
    return line[begin:end].reshape(shape.layers if shape.biased else 0, shape.k)


@compiled
def transform(shape: Shape, table: Floats, line: Floats, work: Work, begin: int, end: int) -> None:
    """z of the slots begin to end."""
    matrices, biases = matrices_of(shape, line), biases_of(shape, line)
    v, z, last = work.features[0], work.z, work.features[shape.layers]
    for slot in range(begin, end):
        for k in range(shape.k):
            v[slot, k] = table[work.rows[slot], 1 + k]
    for layer in range(shape.layers):
        source, target = work.features[layer, begin:end], work.features[layer + 1, begin:end]
        np.dot(source, matrices[layer].T, target)
        for slot in range(end - begin):
            if shape.biased:
                add_scaled(target, slot, _ONE, biases, layer)
            activate(shape.activation, target, slot)
    for slot in range(begin, end):
        if shape.unit:
            work.inverses[slot] = to_unit_length(last, z, slot)
        else:
            for k in range(shape.k):
                z[slot, k] = last[slot, k]
        work.norms[slot] = dot(z, slot, z, slot)


@compiled
def walk_groups(
    shape: Shape,
    rule: Rule,
    groups: Groups,
    share: Any,
    start: int,
    begin: int,
    end: int,
    line: Floats,
    table: Floats,
    work: Work,
    found: int,
    lane: int,
) -> None:
    """Scores, loss and gradients of the groups begin to end, counted from start.

    Attributes are taken by fours, padded with some of x = 0, so that a number read is used four times.
    """
    w_gradients, v_gradients, z_gradients = work.w_gradients[lane], work.v_gradients[lane], work.z_gradients[lane]
    dense_gradient = work.dense_gradients[lane]
    w_gradients[:found] = _ZERO
    v_gradients[:found] = _ZERO
    z_gradients[:found] = _ZERO
    dense_gradient[:] = _ZERO
    user_width, size, item_width = groups.user_ids.shape[1], groups.labels.shape[1], groups.item_ids.shape[2]
    h, h_gradient = line[1 : 1 + shape.k], dense_gradient[1 : 1 + shape.k]
    v, z, norms, slot_rows = work.features[0], work.z, work.norms, work.rows
    user_side, item_side = work.user_side.reshape(-1, 1, user_width), work.item_side
    user_x, item_x = groups.user_x.reshape(-1, 1, user_width), groups.item_x
    most_user, most_items = (user_width + 3) // 4 * 4, (size * item_width + 3) // 4 * 4
    # What has a value: slot and x of the user's attributes, slot, x and place in the group of the items'.
    user_slots, present_user_x = np.zeros(most_user, np.int32), np.zeros(most_user, np.float32)
    item_slots, present_item_x, item_of = (
        np.zeros(most_items, np.int32),
        np.zeros(most_items, np.float32),
        np.zeros(most_items, np.int32),
    )
    # x h v and z of the user's attributes; sums: in row 0 the slope at what one of them is multiplied with.
    user_hv, user_z = np.zeros((most_user, shape.k), np.float32), np.zeros((most_user, shape.k), np.float32)
    sums = np.empty((1, shape.k), np.float32)
    # Of each pair across the sides, the weight and the distance; on the way back, the slopes at z's product and at the weight.
    weights = np.zeros((most_items, most_user), np.float32)
    distances = np.zeros((most_items, most_user), np.float32)
    scores, slopes = np.empty(size, np.float32), np.empty(size, np.float32)
    total = _ZERO
    for at in range(begin, end):
        here = start + at
        own = line[0] + within(shape, user_side, at, 0, user_x, here, user_width, h, v, z, norms)
        n_user = 0
        for f in range(user_width):
            x, slot = user_x[here, 0, f], user_side[at, 0, f]
            if x != 0:
                own += x * table[slot_rows[slot], 0]
                user_slots[n_user], present_user_x[n_user] = slot, x
                for k in range(shape.k):
                    user_hv[n_user, k] = x * h[k] * v[slot, k]
                for k in range(shape.k):
                    user_z[n_user, k] = z[slot, k]
                n_user += 1
        for a in range(n_user, (n_user + 3) // 4 * 4):
            user_slots[a] = 0
            clear(user_hv, a)
            clear(user_z, a)
        n_items = 0
        for g in range(size):
            score = own + within(shape, item_side, at, g, item_x, here, item_width, h, v, z, norms)
            for f in range(item_width):
                x, slot = item_x[here, g, f], item_side[at, g, f]
                if x != 0:
                    item_slots[n_items], present_item_x[n_items], item_of[n_items] = slot, x, g
                    score += x * table[slot_rows[slot], 0]
                    for a in range(0, n_user, 4):
                        by_weight = four_dots(v, slot, user_hv, a)
                        by_product = four_dots(z, slot, user_z, a)
                        for i in range(4):
                            distance = by_product[i]
                            if not shape.cosine:
                                distance = norms[slot] + norms[user_slots[a + i]] - _TWO * distance
                            weights[n_items, a + i], distances[n_items, a + i] = by_weight[i], distance
                            score += x * by_weight[i] * distance
                    n_items += 1
            scores[g] = score
        scale = share * groups.weights[here] if groups.weights.size else share
        total += scale * group_loss(rule.objective, scores, groups.labels, here, slopes)
        slope_sum = _ZERO
        for g in range(size):
            slopes[g] *= scale
            slope_sum += slopes[g]
            within_back(
                shape, slopes[g], item_side, at, g, item_x, here, item_width, h, v, z, norms, v_gradients, z_gradients,
                h_gradient,
            )  # fmt: skip
        within_back(
            shape, slope_sum, user_side, at, 0, user_x, here, user_width, h, v, z, norms, v_gradients, z_gradients, h_gradient
        )
        dense_gradient[0] += slope_sum
        for b in range(n_items):
            slope, slot, own_z = slopes[item_of[b]] * present_item_x[b], item_slots[b], _ZERO
            w_gradients[slot, 0] += slope
            for a in range(0, n_user, 4):
                for i in range(a, a + 4):
                    at_product = slope * weights[b, i] * (_ONE if shape.cosine else -_TWO)
                    own_z -= at_product
                    distances[b, i], weights[b, i] = slope * distances[b, i], at_product
                by_weight = distances[b, a], distances[b, a + 1], distances[b, a + 2], distances[b, a + 3]
                add_four(v_gradients, slot, by_weight, user_hv, (a, a + 1, a + 2, a + 3))
                by_product = weights[b, a], weights[b, a + 1], weights[b, a + 2], weights[b, a + 3]
                add_four(z_gradients, slot, by_product, user_z, (a, a + 1, a + 2, a + 3))
            if not shape.cosine:
                add_scaled(z_gradients, slot, own_z, z, slot)
        for b in range(n_items, (n_items + 3) // 4 * 4):
            item_slots[b] = 0
            clear(distances, b)
            clear(weights, b)
        for a in range(n_user):
            slot, x, own_z = user_slots[a], present_user_x[a], _ZERO
            w_gradients[slot, 0] += slope_sum * x
            clear(sums, 0)
            for b in range(0, n_items, 4):
                items = four_ints(item_slots, b)
                by_weight = distances[b, a], distances[b + 1, a], distances[b + 2, a], distances[b + 3, a]
                by_product = weights[b, a], weights[b + 1, a], weights[b + 2, a], weights[b + 3, a]
                own_z -= by_product[0] + by_product[1] + by_product[2] + by_product[3]
                add_four(sums, 0, by_weight, v, items)
                add_four(z_gradients, slot, by_product, z, items)
            for k in range(shape.k):
                v_gradients[slot, k] += x * h[k] * sums[0, k]
            for k in range(shape.k):
                h_gradient[k] += x * v[slot, k] * sums[0, k]
            if not shape.cosine:
                add_scaled(z_gradients, slot, own_z, z, slot)
    work.losses[lane] = total


@inlined
def within(
    shape: Shape, slots: Ints, at: int, g: int, xs: Floats, here: int, n: int, h: Floats, v: Floats, z: Floats, norms: Floats
) -> Any:
    """The pairs of one side's own attributes: slots[at, g], xs[here, g], n of them."""
    total = _ZERO
    for i in range(1, n):
        x, one = xs[here, g, i], slots[at, g, i]
        if x == 0:
            continue
        for j in range(i):
            if xs[here, g, j] != 0:
                weight, distance = weight_and_distance(shape, one, slots[at, g, j], h, v, z, norms)
                total += x * xs[here, g, j] * weight * distance
    return total


@inlined
def within_back(
    shape: Shape,
    slope: Any,
    slots: Ints,
    at: int,
    g: int,
    xs: Floats,
    here: int,
    n: int,
    h: Floats,
    v: Floats,
    z: Floats,
    norms: Floats,
    v_gradients: Floats,
    z_gradients: Floats,
    h_gradient: Floats,
) -> None:
    for i in range(1, n):
        x, one = xs[here, g, i], slots[at, g, i]
        if x == 0:
            continue
        for j in range(i):
            if xs[here, g, j] == 0:
                continue
            other = slots[at, g, j]
            weight, distance = weight_and_distance(shape, one, other, h, v, z, norms)
            by_weight = slope * x * xs[here, g, j] * distance
            by_product = slope * x * xs[here, g, j] * weight * (_ONE if shape.cosine else -_TWO)
            for k in range(shape.k):
                v_gradients[one, k] += by_weight * h[k] * v[other, k]
            for k in range(shape.k):
                v_gradients[other, k] += by_weight * h[k] * v[one, k]
            for k in range(shape.k):
                h_gradient[k] += by_weight * v[one, k] * v[other, k]
            if shape.cosine:
                add_scaled(z_gradients, one, by_product, z, other)
                add_scaled(z_gradients, other, by_product, z, one)
            else:
                add_difference(z_gradients, one, by_product, z, other, one)
                add_difference(z_gradients, other, by_product, z, one, other)


@inlined
def weight_and_distance(shape: Shape, one: int, other: int, h: Floats, v: Floats, z: Floats, norms: Floats) -> Any:
    """h^T (v_i * v_j) and D(z_i, z_j)."""
    weight, product = _ZERO, _ZERO
    for k in range(shape.k):
        weight += h[k] * v[one, k] * v[other, k]
        product += z[one, k] * z[other, k]
    return weight, product if shape.cosine else norms[one] + norms[other] - _TWO * product


@compiled
def finish_rows(
    shape: Shape, rule: Rule, rows: Rows, line: Floats, work: Work, begin: int, end: int, lane: int, lanes: int
) -> None:
    """The slots begin to end: their gradients summed over lanes, back through the transform, and the rows updated.

    The layers' gradients of these rows go to this lane's line; z, no longer needed, holds what comes back from layer to layer.
    """
    matrices, own_line = matrices_of(shape, line), work.dense_gradients[lane]
    w_gradients, v_gradients, z_gradients, z = work.w_gradients[0], work.v_gradients[0], work.z_gradients[0], work.z
    for other in range(1, lanes):
        w_theirs, v_theirs, z_theirs = work.w_gradients[other], work.v_gradients[other], work.z_gradients[other]
        for slot in range(begin, end):
            w_gradients[slot, 0] += w_theirs[slot, 0]
            add_scaled(v_gradients, slot, _ONE, v_theirs, slot)
            add_scaled(z_gradients, slot, _ONE, z_theirs, slot)
    if shape.unit:
        for slot in range(begin, end):
            through_unit_length(z, slot, work.inverses[slot], z_gradients, slot)
    back, spare = z_gradients[begin:end], z[begin:end]
    matrix_gradients, bias_gradients = matrices_of(shape, own_line), biases_of(shape, own_line)
    for layer in range(shape.layers - 1, -1, -1):
        source, out = work.features[layer, begin:end], work.features[layer + 1, begin:end]
        for slot in range(end - begin):
            through_activation(shape.activation, out, slot, back, slot)
            if shape.biased:
                add_scaled(bias_gradients, layer, _ONE, back, slot)
        np.dot(back.T, source, matrix_gradients[layer])
        np.dot(back, matrices[layer], spare)
        back, spare = spare, back
    whole = np.empty((1, 1 + shape.k), np.float32)
    for slot in range(begin, end):
        whole[0, 0] = w_gradients[slot, 0]
        for k in range(shape.k):
            whole[0, 1 + k] = v_gradients[slot, k] + back[slot - begin, k]
        update_row(rule, rows, work.rows[slot], whole, 0)
