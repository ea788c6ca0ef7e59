from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.data.encoding import Encoded
from gmlfm.errors import DataError, OptionError
from gmlfm.models.base import Floats, Ints, Layout, Rated
from gmlfm.models.mamo import Mamo, attention, recalled, rewritten

Doubles = npt.NDArray[np.float64]
N_USERS, N_ITEMS, N_TRAINED = 120, 24, 80
ALL_ITEMS = np.arange(N_ITEMS, dtype=np.int32)
NEWCOMERS = np.arange(N_TRAINED, N_USERS, dtype=np.int32)
SMALL: dict[str, Any] = {"k": 8, "layers": 1}
ASKED = ALL_ITEMS[N_ITEMS // 2 :]  # newcomers have rated some of the first half


def fields(*given: tuple[Any, str, Any, int]) -> tuple[FieldCode, ...]:
    codes: list[FieldCode] = []
    for part, name, kind, n_values in given:
        codes.append(FieldCode(part, name, kind, codes[-1].end if codes else 1, n_values))
    return tuple(codes)


WITH_PROFILES = Layout(
    fields(
        ("user", "user", "id", N_USERS),
        ("user", "kind", "category", 2),
        ("item", "item", "id", N_ITEMS),
        ("item", "look", "category", 2),
        ("item", "sound", "category", 2),
    )
)
IDS_ONLY = Layout(fields(("user", "user", "id", 6), ("item", "item", "id", 5)))
NO_CONTEXT = AttributeTable(np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float32))


def table(codes: tuple[FieldCode, ...], *values: npt.NDArray[np.int64]) -> AttributeTable:
    ids = np.stack([one.offset + 2 + value for one, value in zip(codes, values, strict=True)], axis=1).astype(np.int32)
    return AttributeTable(ids, np.ones(ids.shape, np.float32))


def ids_only() -> Encoded:
    return Encoded(table(IDS_ONLY.fields[:1], np.arange(6)), NO_CONTEXT, table(IDS_ONLY.fields[1:], np.arange(5)))


class World:
    """Users of kind 0 like or hate a look, those of kind 1 a sound; which of the two only their ratings tell."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.kind = generator.integers(0, 2, N_USERS)
        taste = generator.integers(0, 2, N_USERS) * 2 - 1
        look, sound = ALL_ITEMS % 2, ALL_ITEMS // 2 % 2
        cared_for = np.where(self.kind[:, None] == 0, look[None], sound[None]) * 2 - 1
        self.truth = (3 + taste[:, None] * cared_for).astype(np.float32)
        codes = WITH_PROFILES.fields
        self.encoded = Encoded(
            table(codes[:2], np.arange(N_USERS), self.kind),
            NO_CONTEXT,
            table(codes[2:], ALL_ITEMS.astype(np.int64), look, sound),
        )
        self.tasks = self.ratings(np.arange(N_TRAINED), N_ITEMS, 16, generator)
        self.support = self.ratings(NEWCOMERS, N_ITEMS // 2, 10, generator)

    def ratings(self, users: npt.NDArray[Any], n_items: int, n_each: int, generator: np.random.Generator) -> Rated:
        items = np.concatenate([generator.permutation(n_items)[:n_each] for _ in users]).astype(np.int32)
        repeated = np.repeat(users, n_each).astype(np.int32)
        return Rated(repeated, items, self.truth[repeated, items])

    def model(self, epochs: int = 1, **options: Any) -> Mamo:
        model = Mamo(WITH_PROFILES, **options)
        model.read(self.encoded, self.support)
        for number in range(epochs):
            model.epoch(self.tasks, number, quiet)
        return model

    def small(self, **options: Any) -> Mamo:
        """A few users' epoch: long enough to fill the memories, too short for the task memory to fade."""
        model = Mamo(WITH_PROFILES, **{**SMALL, **options})
        model.read(self.encoded, self.support)
        model.epoch(self.ratings(np.arange(10), N_ITEMS, 8, np.random.default_rng(5)), 0, quiet)
        return model

    def error(self, scores: Floats) -> float:
        """Of all newcomers and the items asked; always answering the mean has 1."""
        return float(((scores - self.truth[NEWCOMERS][:, ASKED]) ** 2).mean())


def quiet(done: int, of: int, loss: float) -> None:
    pass


