"""Batches with histories against a loop over the training rows: who is a target, what came before, what is masked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm.data.attributes import PADDING, AttributeTable
from gmlfm.data.dataset import Dataset
from gmlfm.data.histories import Histories
from gmlfm.fitting.fit import make_plan
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.training.sampling.groups import IdRows
from gmlfm.training.sampling.history_batches import HistoryBatch, HistoryBatches, training_items
from gmlfm.training.settings import Settings
from tests.models.history_world import N_ROWS, N_USERS, QUICK, history_data


@dataclass(frozen=True)
class World:
    data: Dataset
    plan: MemoryPlan
    batches: HistoryBatches


def world(data: Dataset, split: str = "leave-one-out", **changes: Any) -> World:
    settings = Settings.make("fm", "topn", {**QUICK, "batch_size": 30, "piece": 3, "cold_start_rate": 0.0, **changes})
    plan = make_plan(data, settings, split, device="cpu")
    assert isinstance(plan, MemoryPlan)
    batches = plan.selection_inputs().batches()
    assert isinstance(batches, HistoryBatches)
    return World(data, plan, batches)


@dataclass(frozen=True)
class Row:
    """What a batch says of one target: what came before it, what of that counts, and what is masked."""

    user: int
    target: int
    history: list[int]
    window: list[int]
    masked: set[int]


def rows_of(world: World, batch: HistoryBatch) -> Iterator[Row]:
    attributes = world.batches.encoded.user
    for row in range(len(batch)):
        had, target = batch.had, int(batch.targets[row])
        before = slice(had.start[row], had.stop[row])
        # An event of the row's own pair may stand there: the target is never masked.
        earlier = [
            (item, is_had)
            for item, is_had in zip(had.items[before].tolist(), had.is_had[before].tolist(), strict=True)
            if not (world.batches.histories.excludes_own and item == target)
        ]
        same = (attributes.values == batch.users.values[row, : attributes.values.shape[1]]).all(1)
        user = int(np.flatnonzero(same & (attributes.ids == batch.users.ids[row, : attributes.ids.shape[1]]).all(1))[0])
        yield Row(
            user,
            target,
            [item for item, _ in earlier],
            batch.events[batch.row_start[row] : batch.row_stop[row]].tolist(),
            {item for item, is_had in earlier if is_had},
        )


def check_epoch(world: World, number: int = 0) -> int:
    """Every training row is a target once, with what a loop over the training rows says came before it. Returns how many rows
    have a history."""
    data, spec = world.data, world.batches.spec
    users, items, order = data.user_numbers.tolist(), data.item_numbers.tolist(), data.history_order.tolist()
    extra, extra_order = data.history_rows, data.history_rows_order.tolist()
    is_merged = data.schema.interactions.repeats == "merge"
    trained = world.plan.split.train.tolist()
    events = [(users[row], order[row], row, items[row], True) for row in trained if data.counts_as_history[row]]
    more = zip(extra["user"], extra["item"], extra["is_had"], extra_order, strict=True)
    events += [(user, moment, data.n_interactions, item, had) for user, item, had, moment in more]
    expected = []
    for row in trained:
        earlier = sorted(event for event in events if event[0] == users[row] and event[1] < order[row])
        earlier = [event for event in earlier if not (is_merged and event[3] == items[row])]
        expected.append((users[row], items[row], [(event[3], event[4] and is_merged) for event in earlier]))
    seen: list[tuple[int, int, list[int]]] = []
    for batch in world.batches.epoch(number):
        seen += [(row.user, row.target, row.history) for row in rows_of(world, batch)]
        for row in rows_of(world, batch):
            assert row.window == row.history[-spec.length :]
            ((_, _, truth),) = [
                other for other in expected if other[:2] == (row.user, row.target) and names(other) == row.history
            ]
            assert row.masked == {item for item, had in truth if had}
            assert row.target not in row.masked or not is_merged
        within = np.diff(batch.row_stop)[np.diff(np.repeat(np.arange(len(batch.pieces) - 1), np.diff(batch.pieces))) == 0]
        assert (within >= 0).all()
    assert sorted(seen) == sorted((user, item, [event for event, _ in history]) for user, item, history in expected)
    return sum(len(history) > 0 for _, _, history in seen)


def names(row: tuple[int, int, list[tuple[int, bool]]]) -> list[int]:
    return [item for item, _ in row[2]]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"ties": "file"},
    {"ties": "shuffle"},
    {"repeats": "keep"},
    {"event": "kind", "targets": ["buy"], "history_events": ["click", "buy"]},
    {"label": "stars", "positive": "stars >= 2"},
]


def unique_users(**changes: Any) -> Dataset:
    """Users are told apart by an attribute of their own."""
    data = history_data(context=False, **changes)
    return replace(data, users=replace(data.users, fields=pl.DataFrame({"age": np.arange(N_USERS, dtype=float)})))


@pytest.mark.parametrize("changes", SETTINGS)
@pytest.mark.parametrize("piece", [1, 4])
def test_every_row_is_a_target_with_the_rows_before_it(changes: dict[str, Any], piece: int) -> None:
    here = world(unique_users(**changes), piece=piece)
    assert check_epoch(here) > N_USERS * (N_ROWS - 5) // 2
    check_epoch(here, 1)


def test_targets_whose_kind_is_no_history_are_masked_all_the_same() -> None:
    here = world(unique_users(event="kind", targets=["buy"], history_events=["click"]))
    data, order = here.data, here.data.history_order
    trained = here.plan.split.train
    assert here.batches.had is not here.batches.histories
    n_masked = 0
    for batch in here.batches.epoch(0):
        for row in rows_of(here, batch):
            own = trained[data.user_numbers[trained] == row.user]
            (place,) = own[data.item_numbers[own] == row.target]
            earlier = set(data.item_numbers[own[order[own] < order[place]]].tolist())
            assert row.masked == earlier - {row.target}
            assert earlier.isdisjoint(row.window)
            n_masked += len(earlier)
    assert n_masked > len(trained)


def test_a_target_in_its_own_history_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    stops = Histories.stops
    monkeypatch.setattr(
        Histories, "stops", lambda histories, rows: np.minimum(stops(histories, rows) + 1, len(histories.items))
    )
    with pytest.raises((AssertionError, ValueError)):
        check_epoch(world(unique_users()))


def test_a_row_that_is_held_out_is_nobodys_history() -> None:
    here = world(history_data())
    held_out = {(int(here.data.user_numbers[row]), int(here.data.item_numbers[row])) for row in here.plan.split.test}
    histories = here.batches.histories
    owners = np.repeat(np.arange(N_USERS), np.diff(histories.starts))
    assert held_out.isdisjoint(zip(owners.tolist(), histories.items.tolist(), strict=True))


def test_epochs_differ_and_repeat_by_the_seed() -> None:
    first, again, other = (world(history_data(), seed=seed).batches for seed in (1, 1, 2))

    def targets(batches: HistoryBatches, epoch: int) -> list[int]:
        return np.concatenate([batch.targets for batch in batches.epoch(epoch)]).tolist()

    assert targets(first, 0) == targets(again, 0)
    assert targets(first, 0) != targets(first, 1)
    assert targets(first, 0) != targets(other, 0)
    masks = [np.concatenate([batch.is_kept for batch in first.epoch(epoch)]) for epoch in (0, 1)]
    assert len(masks[0]) != len(masks[1]) or (masks[0] != masks[1]).any()


def test_what_was_before_the_windows_is_not_copied() -> None:
    """But where a row's own pair is left out, whose window reaches further back by as much."""
    for changes, length in (({}, 2), ({}, 5), ({"ties": "file"}, 3)):
        here = world(unique_users(**changes), history_length=length, piece=3)
        for batch in here.batches.epoch(0):
            assert len(batch.events) <= len(batch) + length * (len(batch.pieces) - 1)
            assert all(
                (batch.had.stop - batch.had.start)[row] >= batch.row_stop[row] - batch.row_first[row] for row in range(3)
            )
        check_epoch(here)


