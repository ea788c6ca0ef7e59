from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gmlfm.data.encoding import Encoded
from gmlfm.errors import DataError, OptionError
from gmlfm.models.base import ItemSide, Layout, Ratings, UserSide
from gmlfm.models.mamo import Mamo
from gmlfm.models.mamo_network import attention, recalled
from tests.models.mamo_world import (
    ALL_ITEMS,
    CANDIDATES,
    N_ITEMS,
    N_TRAINED,
    NEWCOMERS,
    NO_CONTEXT,
    SMALL,
    WITH_PROFILES,
    World,
    copied,
    field_codes,
    inputs_of,
    quiet,
    rows_of,
    table_of,
)

IDS_ONLY = Layout(field_codes(("user", "user", "id", 6), ("item", "item", "id", 5)))


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def published(world: World) -> Mamo:
    """With the published settings. Read-only."""
    return world.trained(epochs=8)


# --- what it learns


def test_newcomers_who_rated_are_understood_with_the_published_settings(world: World, published: Mamo) -> None:
    mean = world.tasks.labels.mean()
    assert world.error(np.full((len(NEWCOMERS), len(CANDIDATES)), mean, np.float32)) > 0.99
    assert world.error(world.score_all(published, NEWCOMERS, CANDIDATES)) < 0.2


def test_adapted_scores_beat_those_of_the_profile_alone(world: World, published: Mamo) -> None:
    by_profile = published.score_all(world.by_profile(NEWCOMERS), CANDIDATES)
    assert world.error(world.score_all(published, NEWCOMERS, CANDIDATES)) < 0.3 * world.error(by_profile)


def test_the_opposite_ratings_turn_the_scores_round(world: World, published: Mamo) -> None:
    support = world.support
    turned = world.attached(Ratings(support.users, support.items, 6 - support.labels))
    turned.load_state_dict(published.state_dict())
    assert world.error(6 - world.score_all(turned, NEWCOMERS, CANDIDATES)) < 0.2


def test_classes_learn_the_world_too(world: World) -> None:
    model = world.trained(epochs=6, k=32, output="classes", local_lr=0.1, inner=5, gamma=0.02)
    scores = world.score_all(model, NEWCOMERS, CANDIDATES)
    assert model.state_dict()["label.levels"].tolist() == [2.0, 4.0]
    assert scores.min() >= 2.0
    assert scores.max() <= 4.0
    assert world.error(scores) < 0.5


def test_the_mean_query_loss_falls(world: World) -> None:
    model = world.attached(k=16, local_lr=0.05, lr=0.03, gamma=0.02)
    losses = [model.run_epoch(world.tasks, number, quiet) for number in range(4)]
    assert losses[0] > 0.8
    assert losses[-1] < 0.6 * losses[0]


# --- the memories switched off


def test_without_the_feature_memory_the_user_network_starts_unbiased(world: World) -> None:
    state = copied(world.small())
    without = {name: tensor for name, tensor in state.items() if not name.startswith("memory.bias.")}
    off = world.score_all(world.loaded(without, feature_memory=False), NEWCOMERS)
    unbiased = world.score_all(world.loaded(state, tau=0.0), NEWCOMERS)
    biased = world.score_all(world.loaded(state, tau=0.5), NEWCOMERS)
    assert np.array_equal(off, unbiased)
    assert np.abs(off - biased).max() > 1e-4


def test_without_the_task_memory_all_users_share_a_matrix(world: World) -> None:
    state = copied(world.small(gamma=0.0))
    profiles = state["embedding"][1 + 2 : 1 + 4]
    attended = attention(profiles[0], state["memory.keys"])
    assert attended is not None
    without = {name: tensor for name, tensor in state.items() if name != "memory.task"}
    without["task"] = recalled(state["memory.task"], attended)
    on = world.score_all(world.loaded(state), NEWCOMERS)
    off = world.score_all(world.loaded(without, task_memory=False), NEWCOMERS)
    is_first_kind = world.kind[NEWCOMERS] == 0
    assert on[is_first_kind] == pytest.approx(off[is_first_kind], abs=1e-5)
    assert np.abs(on - off)[~is_first_kind].max() > 1e-4


