"""MAMO's local steps, memory writes and global step against numpy, rating by rating."""

from __future__ import annotations

import numpy as np
import pytest

from gmlfm.models.base import Ratings
from tests.models.mamo_world import ALL_ITEMS, N_ITEMS, NEWCOMERS, SMALL, Doubles, World, copied, doubles_of, quiet


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def by_hand(local: dict[str, Doubles], p: Doubles, items: Doubles, targets: Doubles) -> tuple[float, dict[str, Doubles]]:
    """Mean squared error of a network of one layer each, and its derivatives, rating by rating."""
    k = items.shape[1]
    gradient = {name: np.zeros_like(weight) for name, weight in local.items()}
    gradient |= {"profile": np.zeros_like(p), "items": np.zeros_like(items)}
    loss = 0.0
    for index, (item, target) in enumerate(zip(items, targets, strict=True)):
        user_in = local["user.0.weight"] @ p + local["user.0.bias"]
        both = np.concatenate([np.maximum(user_in, 0), item])
        z = local["task"] @ both
        head_in = local["head.0.weight"] @ z + local["head.0.bias"]
        h = np.maximum(head_in, 0)
        error = float(local["head.out.weight"][0] @ h + local["head.out.bias"][0] - target)
        loss += error**2 / len(items)
        d_out = 2 * error / len(items)
        d_head = d_out * local["head.out.weight"][0] * (head_in > 0)
        d_z = local["head.0.weight"].T @ d_head
        d_both = local["task"].T @ d_z
        d_user = d_both[:k] * (user_in > 0)
        gradient["head.out.weight"] += d_out * h
        gradient["head.out.bias"] += d_out
        gradient["head.0.weight"] += np.outer(d_head, z)
        gradient["head.0.bias"] += d_head
        gradient["task"] += np.outer(d_z, both)
        gradient["user.0.weight"] += np.outer(d_user, p)
        gradient["user.0.bias"] += d_user
        gradient["profile"] += local["user.0.weight"].T @ d_user
        gradient["items"][index] += d_both[k:]
    return loss, gradient


def adapted_by_hand(
    start: dict[str, Doubles], p: Doubles, items: Doubles, targets: Doubles, rate: float, steps: int
) -> dict[str, Doubles]:
    current = start
    for _ in range(steps):
        _, gradient = by_hand(current, p, items, targets)
        current = {name: weight - rate * gradient[name] for name, weight in current.items()}
    return current


def start_by_hand(before: dict[str, Doubles], p: Doubles, tau: float) -> tuple[Doubles, dict[str, Doubles]]:
    keys = before["memory.keys"]
    attended = np.exp(keys @ p / np.linalg.norm(keys, axis=1) / np.linalg.norm(p))
    attended /= attended.sum()
    local = {name: weight for name, weight in before.items() if name.startswith(("user.", "head."))}
    for name in ("user.0.weight", "user.0.bias"):
        local[name] = local[name] - tau * np.einsum("s,s...->...", attended, before["memory.bias." + name])
    return attended, local | {"task": np.einsum("s,s...->...", attended, before["memory.task"])}