def test_the_share_of_events_left_out() -> None:
    batches = world(history_data(), history_dropout=0.4).batches
    is_kept = np.concatenate([batch.is_kept for epoch in range(6) for batch in batches.epoch(epoch)])
    assert is_kept.mean() == pytest.approx(0.6, abs=0.05)
    assert all(batch.is_kept.all() for batch in world(history_data(), history_dropout=0.0).batches.epoch(0))


def test_a_piece_is_of_one_user_and_no_longer_than_asked() -> None:
    here = world(unique_users(), piece=4)
    lengths = []
    for batch in here.batches.epoch(0):
        users = [row.user for row in rows_of(here, batch)]
        for start, stop in zip(batch.pieces[:-1], batch.pieces[1:], strict=True):
            assert len(set(users[start:stop])) == 1
            lengths.append(stop - start)
    assert max(lengths) == 4
    assert all(
        batch.pieces.tolist() == list(range(len(batch) + 1)) for batch in world(unique_users(), piece=1).batches.epoch(0)
    )


def test_batches_are_about_as_large_as_asked_and_as_many_as_said() -> None:
    batches = world(history_data(), batch_size=20).batches
    sizes = [len(batch) for batch in batches.epoch(0)]
    assert sum(sizes) == batches.n_instances
    assert len(sizes) == batches.steps_per_epoch
    assert all(18 <= size <= 22 for size in sizes[:-1])
    automatic = world(history_data(), batch_size="auto").batches
    assert automatic.groups_per_step == 64


def test_weights_labels_and_context_stay_with_their_rows() -> None:
    data = history_data(weight="n")
    here = world(data)
    by_pair = {
        (int(user), int(item)): float(weight)
        for user, item, weight in zip(data.user_numbers, data.item_numbers, data.interactions["weight"], strict=True)
    }
    sides = {
        tuple(here.batches.encoded.user_side(data.user_numbers[[row]], np.array([row])).ids[0]) for row in range(len(by_pair))
    }
    for batch in here.batches.epoch(0):
        assert batch.weights is not None
        assert {tuple(ids) for ids in batch.users.ids} <= sides
    one_by_one = world(unique_users(weight="n"), batch_size=1, piece=1)
    for batch in one_by_one.batches.epoch(0):
        (row,) = rows_of(one_by_one, batch)
        assert batch.weights is not None
        assert batch.weights[0] == by_pair[row.user, row.target]