@pytest.mark.parametrize(
    "off", [{"feature_memory": False}, {"task_memory": False}, {"feature_memory": False, "task_memory": False}], ids=str
)
def test_switching_a_memory_off_in_training_changes_the_scores_and_the_weights(world: World, off: dict[str, bool]) -> None:
    complete, partial = world.small(tau=0.5), world.small(tau=0.5, **off)
    assert np.abs(world.score_all(complete, NEWCOMERS) - world.score_all(partial, NEWCOMERS)).max() > 1e-4
    names = set(partial.state_dict())
    assert ("memory.bias.user.0.weight" in names) == off.get("feature_memory", True)
    assert ("memory.task" in names) == off.get("task_memory", True) == ("task" not in names)
    assert ("memory.keys" in names) == (len(off) == 1)


# --- scores


def test_pairs_and_the_catalogue_users_by_number_and_by_profile_agree(world: World) -> None:
    model = world.small()
    users = world.users([90, -1, 3, 90, -1])
    items = np.random.default_rng(0).integers(0, N_ITEMS, (5, 7)).astype(np.int32)
    every_item = model.score_all(users, ALL_ITEMS)
    assert model.score_pairs(users, items) == pytest.approx(np.take_along_axis(every_item, items, axis=1), abs=1e-5)
    # The third one is user 90, too, but not known by that number; a history without labels changes nothing.
    mixed = UserSide(np.array([90, 3, -1], np.int32), world.users([90, 3, 90]).attributes, np.array([2], np.int32))
    scores = model.score_all(mixed, CANDIDATES)
    assert scores[:2] == pytest.approx(every_item[[0, 2]][:, CANDIDATES], abs=1e-5)
    assert scores[2] == pytest.approx(model.score_all(world.by_profile([90]), CANDIDATES)[0], abs=1e-6)
    assert np.abs(scores[0] - scores[2]).max() > 1e-4  # by their attributes alone nobody is adapted to
    assert model.score_all(users.slice(0, 0), ALL_ITEMS).shape == (0, N_ITEMS)


def test_only_profiles_tell_users_without_support_apart(world: World) -> None:
    model = world.small()
    scores = world.score_all(model, np.arange(N_TRAINED))
    kind = world.kind[:N_TRAINED]
    for number in (0, 1):
        assert np.ptp(scores[kind == number], axis=0).max() == 0
    assert np.abs(scores[kind == 0][0] - scores[kind == 1][0]).max() > 1e-4
    assert scores[0] == pytest.approx(model.score_all(world.by_profile([0]), ALL_ITEMS)[0])


def test_an_unknown_user_starts_from_the_profile_of_unknown_attributes(world: World) -> None:
    model = world.small()
    profile = model.state_dict()["embedding"][1]  # the first row of the users' only field
    start = model._local_start(attention(profile, model.state_dict()["memory.keys"]))
    expected = model._scores(start, profile, model._all_items())
    scores = world.score_all(model, [-1])
    assert np.isfinite(scores).all()
    assert scores[0] == pytest.approx(expected)


def test_ratings_may_come_in_any_order_and_other_data_may_be_attached(world: World) -> None:
    model = world.small()
    before, support = world.score_all(model, NEWCOMERS), world.support
    order = np.argsort(support.items, kind="stable")  # users are mixed, the ratings of each sorted
    backwards = Encoded(world.encoded.user, NO_CONTEXT, rows_of(world.encoded.item, ALL_ITEMS[::-1]))
    renumbered = (N_ITEMS - 1 - support.items[order]).astype(np.int32)
    model.attach(inputs_of(WITH_PROFILES, backwards, Ratings(support.users[order], renumbered, support.labels[order])))
    assert world.score_all(model, NEWCOMERS)[:, ::-1] == pytest.approx(before, abs=1e-5)


def test_over_other_items_users_are_adapted_on_the_items_of_training(world: World) -> None:
    model = world.small()
    scores = world.score_all(model, NEWCOMERS)
    chosen = np.array([20, 3, 7], np.int32)
    over = model.over(ItemSide(chosen, rows_of(world.encoded.item, chosen)))
    places = np.arange(3, dtype=np.int32)
    assert world.score_all(over, NEWCOMERS, places) == pytest.approx(scores[:, chosen], abs=1e-5)
    assert np.array_equal(world.score_all(model, NEWCOMERS), scores)


