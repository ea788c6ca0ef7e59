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
from gmlfm.kernels.cpu.jit import compiled, threaded
from gmlfm.kernels.cpu.losses import group_loss, share_of_one
from gmlfm.kernels.cpu.maths import (
    activate,
    add_four,
    add_product,
    add_scaled,
    dot,
    four_dots,
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
    norms: |z|^2; inverses: 1 / length; and for each lane the gradients of rows (U, 1 + K), of z (U, K) and of the line."""

    rows: Ints
    asking: Ints
    answering: Ints
    features: Floats
    z: Floats
    norms: Floats
    inverses: Floats
    row_gradients: Floats
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
        found = give_slots(groups, start, stop, rows.slot, work.rows, work.asking, work.answering)
        for lane in prange(lanes):
            transform(shape, rows.table, dense.values, work, found * lane // lanes, found * (lane + 1) // lanes)
        share = share_of_one(rule.objective, groups, start, stop)
        n = stop - start
        for lane in prange(lanes):
            begin, end = n * lane // lanes, n * (lane + 1) // lanes
            walk_groups(shape, rule, groups, share, start, begin, end, dense.values, rows.table, work, found, lane)
        loss = _ZERO
        for lane in range(lanes):
            loss += work.losses[lane]
        losses[at] = loss
        if np.isfinite(loss):
            for lane in prange(lanes):
                begin, end = found * lane // lanes, found * (lane + 1) // lanes
                finish_rows(shape, rule, rows, dense.values, work, begin, end, lane, lanes)
            total = work.dense_gradients[0]
            for lane in range(1, lanes):
                add_scaled(total, _ONE, work.dense_gradients[lane])
            update_dense(rule, dense, total)
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
    for slot in range(begin, end):
        row, v = table[work.rows[slot]], work.features[0, slot]
        for k in range(shape.k):
            v[k] = row[1 + k]
    for layer in range(shape.layers):
        source, target = work.features[layer, begin:end], work.features[layer + 1, begin:end]
        np.dot(source, matrices[layer].T, target)
        for slot in range(end - begin):
            if shape.biased:
                add_scaled(target[slot], _ONE, biases[layer])
            activate(shape.activation, target[slot])
    for slot in range(begin, end):
        last, z = work.features[shape.layers, slot], work.z[slot]
        if shape.unit:
            work.inverses[slot] = to_unit_length(last, z)
        else:
            for k in range(shape.k):
                z[k] = last[k]
        work.norms[slot] = dot(z, z)


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
    row_gradients, z_gradients, dense_gradient = work.row_gradients[lane], work.z_gradients[lane], work.dense_gradients[lane]
    row_gradients[:found] = _ZERO
    z_gradients[:found] = _ZERO
    dense_gradient[:] = _ZERO
    n_asking, size, n_answering = groups.asking_ids.shape[1], groups.labels.shape[1], groups.answering_ids.shape[2]
    h, h_gradient = line[1 : 1 + shape.k], dense_gradient[1 : 1 + shape.k]
    v, z, norms = work.features[0], work.z, work.norms
    most_user, most_items = (n_asking + 3) // 4 * 4, (size * n_answering + 3) // 4 * 4
    # What has a value: slot and x of the user's attributes, slot, x and place in the group of the items'.
    user_slots, user_x = np.zeros(most_user, np.int32), np.zeros(most_user, np.float32)
    item_slots, item_x, item_of = (
        np.zeros(most_items, np.int32),
        np.zeros(most_items, np.float32),
        np.zeros(most_items, np.int32),
    )
    user_hv, user_z = np.zeros((most_user, shape.k), np.float32), np.zeros((most_user, shape.k), np.float32)
    # Of each pair across the sides, the weight and the distance; on the way back, the slopes at z's product and at the weight.
    weights = np.zeros((most_items, most_user), np.float32)
    distances = np.zeros((most_items, most_user), np.float32)
    sums = np.empty(shape.k, np.float32)
    scores, slopes = np.empty(size, np.float32), np.empty(size, np.float32)
    total = _ZERO
    for at in range(begin, end):
        here = start + at
        own = line[0] + within(shape, work.asking[at], groups.asking_x[here], h, v, z, norms)
        n_user = 0
        for f in range(n_asking):
            x, slot = groups.asking_x[here, f], work.asking[at, f]
            if x != 0:
                own += x * table[work.rows[slot], 0]
                user_slots[n_user], user_x[n_user] = slot, x
                user_hv[n_user] = _ZERO
                add_product(user_hv[n_user], x, h, v[slot])
                user_z[n_user] = z[slot]
                n_user += 1
        for a in range(n_user, (n_user + 3) // 4 * 4):
            user_slots[a], user_hv[a], user_z[a] = 0, _ZERO, _ZERO
        n_items = 0
        for g in range(size):
            score = own + within(shape, work.answering[at, g], groups.answering_x[here, g], h, v, z, norms)
            for f in range(n_answering):
                x, slot = groups.answering_x[here, g, f], work.answering[at, g, f]
                if x != 0:
                    item_slots[n_items], item_x[n_items], item_of[n_items] = slot, x, g
                    score += x * table[work.rows[slot], 0]
                    for a in range(0, n_user, 4):
                        found_weights = four_dots(v[slot], user_hv, a)
                        found_products = four_dots(z[slot], user_z, a)
                        for i in range(4):
                            distance = found_products[i]
                            if not shape.cosine:
                                distance = norms[slot] + norms[user_slots[a + i]] - _TWO * distance
                            weights[n_items, a + i], distances[n_items, a + i] = found_weights[i], distance
                            score += x * found_weights[i] * distance
                    n_items += 1
            scores[g] = score
        scale = share * groups.weights[here] if groups.weights.size else share
        total += scale * group_loss(rule.objective, scores, groups.labels[here], slopes)
        slope_sum = _ZERO
        for g in range(size):
            slopes[g] *= scale
            slope_sum += slopes[g]
            within_back(
                shape,
                slopes[g],
                work.answering[at, g],
                groups.answering_x[here, g],
                h,
                v,
                z,
                norms,
                row_gradients,
                z_gradients,
                h_gradient,
            )
        within_back(
            shape, slope_sum, work.asking[at], groups.asking_x[here], h, v, z, norms, row_gradients, z_gradients, h_gradient
        )
        dense_gradient[0] += slope_sum
        for b in range(n_items):
            slope, slot = slopes[item_of[b]] * item_x[b], item_slots[b]
            row_gradients[slot, 0] += slope
            v_gradient, z_gradient, own_z = row_gradients[slot, 1:], z_gradients[slot], _ZERO
            for a in range(0, n_user, 4):
                for i in range(a, a + 4):
                    at_product = slope * weights[b, i] * (_ONE if shape.cosine else -_TWO)
                    own_z -= at_product
                    distances[b, i], weights[b, i] = slope * distances[b, i], at_product
                by_weight, by_product = distances[b, a : a + 4], weights[b, a : a + 4]
                add_four(v_gradient, by_weight, user_hv[a], user_hv[a + 1], user_hv[a + 2], user_hv[a + 3])
                add_four(z_gradient, by_product, user_z[a], user_z[a + 1], user_z[a + 2], user_z[a + 3])
            if not shape.cosine:
                add_scaled(z_gradient, own_z, z[slot])
        for b in range(n_items, (n_items + 3) // 4 * 4):
            item_slots[b] = 0
            distances[b] = _ZERO
            weights[b] = _ZERO
        for a in range(n_user):
            slot, x, own_z = user_slots[a], user_x[a], _ZERO
            v_gradient, z_gradient = row_gradients[slot, 1:], z_gradients[slot]
            row_gradients[slot, 0] += slope_sum * x
            sums[:] = _ZERO
            for b in range(0, n_items, 4):
                i, j, m, n = item_slots[b], item_slots[b + 1], item_slots[b + 2], item_slots[b + 3]
                by_weight, by_product = distances[b : b + 4, a], weights[b : b + 4, a]
                own_z -= by_product[0] + by_product[1] + by_product[2] + by_product[3]
                add_four(sums, by_weight, v[i], v[j], v[m], v[n])
                add_four(z_gradient, by_product, z[i], z[j], z[m], z[n])
            add_product(v_gradient, x, h, sums)
            add_product(h_gradient, x, v[slot], sums)
            if not shape.cosine:
                add_scaled(z_gradient, own_z, z[slot])
    work.losses[lane] = total


@compiled
def within(shape: Shape, slots: Ints, x: Floats, h: Floats, v: Floats, z: Floats, norms: Floats) -> Any:
    """The pairs of one side's own attributes."""
    total = _ZERO
    for i in range(1, slots.size):
        if x[i] == 0:
            continue
        for j in range(i):
            if x[j] != 0:
                weight, distance = weight_and_distance(shape, slots[i], slots[j], h, v, z, norms)
                total += x[i] * x[j] * weight * distance
    return total


@compiled
def within_back(
    shape: Shape,
    slope: Any,
    slots: Ints,
    x: Floats,
    h: Floats,
    v: Floats,
    z: Floats,
    norms: Floats,
    row_gradients: Floats,
    z_gradients: Floats,
    h_gradient: Floats,
) -> None:
    for i in range(1, slots.size):
        if x[i] == 0:
            continue
        one = slots[i]
        for j in range(i):
            if x[j] == 0:
                continue
            other = slots[j]
            weight, distance = weight_and_distance(shape, one, other, h, v, z, norms)
            by_weight = slope * x[i] * x[j] * distance
            by_product = slope * x[i] * x[j] * weight * (_ONE if shape.cosine else -_TWO)
            add_product(row_gradients[one, 1:], by_weight, h, v[other])
            add_product(row_gradients[other, 1:], by_weight, h, v[one])
            add_product(h_gradient, by_weight, v[one], v[other])
            add_scaled(z_gradients[one], by_product, z[other])
            add_scaled(z_gradients[other], by_product, z[one])
            if not shape.cosine:
                add_scaled(z_gradients[one], -by_product, z[one])
                add_scaled(z_gradients[other], -by_product, z[other])


@compiled
def weight_and_distance(shape: Shape, one: int, other: int, h: Floats, v: Floats, z: Floats, norms: Floats) -> Any:
    """h^T (v_i * v_j) and D(z_i, z_j)."""
    v_one, v_other, z_one, z_other = v[one], v[other], z[one], z[other]
    weight, product = _ZERO, _ZERO
    for k in range(h.size):
        weight += h[k] * v_one[k] * v_other[k]
        product += z_one[k] * z_other[k]
    return weight, product if shape.cosine else norms[one] + norms[other] - _TWO * product


@compiled
def finish_rows(
    shape: Shape, rule: Rule, rows: Rows, line: Floats, work: Work, begin: int, end: int, lane: int, lanes: int
) -> None:
    """The slots begin to end: their gradients summed over lanes, back through the transform, and the rows updated.

    The layers' gradients of these rows go to this lane's line; z, no longer needed, holds what comes back from layer to layer.
    """
    matrices, own_line = matrices_of(shape, line), work.dense_gradients[lane]
    for slot in range(begin, end):
        gradient, z_gradient = work.row_gradients[0, slot], work.z_gradients[0, slot]
        for other in range(1, lanes):
            add_scaled(gradient, _ONE, work.row_gradients[other, slot])
            add_scaled(z_gradient, _ONE, work.z_gradients[other, slot])
        if shape.unit:
            through_unit_length(work.z[slot], work.inverses[slot], z_gradient)
    back, spare = work.z_gradients[0, begin:end], work.z[begin:end]
    matrix_gradients, bias_gradients = matrices_of(shape, own_line), biases_of(shape, own_line)
    for layer in range(shape.layers - 1, -1, -1):
        source, out = work.features[layer, begin:end], work.features[layer + 1, begin:end]
        for slot in range(end - begin):
            through_activation(shape.activation, out[slot], back[slot])
            if shape.biased:
                add_scaled(bias_gradients[layer], _ONE, back[slot])
        np.dot(back.T, source, matrix_gradients[layer])
        np.dot(back, matrices[layer], spare)
        back, spare = spare, back
    for slot in range(end - begin):
        gradient = work.row_gradients[0, begin + slot]
        add_scaled(gradient[1:], _ONE, back[slot])
        update_row(rule, rows, work.rows[begin + slot], gradient)