def item_vector(weights: dict[str, Doubles], item: int) -> tuple[list[int], Doubles, Doubles]:
    """Rows of the embedding, profile, and input of relu, of an item with a look and a sound."""
    # The table holds row 0, four rows of the users' kind, four of the look and four of the sound.
    rows = [1 + 4 + 2 + item % 2, 1 + 4 + 4 + 2 + item // 2 % 2]
    profile = np.concatenate([weights["embedding"][row] for row in rows])
    return rows, profile, weights["item.0.weight"] @ profile + weights["item.0.bias"]


def test_a_users_epoch_is_local_steps_memory_writes_and_a_first_order_step(world: World) -> None:
    model = world.small(k=5, local_lr=0.05, tau=0.3, seed=4, lr=0.07)
    before = doubles_of(model)
    user, items = 7, np.array([3, 5, 8, 14, 17, 20, 21, 22], np.int32)
    loss = model.run_epoch(Ratings(np.full(8, user, np.int32), items, world.truth[user, items]), 9, quiet)
    after = doubles_of(model)

    generator = np.random.default_rng([4, 30, 9])
    generator.permutation(np.array([user]))
    order = items[generator.permutation(8)]
    targets = (world.truth[user, order] - before["label.mean"]) / before["label.spread"]
    row = 1 + 2 + int(world.kind[user])
    p = before["embedding"][row]
    vectors = np.stack([np.maximum(item_vector(before, item)[2], 0) for item in order])
    attended, start = start_by_hand(before, p, 0.3)
    _, at_start = by_hand(start, p, vectors[2:], targets[2:])
    local = adapted_by_hand(start, p, vectors[2:], targets[2:], 0.05, 3)
    query_loss, query = by_hand(local, p, vectors[:2], targets[:2])
    assert loss == pytest.approx(query_loss, rel=1e-4)

    close = {"rel": 1e-4, "abs": 1e-6}
    for slot in range(3):
        assert after["memory.keys"][slot] == pytest.approx(
            0.5 * attended[slot] * p + 0.5 * before["memory.keys"][slot], **close
        )
        blended = 0.1 * attended[slot] * local["task"] + 0.9 * before["memory.task"][slot]
        assert after["memory.task"][slot] == pytest.approx(blended, **close)
        for name in ("user.0.weight", "user.0.bias"):
            blended = 0.05 * attended[slot] * at_start[name] + 0.95 * before["memory.bias." + name][slot]
            assert after["memory.bias." + name][slot] == pytest.approx(blended, **close)
    for name in ("user.0.weight", "user.0.bias", "head.0.weight", "head.0.bias", "head.out.weight", "head.out.bias"):
        assert np.abs(query[name]).max() > 1e-3
        assert after[name] == pytest.approx(before[name] - 0.07 * query[name], **close)

    expected = before["embedding"].copy()
    expected[row] -= 0.07 * query["profile"]
    item_weight = before["item.0.weight"].copy()
    for index, item in enumerate(order[:2]):
        rows, profile, relu_input = item_vector(before, item)
        d_in = query["items"][index] * (relu_input > 0)
        item_weight -= 0.07 * np.outer(d_in, profile)
        for place, item_row in enumerate(rows):
            expected[item_row] -= 0.07 * (before["item.0.weight"].T @ d_in)[5 * place : 5 * place + 5]
    assert after["item.0.weight"] == pytest.approx(item_weight, **close)
    assert after["embedding"] == pytest.approx(expected, **close)


def test_a_scored_user_has_taken_the_local_steps_of_all_their_support_ratings(world: World) -> None:
    model = world.small(local_lr=0.05, tau=0.3, inner=2)
    weights = doubles_of(model)
    user = int(NEWCOMERS[3])
    is_theirs = world.support.users == user
    p = weights["embedding"][1 + 2 + int(world.kind[user])]
    vectors = np.stack([np.maximum(item_vector(weights, item)[2], 0) for item in ALL_ITEMS])
    targets = (world.support.labels[is_theirs] - weights["label.mean"]) / weights["label.spread"]
    _, start = start_by_hand(weights, p, 0.3)
    local = adapted_by_hand(start, p, vectors[world.support.items[is_theirs]], targets, 0.05, 2)
    e_u = np.maximum(local["user.0.weight"] @ p + local["user.0.bias"], 0)
    expected = []
    for vector in vectors:
        h = np.maximum(local["head.0.weight"] @ local["task"] @ np.concatenate([e_u, vector]) + local["head.0.bias"], 0)
        expected.append(float(local["head.out.weight"][0] @ h + local["head.out.bias"][0]))
    in_labels = weights["label.mean"] + weights["label.spread"] * np.array(expected)
    assert world.score_all(model, [user])[0] == pytest.approx(in_labels, rel=1e-4)


def test_a_batch_steps_by_the_mean_of_its_users_gradients(world: World) -> None:
    options = {**SMALL, "feature_memory": False, "task_memory": False, "tasks_per_batch": 2}
    trained = copied(world.small(**options))

    def change(*users: int) -> dict[str, Doubles]:
        model = world.loaded(trained, **options)
        # All ratings of a user are alike, so that it does not matter which of them are the query.
        repeated = np.repeat(np.array(users, np.int32), 4)
        items = (repeated % N_ITEMS).astype(np.int32)
        model.run_epoch(Ratings(repeated, items, world.truth[repeated, items]), 0, quiet)
        return {name: (weight - trained[name]).double().numpy() for name, weight in model.state_dict().items()}

    of_both, of_third, of_tenth = change(3, 10), change(3), change(10)
    for name, difference in of_both.items():
        assert difference == pytest.approx((of_third[name] + of_tenth[name]) / 2, rel=1e-3, abs=1e-6)
    for name in ("user.0.weight", "item.0.weight", "head.0.weight", "task", "embedding"):
        assert np.abs(of_third[name] - of_tenth[name]).max() > 1e-4