@pytest.mark.parametrize("output", ["regression", "classes"])
def test_ids_are_the_profile_where_there_is_nothing_else(output: Any) -> None:
    encoded = Encoded(table_of(IDS_ONLY.fields[:1], np.arange(6)), NO_CONTEXT, table_of(IDS_ONLY.fields[1:], np.arange(5)))
    model = Mamo(IDS_ONLY, k=4, output=output)
    users, items = np.repeat(np.arange(6), 5).astype(np.int32), np.tile(np.arange(5), 6).astype(np.int32)
    ratings = Ratings(users, items, (users % 2 + items % 3).astype(np.float32))
    model.attach(inputs_of(IDS_ONLY, encoded, ratings))
    model.run_epoch(ratings, 0, quiet)
    assert model.state_dict()["embedding"].shape == (1 + 8 + 7, 4)
    unknown = table_of(IDS_ONLY.fields[:1], np.array([0, 1, -2]))
    scores = model.score_all(UserSide(np.array([0, 1, -1], np.int32), unknown), np.arange(5, dtype=np.int32))
    assert np.isfinite(scores).all()
    assert np.abs(scores[0] - scores[1]).max() > 1e-6


def test_class_scores_are_expectations_and_unseen_labels_count_as_the_nearest_level(world: World) -> None:
    model = world.small(output="classes")
    state = copied(model)
    odds = np.exp(1.0)
    state["head.out.weight"] *= 0
    state["head.out.bias"] = torch.tensor([1.0, 0.0])
    model.load_state_dict(state)
    expected = (2 * odds + 4) / (odds + 1)
    assert world.score_all(model, [-1]) == pytest.approx(np.full((1, N_ITEMS), expected))
    labels = np.array([1.0, 2.9, 3.1, 9.0], np.float32)
    assert model._network.targets(labels, model.state_dict()).tolist() == [0, 0, 1, 1]


def test_scoring_writes_nothing(world: World) -> None:
    model = world.small()
    before = copied(model)
    world.score_all(model, NEWCOMERS)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


# --- epochs


def test_an_epoch_passes_over_single_ratings_and_reports_how_far_it_is(world: World) -> None:
    users = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4], np.int32)
    ratings = Ratings(users, np.arange(9, dtype=np.int32), world.truth[users, np.arange(9)])
    model = world.attached(k=4, tasks_per_batch=3)
    reports: list[tuple[int, int, float]] = []
    loss = model.run_epoch(ratings, 0, lambda *progress: reports.append(progress))
    assert [report[:2] for report in reports] == [(3, 4), (4, 4)]
    assert reports[-1][2] == loss
    single = Ratings(users[:2], ratings.items[:2], ratings.labels[:2])
    with pytest.raises(DataError, match="no user has two ratings"):
        model.run_epoch(single, 1, quiet)


def test_the_scale_of_the_first_epochs_labels_is_kept(world: World) -> None:
    model = world.trained(**SMALL)
    model.run_epoch(world.support, 1, quiet)
    state = model.state_dict()
    assert float(state["label.mean"]) == pytest.approx(world.tasks.labels.mean(), rel=1e-6)
    assert float(state["label.spread"]) == pytest.approx(world.tasks.labels.std(), rel=1e-6)
    assert len(state["label.levels"]) == 0


def test_equal_labels_have_a_spread_of_one(world: World) -> None:
    model = world.attached(k=4)
    model.run_epoch(Ratings(world.tasks.users, world.tasks.items, np.full_like(world.tasks.labels, 3)), 0, quiet)
    assert float(model.state_dict()["label.spread"]) == 1.0
    assert np.isfinite(world.score_all(model, NEWCOMERS, CANDIDATES)).all()


def test_the_same_seed_gives_the_same_scores_and_another_seed_others(world: World) -> None:
    scores, same, other = (world.score_all(world.small(seed=seed), NEWCOMERS) for seed in (1, 1, 2))
    assert np.array_equal(scores, same)
    assert np.abs(scores - other).max() > 1e-4