def test_negatives_of_rows_are_none_of_the_users_positives_and_stay_where_they_are_fixed() -> None:
    here = world(unique_users(), loss="bpr", n_negatives=3, fresh=False)
    positives: dict[int, set[int]] = {}
    for row in here.plan.split.train:
        positives.setdefault(int(here.data.user_numbers[row]), set()).add(int(here.data.item_numbers[row]))

    def negatives(epoch: int) -> dict[tuple[int, int], list[int]]:
        drawn = {}
        for batch in here.batches.epoch(epoch):
            assert batch.negatives is not None
            for row, items in zip(rows_of(here, batch), batch.negatives.tolist(), strict=True):
                assert positives[row.user].isdisjoint(items)
                drawn[row.user, row.target] = items
        return drawn

    assert negatives(0) == negatives(1)
    here = world(unique_users(), loss="bpr", n_negatives=3)
    assert negatives(0) != negatives(1)


@pytest.mark.parametrize("sells_once", [True, False])
def test_what_could_not_be_had_at_a_rows_time_is_no_negative(sells_once: bool) -> None:
    """Listing times hold in every split; sales where the split is by time."""
    data = history_data(items={"listed": "listed", "sells_once": sells_once}, repeats="keep", context=False)
    here = world(data, "global-time" if sells_once else "leave-one-out")
    assert here.plan.settings.batches.n_negatives == len(data.seen_items)
    listed = {item: 90 + 3 * int(data.items.ids[item][1:]) for item in range(len(data.items))}
    times, single = data.interactions["time"].to_numpy(), data.single_unit_items
    sold = {item: times[data.item_numbers == item].max(initial=0) for item in range(len(data.items))}
    order = here.batches._negatives
    assert order is not None
    n_checked = 0
    for place, row in enumerate(here.batches.rows):
        drawn = order.draw(here.batches._place_of_negatives[[place]], np.random.default_rng(place))[0]
        for item in drawn.tolist():
            n_checked += 1
            assert listed[item] <= times[row]
            assert not (sells_once and single[item] and sold[item] < times[row])
    assert n_checked > 1_000


def test_without_listing_times_what_was_sold_before_is_no_negative() -> None:
    rng = np.random.default_rng(1)
    n = 200
    rows = {
        "user": [f"u{user}" for user in rng.integers(0, 20, n)],
        "item": [f"i{item:03d}" for item in range(n)],
        "time": np.arange(n),
    }
    schema = {"interactions": {"user": "user", "item": "item", "time": "time"}, "items": {"id": "item", "sells_once": True}}
    items = pl.DataFrame({"item": [f"i{item:03d}" for item in range(n)]})
    here = world(Dataset.from_tables(pl.DataFrame(rows), items=items, schema=schema), "global-time")
    n_negatives = 0
    for batch in here.batches.epoch(0):
        assert batch.negatives is not None
        sold = here.data.places_in_time  # an item's number is that of its sale
        assert len(sold) == n
        assert (batch.negatives > batch.targets[:, None]).all()
        n_negatives += batch.negatives.size
    assert n_negatives > 1_000


def test_items_without_a_training_row_stand_at_the_negative_only_row() -> None:
    items = AttributeTable(np.array([[11, 18], [12, 19], [9, 18]], np.int32), np.array([[1, 1], [1, 1], [1, 1]], np.float32))
    trained_rows = np.zeros(30, bool)
    trained_rows[[11, 18]] = True
    ids = IdRows(1, 9, 10, np.array([True, False, False]), trained_rows)
    as_trained = training_items(items, ids)
    assert as_trained.ids[:, 0].tolist() == [11, 10, 10]
    assert as_trained.values.tolist() == [[1, 1], [1, 0], [1, 1]]  # a value that no trained item has stays out
    assert items.ids[1, 0] == 12
    assert (as_trained.ids != PADDING).all()


def test_users_whose_history_is_hidden_stand_at_the_newcomers_row() -> None:
    made = world(history_data(), cold_start_rate=0.5)
    assert made.batches.spec.newcomer is not None
    unknown, newcomer = made.batches.spec.newcomer
    n_newcomers = 0
    for batch in made.batches.epoch(0):
        is_newcomer, is_empty = batch.users.ids[:, 0] == newcomer, batch.row_start == batch.row_stop
        assert is_empty[is_newcomer].all()
        # The other empty ones are users' first rows.
        assert (batch.row_stop == batch.row_first)[is_empty & ~is_newcomer].all()
        assert (batch.users.ids[~is_newcomer, 0] == unknown).all()
        n_newcomers += int(is_newcomer.sum())
    assert 0.3 * N_USERS * N_ROWS < n_newcomers < 0.7 * N_USERS * N_ROWS
