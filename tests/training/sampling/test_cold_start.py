"""Meetings by which training imitates newcomers."""

from __future__ import annotations

import numpy as np

from gmlfm.data.encoding import Encoder
from gmlfm.data.splits import make_split
from gmlfm.training.sampling.batches import BatchOptions, RankingBatches
from gmlfm.training.sampling.cold_start import ByUser, Grid
from gmlfm.training.sampling.groups import IdRows
from gmlfm.training.sampling.negatives import TrainingNegatives, training_sampler
from tests.contracts.checkerboard import checkerboard


def batches(cold_start_rate: float = 0.1) -> RankingBatches:
    data = checkerboard()
    split = make_split(data, "newcomers", share=0.2, validation_share=0.1)
    rows = split.train
    encoder = Encoder.fit(data, rows)
    encoded = encoder.encode(data)
    users, items = data.user_numbers[rows], data.item_numbers[rows]
    negatives = TrainingNegatives(training_sampler(data, split), users, 3)
    ids, options = IdRows.of(encoder, items, encoded.item), BatchOptions(n_negatives=3, cold_start_rate=cold_start_rate)
    return RankingBatches(users, items, rows, encoded, ids, negatives, options, None, data.places_in_time[rows])


def test_the_latest_row_is_the_latest_in_time() -> None:
    users = np.array([3, 1, 3, 1, 3, 7], np.int32)
    times = np.array([5, 2, 9, 1, 7, 0])
    by_user = ByUser.of(users, times)
    everyone = np.arange(3)
    assert by_user.latest(everyone).tolist() == [1, 2, 5]
    assert ByUser.of(users, None).latest(everyone).tolist() == [3, 4, 5]  # the last one listed
    rng = np.random.default_rng(0)
    drawn = np.array([by_user.one_each(everyone, rng) for _ in range(300)])
    assert set(drawn[:, 0]) == {1, 3}
    assert set(drawn[:, 1]) == {0, 2, 4}
    assert set(drawn[:, 2]) == {5}


def test_latest_choices_hide_the_user_and_strip_what_nobody_chose() -> None:
    training = batches()
    cold_start_sampler = training.cold_start_sampler(0)
    assert cold_start_sampler is not None
    batch = cold_start_sampler.latest()
    ids = training.ids
    assert len(batch) == len(np.unique(training.users))
    assert (batch.user_ids[:, 0] == ids.unknown_user).all()
    assert (batch.user_ids[:, 1] > 0).all()  # her attributes stay
    latest = training._by_user.latest(np.arange(len(batch)))
    assert batch.item_ids[:, 0, 0].tolist() == training.encoded.item.ids[training.items[latest], 0].tolist()
    unknown = batch.item_ids[..., 0] == ids.unknown_item
    assert unknown.any()
    assert not unknown[:, 0].any()
    assert (batch.item_x[unknown, 1:] == 0).all()
    assert (batch.item_x[unknown, 0] == 1).all()
    assert not (batch.item_ids[..., 0] == ids.negative_only_row).any()
    assert set(np.unique(batch.labels)) == {-1.0, 1.0}


def test_random_meetings_are_of_what_training_knows_and_come_again() -> None:
    training = batches()
    cold_start_sampler, again, later = (
        training.cold_start_sampler(0),
        training.cold_start_sampler(0),
        training.cold_start_sampler(1),
    )
    assert cold_start_sampler is not None
    assert again is not None
    assert later is not None
    grid = Grid(n_users=20, rows=3)
    batch = cold_start_sampler.at_random(9, grid)
    assert batch.item_ids.shape[:2] == batch.labels.shape == (9 * 20 * 3, 4)
    known = training.encoded.item.ids[training.ids.trained_items, 0]
    assert set(batch.item_ids[..., 0].ravel()) == set(known)
    # In a step all users meet the same items, each user in her own groups, one after another.
    user_side, item_side = batch.user_ids.reshape(9, 20, 3, -1), batch.item_ids.reshape(9, 20, 3, 4, -1)
    assert (user_side == user_side[:, :, :1]).all()
    assert (item_side == item_side[:, :1]).all()
    assert not (item_side[0] == item_side[1]).all()
    assert set(user_side[..., 0].ravel()) <= set(training.encoded.user.ids[training.users, 0])
    assert np.array_equal(again.at_random(9, grid).item_ids, batch.item_ids)
    assert not np.array_equal(later.at_random(9, grid).item_ids, batch.item_ids)
    assert batches(cold_start_rate=0.0).cold_start_sampler(0) is None


def test_a_grid_fills_a_step_and_has_users_to_compare() -> None:
    assert Grid.within(819, 5) == (68, 12)
    assert Grid.within(51, 5) == (51, 1)
    assert Grid.within(4096, 1) == (68, 60)
    assert Grid.within(1, 100) == (1, 1)