# --- saved and loaded


@pytest.mark.parametrize("options", [{}, {"output": "classes"}, {"task_memory": False}, {"feature_memory": False}], ids=str)
def test_saved_and_loaded_it_scores_and_goes_on_alike_to_the_bit(world: World, tmp_path: Path, options: dict[str, Any]) -> None:
    model = world.small(**options)
    save_file(model.state_dict(), tmp_path / "mamo.safetensors")
    loaded = world.loaded(load_file(tmp_path / "mamo.safetensors"), **options)
    users = np.append(NEWCOMERS, -1)
    assert np.array_equal(world.score_all(model, users), world.score_all(loaded, users))
    assert model.run_epoch(world.tasks, 1, quiet) == loaded.run_epoch(world.tasks, 1, quiet)
    assert np.array_equal(world.score_all(model, users), world.score_all(loaded, users))


def test_scores_follow_training_and_loading_and_loaded_weights_are_copies(world: World) -> None:
    model = world.small()
    state, scores = copied(model), world.score_all(model, NEWCOMERS)
    model.run_epoch(world.tasks, 1, quiet)
    later = world.score_all(model, NEWCOMERS)
    assert np.array_equal(later, world.score_all(world.loaded(model.state_dict()), NEWCOMERS))
    assert not np.array_equal(later, scores)
    model.load_state_dict(state)
    assert np.array_equal(world.score_all(model, NEWCOMERS), scores)
    model.run_epoch(world.tasks, 1, quiet)
    assert np.array_equal(world.score_all(world.loaded(state), NEWCOMERS), scores)


def test_weights_that_do_not_fit_are_refused(world: World) -> None:
    state = world.small().state_dict()
    with pytest.raises(ValueError, match=r"'embedding' has the shape \(13, 8\); expected \(13, 5\)"):
        Mamo(WITH_PROFILES, k=5, layers=1).load_state_dict(state)
    with pytest.raises(KeyError, match=r"user\.1\.weight"):
        Mamo(WITH_PROFILES, k=8, layers=2).load_state_dict(state)
    with pytest.raises(ValueError, match=r"'memory\.task' is no weight of this model"):
        Mamo(WITH_PROFILES, k=8, layers=1, task_memory=False).load_state_dict(state)


# --- refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k is 0; expected 1 or more."),
        ({"layers": 0}, "layers is 0; expected 1 or more."),
        ({"slots": 0}, "slots is 0; expected 1 or more."),
        ({"inner": -1}, "inner is -1; expected 1 or more."),
        ({"tasks_per_batch": 0}, "tasks_per_batch is 0; expected 1 or more."),
        ({"alpha": 1.5}, "alpha is 1.5; expected 0 to 1."),
        ({"beta": -0.1}, "beta is -0.1; expected 0 to 1."),
        ({"gamma": float("nan")}, "gamma is nan; expected 0 to 1."),
        ({"tau": -1.0}, "tau is -1; expected 0 or more."),
        ({"local_lr": 0.0}, "local_lr is 0; expected above 0."),
        ({"lr": float("inf")}, "lr is inf; expected above 0."),
        ({"seed": -1}, "seed is -1; expected 0 or more."),
        ({"output": "odds"}, "output is 'odds'; known: regression, classes."),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Mamo(WITH_PROFILES, **options)
    assert str(caught.value) == message


def test_rates_that_diverge_are_named(world: World) -> None:
    model = world.attached(k=4, local_lr=1e12)
    with pytest.raises(DataError, match=r"not finite; lower local_lr \(it is 1e\+12\) or lr \(it is 0\.05\)"):
        model.run_epoch(world.tasks, 0, quiet)


def test_what_has_learned_or_was_given_nothing_says_so(world: World) -> None:
    with pytest.raises(DataError, match="call attach first"):
        Mamo(WITH_PROFILES, k=4).run_epoch(world.tasks, 0, quiet)
    with pytest.raises(DataError, match="train it for an epoch first"):
        world.score_all(world.attached(k=4), NEWCOMERS, CANDIDATES)