def part_of(one: AttributeTable, numbers: Ints) -> AttributeTable:
    return AttributeTable(one.ids[numbers], one.values[numbers])


def numpy_of(weights: dict[str, Tensor]) -> dict[str, Doubles]:
    return {name: one.double().numpy() for name, one in weights.items()}


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def published(world: World) -> Mamo:
    return world.model(epochs=8)


# --- the equations, slowly


def test_attention_is_a_softmax_of_cosines_and_reading_a_weighted_sum() -> None:
    generator = np.random.default_rng(1)
    p, keys, memory = generator.normal(size=5), generator.normal(size=(3, 5)), generator.normal(size=(3, 2, 4))
    cosines = [sum(p * key) / (sum(p * p) ** 0.5 * sum(key * key) ** 0.5) for key in keys]
    expected = np.exp(cosines) / sum(np.exp(cosines))
    found = attention(torch.from_numpy(p), torch.from_numpy(keys))
    assert found is not None
    assert found.numpy() == pytest.approx(expected)
    summed = np.zeros((2, 4))
    for slot in range(3):
        summed += expected[slot] * memory[slot]
    assert recalled(torch.from_numpy(memory), found).numpy() == pytest.approx(summed)


def test_writing_blends_each_slot_by_its_attention() -> None:
    generator = np.random.default_rng(2)
    a, value, memory = generator.random(3), generator.normal(size=(2, 4)), generator.normal(size=(3, 2, 4))
    expected = np.empty((3, 2, 4))
    for slot in range(3):
        for row in range(2):
            for column in range(4):
                expected[slot, row, column] = 0.3 * a[slot] * value[row, column] + 0.7 * memory[slot, row, column]
    found = rewritten(torch.from_numpy(memory), torch.from_numpy(a), torch.from_numpy(value), 0.3)
    assert found.numpy() == pytest.approx(expected)


def by_hand(local: dict[str, Doubles], p: Doubles, items: Doubles, targets: Doubles) -> tuple[float, dict[str, Doubles]]:
    """Mean squared error of a network of one layer each, and its derivatives, rating by rating."""
    k = items.shape[1]
    gradient = {name: np.zeros_like(one) for name, one in local.items()}
    gradient |= {"profile": np.zeros_like(p), "items": np.zeros_like(items)}
    loss = 0.0
    for at, (item, target) in enumerate(zip(items, targets, strict=True)):
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
        gradient["items"][at] += d_both[k:]
    return loss, gradient


def adapted_by_hand(
    start: dict[str, Doubles], p: Doubles, items: Doubles, targets: Doubles, rate: float, steps: int
) -> dict[str, Doubles]:
    current = start
    for _ in range(steps):
        _, gradient = by_hand(current, p, items, targets)
        current = {name: one - rate * gradient[name] for name, one in current.items()}
    return current


def start_by_hand(before: dict[str, Doubles], p: Doubles, tau: float) -> tuple[Doubles, dict[str, Doubles]]:
    keys = before["memory.keys"]
    attended = np.exp(keys @ p / np.linalg.norm(keys, axis=1) / np.linalg.norm(p))
    attended /= attended.sum()
    local = {name: one for name, one in before.items() if name.startswith(("user.", "head."))}
    for name in ("user.0.weight", "user.0.bias"):
        local[name] = local[name] - tau * np.einsum("s,s...->...", attended, before["memory.bias." + name])
    return attended, local | {"task": np.einsum("s,s...->...", attended, before["memory.task"])}


