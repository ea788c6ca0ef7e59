"""Batches by which training imitates newcomers."""

from __future__ import annotations

import numpy as np

from gmlfm.data.splits import make_split
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.training.sampling.batches import RankingBatches
from gmlfm.training.sampling.cold_start import Grid, RowsByUser
from gmlfm.training.settings import Settings
from tests.contracts.checkerboard import checkerboard


def ranking(cold_start_rate: float = 0.1) -> RankingBatches:
    given = {"history": "none", "n_negatives": 3, "cold_start_rate": cold_start_rate}
    settings = Settings.make("gml-fm", "topn", given)
    options = {"share": 0.2, "validation_share": 0.1}
    batches = MemoryPlan(checkerboard(), settings, "newcomers", options, "cpu").selection_inputs().batches()
    assert isinstance(batches, RankingBatches)
    return batches


def test_the_latest_row_is_the_latest_in_time() -> None:
    users = np.array([3, 1, 3, 1, 3, 7], np.int32)
    times = np.array([5, 2, 9, 1, 7, 0])
    by_user = RowsByUser.sort(users, times)
    all_users = np.arange(3)
    assert by_user.latest_row(all_users).tolist() == [1, 2, 5]
    assert RowsByUser.sort(users, None).latest_row(all_users).tolist() == [3, 4, 5]  # the last one listed
    rng = np.random.default_rng(0)
    drawn = np.array([by_user.draw_row(all_users, rng) for _ in range(300)])
    assert set(drawn[:, 0]) == {1, 3}
    assert set(drawn[:, 1]) == {0, 2, 4}
    assert set(drawn[:, 2]) == {5}


def test_latest_choices_hide_the_user_and_strip_what_nobody_chose() -> None:
    batches = ranking()
    sampler = batches.cold_start_sampler(0)
    assert sampler is not None
    batch = sampler.latest()
    ids = batches.ids
    assert len(batch) == len(np.unique(batches.users))
    assert (batch.user_ids[:, 0] == ids.unknown_user).all()
    assert (batch.user_ids[:, 1] > 0).all()  # the user's attributes stay
    latest = sampler.by_user.latest_row(np.arange(len(batch)))
    assert batch.item_ids[:, 0, 0].tolist() == batches.encoded.item.ids[batches.items[latest], 0].tolist()
    is_unknown = batch.item_ids[..., 0] == ids.unknown_item
    assert is_unknown.any()
    assert not is_unknown[:, 0].any()
    assert (batch.item_x[is_unknown, 1:] == 0).all()
    assert (batch.item_x[is_unknown, 0] == 1).all()
    assert not (batch.item_ids[..., 0] == ids.negative_only_row).any()
    assert set(np.unique(batch.labels)) == {-1.0, 1.0}


def test_latest_choices_are_the_latest_in_the_datas_time() -> None:
    data = checkerboard()
    split = make_split(data, "newcomers", share=0.2, validation_share=0.1)
    sampler = ranking().cold_start_sampler(0)
    assert sampler is not None
    rows = split.train[sampler.by_user.latest_row(np.arange(len(sampler.by_user.starts)))]
    for row in rows:
        of_user = split.train[data.user_numbers[split.train] == data.user_numbers[row]]
        assert data.places_in_time[row] == data.places_in_time[of_user].max()


def test_grids_are_of_what_training_knows_and_come_again() -> None:
    batches = ranking()
    sampler, repeated, later = (batches.cold_start_sampler(epoch) for epoch in (0, 0, 1))
    assert sampler is not None
    assert repeated is not None
    assert later is not None
    grid = Grid(n_users=20, n_groups=3)
    batch = sampler.draw_grid(9, grid)
    assert batch.item_ids.shape[:2] == batch.labels.shape == (9 * 20 * 3, 4)
    trained_rows = batches.encoded.item.ids[batches.ids.trained_items, 0]
    assert set(batch.item_ids[..., 0].ravel()) == set(trained_rows)
    # In a step all users meet the same items, each user in their own groups, one after another.
    user_side, item_side = batch.user_ids.reshape(9, 20, 3, -1), batch.item_ids.reshape(9, 20, 3, 4, -1)
    assert (user_side == user_side[:, :, :1]).all()
    assert (item_side == item_side[:, :1]).all()
    assert not (item_side[0] == item_side[1]).all()
    assert set(user_side[..., 0].ravel()) <= set(batches.encoded.user.ids[batches.users, 0])
    assert np.array_equal(repeated.draw_grid(9, grid).item_ids, batch.item_ids)
    assert not np.array_equal(later.draw_grid(9, grid).item_ids, batch.item_ids)
    assert ranking(cold_start_rate=0.0).cold_start_sampler(0) is None


def test_a_grid_fills_a_step_and_has_users_to_compare() -> None:
    assert Grid.within(819, 5) == (68, 12)
    assert Grid.within(51, 5) == (51, 1)
    assert Grid.within(4096, 1) == (68, 60)
    assert Grid.within(1, 100) == (1, 1)
