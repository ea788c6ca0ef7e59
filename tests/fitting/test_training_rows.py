from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gmlfm import Dataset, Encoder
from gmlfm.fitting.training_rows import TrainingRows
from gmlfm.training.sampling.batches import RankingBatches
from gmlfm.training.sampling.history_batches import HistoryBatches
from gmlfm.training.settings import Settings
from tests.fitting.test_update import OLD, QUICK, data_of


@pytest.fixture(scope="module")
def data() -> Dataset:
    return data_of(OLD)


def batches_of(data: Dataset, rows: Any, targets: Any, **settings: Any) -> Any:
    made = Settings.make("fm", "topn", {**QUICK, **settings}).for_data(is_ordered=True, n_candidates=len(data.seen_items))
    encoder = Encoder.fit(data, rows, roles=made.history.roles)
    return TrainingRows(data, made, "none").batches(rows, encoder, encoder.encode(data), targets)


@pytest.mark.parametrize("settings", [{"history": "none"}, {"history": "past"}, {"history": "past", "loss": "bpr"}])
def test_steps_are_taken_for_targets_alone_and_all_learned_rows_are_known(data: Dataset, settings: dict[str, Any]) -> None:
    rows, targets = np.arange(100), np.array([7, 30, 31, 90])
    some, whole = batches_of(data, rows, targets, **settings), batches_of(data, rows, None, **settings)
    shown = set(zip(some.users.tolist(), some.items.tolist(), strict=True))
    assert shown == set(zip(data.user_numbers[targets].tolist(), data.item_numbers[targets].tolist(), strict=True))
    assert (some.ids.trained_items == whole.ids.trained_items).all()
    assert some.ids.trained_items.sum() == len(np.unique(data.item_numbers[rows]))
    if isinstance(some, RankingBatches):
        positives = {(user, item) for user, item in zip(data.user_numbers[rows], data.item_numbers[rows], strict=True)}
        drawn = some.negatives.of_epoch(0)
        assert drawn.shape == (4, 4)
        assert not any((some.users[row], item) in positives for row, items in enumerate(drawn) for item in items)
    else:
        assert isinstance(some, HistoryBatches)
        (batch,) = some.epoch(0)
        lengths = dict(zip(batch.targets.tolist(), (batch.row_stop - batch.row_first).tolist(), strict=True))
        for row in targets:
            user = data.user_numbers[row]
            assert lengths[int(data.item_numbers[row])] == (data.user_numbers[:row] == user).sum()


def test_without_targets_all_rows_are_shown(data: Dataset) -> None:
    assert batches_of(data, np.arange(100), None, history="past").n_instances == 100