def item_vector(weights: dict[str, Doubles], world: World, item: int) -> tuple[list[int], Doubles, Doubles]:
    """Rows of the embedding, profile, and input of relu, of an item with a look and a sound."""
    # The table holds row 0, four rows of the users' kind, four of the look and four of the sound.
    rows = [1 + 4 + 2 + item % 2, 1 + 4 + 4 + 2 + item // 2 % 2]
    profile = np.concatenate([weights["embedding"][row] for row in rows])
    return rows, profile, weights["item.0.weight"] @ profile + weights["item.0.bias"]


def test_one_users_epoch_is_local_steps_memory_writes_and_a_first_order_step_by_hand(world: World) -> None:
    model = world.small(k=5, local_lr=0.05, tau=0.3, seed=4, lr=0.07)
    before = numpy_of(model.weights())
    user, items = 7, np.array([3, 5, 8, 14, 17, 20, 21, 22], np.int32)
    loss = model.epoch(Rated(np.full(8, user, np.int32), items, world.truth[user, items]), 9, quiet)
    after = numpy_of(model.weights())

    generator = np.random.default_rng([4, 30, 9])
    generator.permutation(np.array([user]))
    order = items[generator.permutation(8)]
    targets = (world.truth[user, order] - before["label.mean"]) / before["label.spread"]
    row = 1 + 2 + int(world.kind[user])
    p = before["embedding"][row]
    vectors = np.stack([np.maximum(item_vector(before, world, item)[2], 0) for item in order])
    attended, start = start_by_hand(before, p, 0.3)
    _, first = by_hand(start, p, vectors[2:], targets[2:])
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
            blended = 0.05 * attended[slot] * first[name] + 0.95 * before["memory.bias." + name][slot]
            assert after["memory.bias." + name][slot] == pytest.approx(blended, **close)
    for name in ("user.0.weight", "user.0.bias", "head.0.weight", "head.0.bias", "head.out.weight", "head.out.bias"):
        assert np.abs(query[name]).max() > 1e-3
        assert after[name] == pytest.approx(before[name] - 0.07 * query[name], **close)

    expected = before["embedding"].copy()
    expected[row] -= 0.07 * query["profile"]
    item_weight = before["item.0.weight"].copy()
    for at, item in enumerate(order[:2]):
        rows, profile, inside = item_vector(before, world, item)
        d_in = query["items"][at] * (inside > 0)
        item_weight -= 0.07 * np.outer(d_in, profile)
        for place, one in enumerate(rows):
            expected[one] -= 0.07 * (before["item.0.weight"].T @ d_in)[5 * place : 5 * place + 5]
    assert after["item.0.weight"] == pytest.approx(item_weight, **close)
    assert after["embedding"] == pytest.approx(expected, **close)


def test_a_scored_user_has_taken_the_local_steps_of_all_her_support_ratings_by_hand(world: World) -> None:
    model = world.small(local_lr=0.05, tau=0.3, inner=2)
    weights = numpy_of(model.weights())
    user = int(NEWCOMERS[3])
    own = world.support.users == user
    p = weights["embedding"][1 + 2 + int(world.kind[user])]
    vectors = np.stack([np.maximum(item_vector(weights, world, item)[2], 0) for item in ALL_ITEMS])
    targets = (world.support.labels[own] - weights["label.mean"]) / weights["label.spread"]
    _, start = start_by_hand(weights, p, 0.3)
    local = adapted_by_hand(start, p, vectors[world.support.items[own]], targets, 0.05, 2)
    e_u = np.maximum(local["user.0.weight"] @ p + local["user.0.bias"], 0)
    expected = []
    for vector in vectors:
        h = np.maximum(local["head.0.weight"] @ local["task"] @ np.concatenate([e_u, vector]) + local["head.0.bias"], 0)
        expected.append(float(local["head.out.weight"][0] @ h + local["head.out.bias"][0]))
    in_labels = weights["label.mean"] + weights["label.spread"] * np.array(expected)
    assert model.score_all(np.array([user], np.int32), ALL_ITEMS)[0] == pytest.approx(in_labels, rel=1e-4)


def test_a_batch_steps_by_the_mean_of_its_users_gradients(world: World) -> None:
    options = {**SMALL, "feature_memory": False, "task_memory": False, "tasks_a_batch": 2}
    trained = world.small(**options).weights()

    def change(*users: int) -> dict[str, Doubles]:
        model = Mamo(WITH_PROFILES, **options)
        model.read(world.encoded, world.support)
        model.load(trained)
        # All ratings of a user are alike, so that it does not matter which of them are asked.
        rated = np.repeat(np.array(users, np.int32), 4)
        items = (rated % N_ITEMS).astype(np.int32)
        model.epoch(Rated(rated, items, world.truth[rated, items]), 0, quiet)
        return {name: (one - trained[name]).double().numpy() for name, one in model.weights().items()}

    both, first, second = change(3, 10), change(3), change(10)
    for name, one in both.items():
        assert one == pytest.approx((first[name] + second[name]) / 2, rel=1e-3, abs=1e-6)
    for name in ("user.0.weight", "item.0.weight", "head.0.weight", "task", "embedding"):
        assert np.abs(first[name] - second[name]).max() > 1e-4


def test_a_profile_sums_x_times_embedding_within_each_field_and_leaves_ids_and_context_out() -> None:
    codes = fields(
        ("user", "user", "id", 2),
        ("user", "tags", "set", 3),
        ("user", "age", "number", 1),
        ("context", "hour", "category", 2),
        ("item", "item", "id", 4),
    )
    tags, age, hour = codes[1].offset, codes[2].offset, codes[3].offset
    ids = [[3, age + 2, tags + 2, tags + 4, hour + 2], [4, age + 2, tags + 3, 0, hour + 3]]
    users = AttributeTable(np.array(ids, np.int32), np.array([[1, 0.5, 2, 3, 1], [1, -0.25, 1, 0, 1]], np.float32))
    model = Mamo(Layout(codes), k=2)
    items = table(codes[4:], np.arange(4))
    model.read(Encoded(users, NO_CONTEXT, items), Rated(*(np.zeros(0, kind) for kind in (np.int32, np.int32, np.float32))))
    rated = np.array([0, 0, 1, 1], np.int32)
    model.epoch(Rated(rated, np.arange(4, dtype=np.int32), rated.astype(np.float32)), 0, quiet)
    e = model.weights()["embedding"].numpy()
    assert e.shape == (1 + 5 + 3 + 6, 2)
    found = model._profile(model._user_side.attributes(users, np.array([0, 1]))).numpy()
    assert found[0] == pytest.approx(np.concatenate([2 * e[1 + 2] + 3 * e[1 + 4], 0.5 * e[6 + 2]]))
    assert found[1] == pytest.approx(np.concatenate([e[1 + 3], -0.25 * e[6 + 2]]))


# --- what it learns


def test_newcomers_who_rated_are_understood_with_the_published_settings(world: World, published: Mamo) -> None:
    assert world.error(np.full((len(NEWCOMERS), len(ASKED)), world.tasks.labels.mean(), np.float32)) > 0.99
    assert world.error(published.score_all(NEWCOMERS, ASKED)) < 0.2


def test_adapted_scores_beat_those_of_the_profile_alone(world: World, published: Mamo) -> None:
    alone = published.score_all_for(part_of(world.encoded.user, NEWCOMERS), ASKED)
    assert world.error(published.score_all(NEWCOMERS, ASKED)) < 0.3 * world.error(alone)


def test_the_opposite_ratings_turn_the_scores_round(world: World, published: Mamo) -> None:
    turned = Mamo(WITH_PROFILES)
    turned.load(published.weights())
    turned.read(world.encoded, Rated(world.support.users, world.support.items, 6 - world.support.labels))
    assert world.error(6 - turned.score_all(NEWCOMERS, ASKED)) < 0.2


def test_classes_learn_the_world_too(world: World) -> None:
    model = world.model(epochs=6, k=32, output="classes", local_lr=0.1, inner=5, gamma=0.02)
    scores = model.score_all(NEWCOMERS, ASKED)
    assert model.weights()["label.levels"].tolist() == [2.0, 4.0]
    assert scores.min() >= 2.0
    assert scores.max() <= 4.0
    assert world.error(scores) < 0.5


def test_the_mean_query_loss_falls(world: World) -> None:
    model = Mamo(WITH_PROFILES, k=16, local_lr=0.05, lr=0.03, gamma=0.02)
    model.read(world.encoded, world.support)
    losses = [model.epoch(world.tasks, number, quiet) for number in range(4)]
    assert losses[0] > 0.8
    assert losses[-1] < 0.6 * losses[0]


# --- the memories switched off


def loaded(world: World, weights: dict[str, Tensor], **options: Any) -> Mamo:
    model = Mamo(WITH_PROFILES, **{**SMALL, **options})
    model.read(world.encoded, world.support)
    model.load(weights)
    return model


def test_without_the_feature_memory_the_user_network_starts_unbiased(world: World) -> None:
    weights = world.small().weights()
    without = {name: one for name, one in weights.items() if not name.startswith("memory.bias.")}
    off = loaded(world, without, feature_memory=False).score_all(NEWCOMERS, ALL_ITEMS)
    unbiased = loaded(world, weights, tau=0.0).score_all(NEWCOMERS, ALL_ITEMS)
    biased = loaded(world, weights, tau=0.5).score_all(NEWCOMERS, ALL_ITEMS)
    assert np.array_equal(off, unbiased)
    assert np.abs(off - biased).max() > 1e-4


def test_without_the_task_memory_all_users_share_one_matrix(world: World) -> None:
    weights = world.small(gamma=0.0).weights()
    profiles = weights["embedding"][1 + 2 : 1 + 4]
    attended = attention(profiles[0], weights["memory.keys"])
    assert attended is not None
    without = {name: one for name, one in weights.items() if name != "memory.task"}
    without["task"] = recalled(weights["memory.task"], attended)
    on, off = (
        loaded(world, weights).score_all(NEWCOMERS, ALL_ITEMS),
        loaded(world, without, task_memory=False).score_all(NEWCOMERS, ALL_ITEMS),
    )
    first_kind = world.kind[NEWCOMERS] == 0
    assert on[first_kind] == pytest.approx(off[first_kind], abs=1e-5)
    assert np.abs(on - off)[~first_kind].max() > 1e-4


@pytest.mark.parametrize(
    "off", [{"feature_memory": False}, {"task_memory": False}, {"feature_memory": False, "task_memory": False}], ids=str
)
def test_switching_a_memory_off_in_training_changes_the_scores_and_the_weights_kept(world: World, off: dict[str, bool]) -> None:
    whole, part = world.small(tau=0.5), world.small(tau=0.5, **off)
    assert np.abs(whole.score_all(NEWCOMERS, ALL_ITEMS) - part.score_all(NEWCOMERS, ALL_ITEMS)).max() > 1e-4
    names = set(part.weights())
    assert ("memory.bias.user.0.weight" in names) == off.get("feature_memory", True)
    assert ("memory.task" in names) == off.get("task_memory", True) == ("task" not in names)
    assert ("memory.keys" in names) == (len(off) == 1)


# --- answers


def test_pairs_everything_and_everything_for_agree(world: World) -> None:
    model = world.small()
    users = np.array([90, -1, 3, 90, -1], np.int32)
    items = np.random.default_rng(0).integers(0, N_ITEMS, (5, 7)).astype(np.int32)
    whole = model.score_all(users, ALL_ITEMS)
    assert model.score_pairs(users, items) == pytest.approx(np.take_along_axis(whole, items, axis=1), abs=1e-5)
    user_side = part_of(world.encoded.user, np.array([90, 3, 90], np.int32))
    found = model.score_all_for(user_side, ASKED, np.array([90, 3, -1], np.int32), np.array([2], np.int32))
    assert found[:2] == pytest.approx(whole[[0, 2]][:, ASKED], abs=1e-5)
    assert found[2] == pytest.approx(model.score_all_for(user_side, ASKED)[0], abs=1e-6)
    assert np.abs(found[0] - found[2]).max() > 1e-4  # by her attributes alone she is not adapted
    assert model.score_all(users[:0], ALL_ITEMS).shape == (0, N_ITEMS)


def test_only_profiles_tell_users_without_support_apart(world: World) -> None:
    model = world.small()
    scores = model.score_all(np.arange(N_TRAINED, dtype=np.int32), ALL_ITEMS)
    kind = world.kind[:N_TRAINED]
    for one in (0, 1):
        assert np.ptp(scores[kind == one], axis=0).max() == 0
    assert np.abs(scores[kind == 0][0] - scores[kind == 1][0]).max() > 1e-4
    assert scores[0] == pytest.approx(model.score_all_for(part_of(world.encoded.user, np.array([0], np.int32)), ALL_ITEMS)[0])


def test_an_unknown_user_scores_as_one_of_unknown_attributes(world: World) -> None:
    model = world.small()
    codes = WITH_PROFILES.fields
    unknown = AttributeTable(np.array([[codes[0].unknown_row, codes[1].unknown_row]], np.int32), np.ones((1, 2), np.float32))
    scores = model.score_all(np.array([-1], np.int32), ALL_ITEMS)
    assert np.isfinite(scores).all()
    assert np.array_equal(scores, model.score_all_for(unknown, ALL_ITEMS))


def test_ratings_may_come_in_any_order_and_other_data_may_be_read(world: World) -> None:
    model = world.small()
    before = model.score_all(NEWCOMERS, ALL_ITEMS)
    order = np.argsort(world.support.items, kind="stable")  # users are mixed, each one's ratings sorted
    backwards = Encoded(world.encoded.user, NO_CONTEXT, part_of(world.encoded.item, ALL_ITEMS[::-1]))
    renamed = (N_ITEMS - 1 - world.support.items[order]).astype(np.int32)
    model.read(backwards, Rated(world.support.users[order], renamed, world.support.labels[order]))
    assert model.score_all(NEWCOMERS, ALL_ITEMS)[:, ::-1] == pytest.approx(before, abs=1e-5)


@pytest.mark.parametrize("output", ["regression", "classes"])
def test_ids_are_the_profile_where_there_is_nothing_else(output: str) -> None:
    model = Mamo(IDS_ONLY, k=4, output=output)
    users, items = np.repeat(np.arange(6), 5).astype(np.int32), np.tile(np.arange(5), 6).astype(np.int32)
    rated = Rated(users, items, (users % 2 + items % 3).astype(np.float32))
    model.read(ids_only(), rated)
    model.epoch(rated, 0, quiet)
    assert model.weights()["embedding"].shape == (1 + 8 + 7, 4)
    scores = model.score_all(np.array([0, 1, -1], np.int32), np.arange(5, dtype=np.int32))
    assert np.isfinite(scores).all()
    assert np.abs(scores[0] - scores[1]).max() > 1e-6


def test_class_scores_are_expectations_and_unseen_labels_count_as_the_nearest_level(world: World) -> None:
    model = world.small(output="classes")
    weights = model.weights()
    odds = np.exp(1.0)
    weights["head.out.weight"] *= 0
    weights["head.out.bias"] = torch.tensor([1.0, 0.0])
    model.load(weights)
    expected = (2 * odds + 4) / (odds + 1)
    assert model.score_all(np.array([-1], np.int32), ALL_ITEMS) == pytest.approx(np.full((1, N_ITEMS), expected))
    assert model._targets(np.array([1.0, 2.9, 3.1, 9.0], np.float32)).tolist() == [0, 0, 1, 1]


# --- epochs


def test_an_epoch_passes_over_single_ratings_and_tells_how_far_it_is(world: World) -> None:
    users = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4], np.int32)
    rated = Rated(users, np.arange(9, dtype=np.int32), world.truth[users, np.arange(9)])
    model = Mamo(WITH_PROFILES, k=4, tasks_per_batch=3)
    model.read(world.encoded, world.support)
    told: list[tuple[int, int, float]] = []
    returned = model.epoch(rated, 0, lambda *one: told.append(one))
    assert [one[:2] for one in told] == [(3, 4), (4, 4)]
    assert told[-1][2] == returned
    alone = Rated(users[:2], rated.items[:2], rated.labels[:2])
    with pytest.raises(DataError, match="no user has two ratings"):
        model.epoch(alone, 1, quiet)


