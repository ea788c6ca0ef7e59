"""Steps with histories in which the ids of all items are hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gmlfm.data.attributes import AttributeTable
from gmlfm.training.engines.history import HistoryEngine
from gmlfm.training.engines.history_catalogue import at_level_of, is_due, with_ids_dropped
from tests.training.test_history_level import Begun


class RecordingEngine(HistoryEngine):
    """Keeps of each step whether it hid ids."""

    hidden: list[bool]

    def step(self, batch: Any, *, hides: bool = False) -> float:
        self.hidden.append(hides)
        return super().step(batch, hides=hides)


def engine_of(begun: Begun, loss: str = "softmax") -> RecordingEngine:
    trainer = begun.trainer
    engine = RecordingEngine(trainer.model, trainer.rows, trainer.dense, loss, begun.batches)
    engine.hidden = []
    return engine


@pytest.mark.parametrize(("rate", "n_steps"), [(0.1, 10), (0.25, 8), (0.0, 20), (0.3, 100), (0.9, 100)])
def test_so_many_steps_hide_ids(rate: float, n_steps: int) -> None:
    due = [is_due(step, rate) for step in range(n_steps)]
    assert sum(due) == round(rate * n_steps)
    running = np.cumsum(due)
    assert np.abs(running - rate * np.arange(1, n_steps + 1)).max() <= 1


def test_a_quarter_as_many_steps_hide_ids() -> None:
    begun = Begun(batch_size=50)
    engine = engine_of(begun)
    batches = list(begun.batches.epoch(0))
    for batch in batches:
        ((_, n_rows),) = engine.run(batch, 50)
        assert n_rows == len(batch)
    assert engine.hidden.count(False) == len(batches)
    assert engine.hidden.count(True) == len(batches) // 4
    without = engine_of(Begun(batch_size=50, cold_start_rate=0.0))
    for batch in batches[:8]:
        list(without.run(batch, 50))
    assert not any(without.hidden)


@pytest.mark.parametrize("n_negatives", ["all", 40])
@pytest.mark.parametrize("model", ["fm", "gml-fm"])
def test_such_a_step_moves_no_row_of_an_items_id(model: str, n_negatives: Any) -> None:
    begun = Begun(model, n_negatives=n_negatives, weight_decay=0.0, batch_size=60, optimiser="sgd")
    engine, ids = engine_of(begun), begun.batches.ids
    item_rows = begun.encoded.item.ids[:, 0].astype(np.int64)
    colours = begun.encoded.item.ids[:, 1].astype(np.int64)
    before = begun.table.clone()
    batch = next(iter(begun.batches.epoch(1)))
    engine.step(batch, hides=True)
    is_moved = (begun.table != before).any(1).numpy()
    trained = item_rows[ids.trained_items]
    # Of the items that are scored; by own rows those of histories count, too, and no others.
    earlier = set(item_rows[batch.events]) if begun.model.earlier_by_own_rows else set()
    assert set(trained[is_moved[trained]]) <= earlier
    assert is_moved[colours].any()
    before = begun.table.clone()
    engine.step(next(iter(begun.batches.epoch(1))))
    is_moved = (begun.table != before).any(1).numpy()
    assert is_moved[trained].any()
    assert is_moved[ids.unknown_item] == begun.model.earlier_by_own_rows  # by which hidden ids count in histories


def test_items_stand_as_high_as_with_their_ids_and_differ_by_user_as_without() -> None:
    begun = Begun()
    users = torch.randn(9, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    ids = begun.encoded.item.ids[:12].copy()
    table = AttributeTable(ids, begun.encoded.item.values[:12])
    shown = begun.scorer.item_side_vectors(table)
    hidden = begun.scorer.item_side_vectors(table, begun.table[begun.batches.ids.unknown_item] + 1.0)
    level = at_level_of(shown, hidden, users)
    scores, teacher, student = (users @ side.vector.T + side.self_terms for side in (level, shown, hidden))
    torch.testing.assert_close(scores.mean(0), teacher.mean(0))
    torch.testing.assert_close(scores - scores.mean(0), student - student.mean(0))


def test_a_share_of_the_ids_is_dropped_but_never_of_some_items() -> None:
    items = AttributeTable(np.arange(2000, dtype=np.int32).reshape(1000, 2), np.ones((1000, 2), np.float32))
    rng = np.random.default_rng(0)
    some = with_ids_dropped(items, 5000, 0.3, 0, rng)
    is_dropped = some.ids[:, 0] == 5000
    assert 250 < is_dropped.sum() < 350
    assert np.array_equal(some.ids[~is_dropped], items.ids[~is_dropped])
    assert np.array_equal(some.ids[:, 1], items.ids[:, 1])
    everything = with_ids_dropped(items, 5000, 1.0, 0)
    assert everything.ids[:, 0].tolist() == [0] + [5000] * 999
    assert with_ids_dropped(items, 5000, 0.0, 0) is items
