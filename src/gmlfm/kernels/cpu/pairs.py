r"""GML-FM's groups: pairs of attributes, each a weight times a distance, forward and backward.

.. math:: \hat y = w_0 + \sum_i w_i x_i + \sum_{i<j} h^\top (v_i \odot v_j) \, D(z_i, z_j) \, x_i x_j

D is the squared distance, the cosine, which is the inner product of z at unit length, or 1 + g times the cosine. The user side
of a group is computed once for all of its items.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmlfm.kernels.cpu.arrays import Floats, Groups, Rule
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.losses import group_loss
from gmlfm.kernels.cpu.maths import add_four, add_four_differences, clear, four_distances, four_dots, four_ints
from gmlfm.kernels.cpu.pairs_transform import PairsShape, PairsWork, gate_place
from gmlfm.kernels.cpu.pairs_within import within, within_back

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)


@compiled
def walk_pairs(
    shape: PairsShape,
    rule: Rule,
    groups: Groups,
    share: Any,
    start: int,
    begin: int,
    end: int,
    packed_params: Floats,
    table: Floats,
    work: PairsWork,
    n_distinct: int,
    thread: int,
) -> None:
    """Scores, loss and gradients of the groups begin to end, counted from start.

    Attributes are taken by fours, padded with some of x = 0, so that a number read is used four times.
    """
    w_grads, v_grads, z_grads, dense_grad = (
        work.w_grads[thread],
        work.v_grads[thread],
        work.z_grads[thread],
        work.dense_grads[thread],
    )
    w_grads[:n_distinct] = _ZERO
    v_grads[:n_distinct] = _ZERO
    z_grads[:n_distinct] = _ZERO
    dense_grad[:] = _ZERO
    user_width, size, item_width = groups.user_ids.shape[1], groups.labels.shape[1], groups.item_ids.shape[2]
    h, h_grad = packed_params[1 : 1 + shape.k], dense_grad[1 : 1 + shape.k]
    # What a pair's weight is multiplied with: base + gate times its distance or cosine.
    base, gate, gate_grad = _ZERO, _ONE, _ZERO
    if shape.gated:
        base, gate = _ONE, packed_params[gate_place(shape)]
    v, z, slot_rows = work.features[0], work.z, work.rows
    user_slots, item_slots = work.user_slots.reshape(-1, 1, user_width), work.item_slots
    user_x, item_x = groups.user_x.reshape(-1, 1, user_width), groups.item_x
    most_user, most_items = (user_width + 3) // 4 * 4, (size * item_width + 3) // 4 * 4
    # Attributes with a value: slot and x of the user's, slot, x and place in the group of the items'.
    present_user_slots, present_user_x = np.zeros(most_user, np.int32), np.zeros(most_user, np.float32)
    present_item_slots, present_item_x, item_of = (
        np.zeros(most_items, np.int32),
        np.zeros(most_items, np.float32),
        np.zeros(most_items, np.int32),
    )
    # x h v and z of the user's attributes; sums: in row 0 the gradient at what one of them is multiplied with.
    user_hv, user_z = np.zeros((most_user, shape.k), np.float32), np.zeros((most_user, shape.rank), np.float32)
    sums = np.empty((1, shape.k), np.float32)
    # Of each pair across the sides, the weight and the distance; on the way back, the gradients at z's product and the weight.
    weights = np.zeros((most_items, most_user), np.float32)
    distances = np.zeros((most_items, most_user), np.float32)
    scores, score_grads = np.empty(size, np.float32), np.empty(size, np.float32)
    total = _ZERO
    for place in range(begin, end):
        group = start + place
        user_terms = packed_params[0] + within(shape, base, gate, user_slots, place, 0, user_x, group, user_width, h, v, z)
        n_user = 0
        for f in range(user_width):
            x, slot = user_x[group, 0, f], user_slots[place, 0, f]
            if x != 0:
                user_terms += x * table[slot_rows[slot], 0]
                present_user_slots[n_user], present_user_x[n_user] = slot, x
                for k in range(shape.k):
                    user_hv[n_user, k] = x * h[k] * v[slot, k]
                for k in range(shape.rank):
                    user_z[n_user, k] = z[slot, k]
                n_user += 1
        for a in range(n_user, (n_user + 3) // 4 * 4):
            present_user_slots[a] = 0
            clear(user_hv, a)
            clear(user_z, a)
        n_items = 0
        for g in range(size):
            score = user_terms + within(shape, base, gate, item_slots, place, g, item_x, group, item_width, h, v, z)
            for f in range(item_width):
                x, slot = item_x[group, g, f], item_slots[place, g, f]
                if x != 0:
                    present_item_slots[n_items], present_item_x[n_items], item_of[n_items] = slot, x, g
                    score += x * table[slot_rows[slot], 0]
                    for a in range(0, n_user, 4):
                        by_weight = four_dots(v, slot, user_hv, a)
                        by_distance = four_dots(z, slot, user_z, a) if shape.cosine else four_distances(z, slot, user_z, a)
                        for i in range(4):
                            weights[n_items, a + i], distances[n_items, a + i] = by_weight[i], by_distance[i]
                            score += x * by_weight[i] * (base + gate * by_distance[i])
                    n_items += 1
            scores[g] = score
        scale = share * groups.weights[group] if groups.weights.size else share
        total += scale * group_loss(rule.loss, scores, groups.labels, group, score_grads)
        grad_sum = _ZERO
        for g in range(size):
            score_grads[g] *= scale
            grad_sum += score_grads[g]
            gate_grad += within_back(
                shape, base, gate, score_grads[g], item_slots, place, g, item_x, group, item_width, h, v, z, v_grads, z_grads,
                h_grad,
            )  # fmt: skip
        gate_grad += within_back(
            shape, base, gate, grad_sum, user_slots, place, 0, user_x, group, user_width, h, v, z, v_grads, z_grads, h_grad
        )
        dense_grad[0] += grad_sum
        for b in range(n_items):
            item_grad, slot = score_grads[item_of[b]] * present_item_x[b], present_item_slots[b]
            w_grads[slot, 0] += item_grad
            for a in range(0, n_user, 4):
                for i in range(a, a + 4):
                    product_grad = item_grad * weights[b, i] * (gate if shape.cosine else -_TWO)
                    gate_grad += item_grad * weights[b, i] * distances[b, i]
                    distances[b, i], weights[b, i] = item_grad * (base + gate * distances[b, i]), product_grad
                by_weight = distances[b, a], distances[b, a + 1], distances[b, a + 2], distances[b, a + 3]
                add_four(v_grads, slot, by_weight, user_hv, (a, a + 1, a + 2, a + 3))
                by_product = weights[b, a], weights[b, a + 1], weights[b, a + 2], weights[b, a + 3]
                if shape.cosine:
                    add_four(z_grads, slot, by_product, user_z, (a, a + 1, a + 2, a + 3))
                else:
                    add_four_differences(z_grads, slot, by_product, user_z, (a, a + 1, a + 2, a + 3), z, slot)
        for b in range(n_items, (n_items + 3) // 4 * 4):
            present_item_slots[b] = 0
            clear(distances, b)
            clear(weights, b)
        for a in range(n_user):
            slot, x = present_user_slots[a], present_user_x[a]
            w_grads[slot, 0] += grad_sum * x
            clear(sums, 0)
            for b in range(0, n_items, 4):
                items = four_ints(present_item_slots, b)
                by_weight = distances[b, a], distances[b + 1, a], distances[b + 2, a], distances[b + 3, a]
                by_product = weights[b, a], weights[b + 1, a], weights[b + 2, a], weights[b + 3, a]
                add_four(sums, 0, by_weight, v, items)
                if shape.cosine:
                    add_four(z_grads, slot, by_product, z, items)
                else:
                    add_four_differences(z_grads, slot, by_product, z, items, z, slot)
            for k in range(shape.k):
                v_grads[slot, k] += x * h[k] * sums[0, k]
            for k in range(shape.k):
                h_grad[k] += x * v[slot, k] * sums[0, k]
    if shape.gated:
        dense_grad[gate_place(shape)] = gate_grad
    work.losses[thread] = total