def test_the_scale_of_the_first_epochs_labels_is_kept(world: World) -> None:
    model = world.model(**SMALL)
    model.epoch(world.support, 1, quiet)
    weights = model.weights()
    assert float(weights["label.mean"]) == pytest.approx(world.tasks.labels.mean(), rel=1e-6)
    assert float(weights["label.spread"]) == pytest.approx(world.tasks.labels.std(), rel=1e-6)
    assert len(weights["label.levels"]) == 0


def test_equal_labels_have_a_spread_of_one(world: World) -> None:
    model = Mamo(WITH_PROFILES, k=4)
    model.read(world.encoded, world.support)
    model.epoch(Rated(world.tasks.users, world.tasks.items, np.full_like(world.tasks.labels, 3)), 0, quiet)
    assert float(model.weights()["label.spread"]) == 1.0
    assert np.isfinite(model.score_all(NEWCOMERS, ASKED)).all()


def test_the_same_seed_gives_the_same_scores_and_another_seed_others(world: World) -> None:
    one, again, other = (world.small(seed=seed).score_all(NEWCOMERS, ALL_ITEMS) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert np.abs(one - other).max() > 1e-4


def test_scoring_writes_nothing(world: World) -> None:
    model = world.small()
    before = model.weights()
    model.score_all(NEWCOMERS, ALL_ITEMS)
    assert all(torch.equal(one, before[name]) for name, one in model.weights().items())


# --- saved and loaded


@pytest.mark.parametrize("options", [{}, {"output": "classes"}, {"task_memory": False}, {"feature_memory": False}], ids=str)
def test_saved_and_loaded_it_scores_and_goes_on_alike_to_the_bit(world: World, tmp_path: Path, options: dict[str, Any]) -> None:
    model = world.small(**options)
    save_file(model.weights(), tmp_path / "mamo.safetensors")
    again = loaded(world, load_file(tmp_path / "mamo.safetensors"), **options)
    users = np.append(NEWCOMERS, np.int32(-1))
    assert np.array_equal(model.score_all(users, ALL_ITEMS), again.score_all(users, ALL_ITEMS))
    assert model.epoch(world.tasks, 1, quiet) == again.epoch(world.tasks, 1, quiet)
    assert np.array_equal(model.score_all(users, ALL_ITEMS), again.score_all(users, ALL_ITEMS))


def test_scores_follow_training_and_loading_and_a_copy_of_the_weights_does_not(world: World) -> None:
    model = world.small()
    kept, scores = model.weights(), model.score_all(NEWCOMERS, ALL_ITEMS)
    model.epoch(world.tasks, 1, quiet)
    later = model.score_all(NEWCOMERS, ALL_ITEMS)
    assert np.array_equal(later, loaded(world, model.weights()).score_all(NEWCOMERS, ALL_ITEMS))
    assert not np.array_equal(later, scores)
    model.load(kept)
    assert np.array_equal(model.score_all(NEWCOMERS, ALL_ITEMS), scores)
    model.epoch(world.tasks, 1, quiet)
    assert np.array_equal(loaded(world, kept).score_all(NEWCOMERS, ALL_ITEMS), scores)


def test_weights_that_do_not_fit_are_refused(world: World) -> None:
    weights = world.small().weights()
    with pytest.raises(ValueError, match=r"'embedding' has the shape \(13, 8\); expected \(13, 5\)"):
        Mamo(WITH_PROFILES, k=5, layers=1).load(weights)
    with pytest.raises(KeyError, match=r"user\.1\.weight"):
        Mamo(WITH_PROFILES, k=8, layers=2).load(weights)
    with pytest.raises(ValueError, match=r"'memory\.task' is no weight of this model"):
        Mamo(WITH_PROFILES, k=8, layers=1, task_memory=False).load(weights)


# --- refused


def test_options_out_of_range_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"k": 0}, "k is 0; expected 1 or more."),
        ({"layers": 0}, "layers is 0; expected 1 or more."),
        ({"slots": 0}, "slots is 0; expected 1 or more."),
        ({"inner": -1}, "inner is -1; expected 1 or more."),
        ({"tasks_a_batch": 0}, "tasks_a_batch is 0; expected 1 or more."),
        ({"alpha": 1.5}, "alpha is 1.5; expected 0 to 1."),
        ({"beta": -0.1}, "beta is -0.1; expected 0 to 1."),
        ({"gamma": float("nan")}, "gamma is nan; expected 0 to 1."),
        ({"tau": -1.0}, "tau is -1.0; expected 0 or more."),
        ({"local_lr": 0.0}, "local_lr is 0.0; expected a number above 0."),
        ({"lr": float("inf")}, "lr is inf; expected a number above 0."),
        ({"seed": -1}, "seed is -1; expected 0 or more."),
        ({"output": "odds"}, "output is 'odds'; expected regression or classes."),
    ]
    for options, message in wrong:
        with pytest.raises(OptionError) as caught:
            Mamo(WITH_PROFILES, **options)
        assert str(caught.value) == message


def test_rates_that_diverge_are_named(world: World) -> None:
    model = Mamo(WITH_PROFILES, k=4, local_lr=1e12)
    model.read(world.encoded, world.support)
    with pytest.raises(DataError, match=r"not finite; lower local_lr \(it is 1e\+12\) or lr \(it is 0\.05\)"):
        model.epoch(world.tasks, 0, quiet)


def test_what_has_learnt_or_read_nothing_says_so(world: World) -> None:
    model = Mamo(WITH_PROFILES, k=4)
    with pytest.raises(DataError, match="call read first"):
        model.epoch(world.tasks, 0, quiet)
    untrained = Mamo(WITH_PROFILES, k=4)
    untrained.read(world.encoded, world.support)
    with pytest.raises(DataError, match="train it for an epoch first"):
        untrained.score_all(NEWCOMERS, ASKED)
