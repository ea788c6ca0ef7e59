"""The level of unknown items of models that read histories: set from scores that plain loops would give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset
from gmlfm.data.attributes import AttributeTable
from gmlfm.fitting import Refit
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models.base import ItemSide, UserSide
from gmlfm.training.history_level import HistoryLevel, _is_owned
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.history_batches import HistoryBatches
from gmlfm.training.sampling.new_items import NewItems
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import NullObserver


def renewed_shop() -> Dataset:
    """300 users; items come one after another and are asked for while they are young; each has a colour and a size."""
    rng = np.random.default_rng(2)
    times = np.sort(rng.random(4_000))
    items = np.floor((times - rng.exponential(0.3, 4_000)) * 150).astype(int)
    table = pl.DataFrame({"u": rng.integers(0, 300, 4_000), "i": items, "t": (times * 1e9).astype(int)})
    table, numbers = table.unique(["u", "i"], keep="first", maintain_order=True), np.unique(items)
    catalogue = pl.DataFrame(
        {"i": numbers, "colour": [f"colour {n % 7}" for n in numbers], "size": rng.normal(size=len(numbers))}
    )
    schema: dict[str, Any] = {"interactions": {"user": "u", "item": "i", "time": "t"}}
    schema["items"] = {"id": "i", "fields": {"colour": "category", "size": "number"}}
    return Dataset.from_tables(table, items=catalogue, schema=schema)


class Begun:
    """A model with a history, trained for an epoch."""

    def __init__(self, model: str = "fm", **options: Any) -> None:
        values = {"k": 6, "threads": 1, "cold_start_rate": 0.25, "history": "last,recent,past", **options}
        settings = Settings.make(model, "topn", values)
        plan = MemoryPlan(renewed_shop(), settings, "leave-one-out", {}, "cpu")
        inputs = plan.selection_inputs()
        self.settings, self.encoded = plan.settings, inputs.encoded
        self.batches: HistoryBatches = inputs.batches()
        self.model: Any = plan.settings.build(inputs.layout)
        self.model.attach(inputs)
        fields = inputs.layout.field_of_row()
        self.trainer = RowTrainer(self.model, inputs.layout.n_rows, plan.settings.training, self.batches, field_of_row=fields)
        self.table = self.trainer.table
        for batch in self.batches.epoch(0):
            list(self.trainer.engine.run(batch, self.batches.groups_per_step))
        self.model.eval()

    def level(self, epoch: int = 0) -> HistoryLevel:
        return HistoryLevel(self.model, self.table, self.batches, epoch)

    def scores(self, users: UserSide, items: np.ndarray, *, hides: bool) -> np.ndarray:
        """Of users with what they did; hides: the items that are scored, not those that users had, with their ids hidden."""
        ids = self.encoded.item.ids[items]
        if hides:
            ids[:, 0] = self.batches.ids.unknown_item
        self_terms, vectors = self.scorer.user_vectors(users)
        sides = self.scorer.item_side_vectors(AttributeTable(ids, self.encoded.item.values[items]))
        with torch.no_grad():
            return (self_terms.unsqueeze(1) + vectors @ sides.vector.T + sides.self_terms).numpy()

    @property
    def scorer(self) -> Any:
        return self.model.over(ItemSide(np.arange(len(self.encoded.item), dtype=np.int32), self.encoded.item)).scorer


@pytest.mark.parametrize("model", ["fm", "gml-fm", "transfm"])
@pytest.mark.parametrize("of_choices", [0.1, 0.4])
def test_after_an_epoch_unknown_items_have_the_places_that_new_ones_had(model: str, of_choices: float) -> None:
    begun = Begun(model)
    begun.batches.ids = replace(begun.batches.ids, new_items=NewItems(of_choices, of_candidates=0.25))
    before = begun.table.clone()
    list(begun.level().end())
    changed = (before != begun.table).any(1).nonzero().flatten().tolist()
    assert changed == [begun.batches.ids.unknown_item]
    items = np.flatnonzero(begun.batches.ids.trained_items).astype(np.int32)
    users = begun.batches.draw_users(200, np.random.default_rng(9))
    known, unknown = (begun.scores(users, items, hides=hides) for hides in (False, True))
    is_owned = _is_owned(users, len(begun.encoded.item))[:, items]
    known[is_owned] = unknown[is_owned] = -np.inf
    n_new = round(len(items) / 3)
    shares = []
    for seed in range(20):  # which of the known items stand for new ones is drawn
        chosen = np.random.default_rng(seed).permutation(len(items))[:n_new]
        places = np.argsort(-np.concatenate([known, unknown[:, chosen]], axis=1), axis=1)[:, :10]
        shares.append((places >= len(items)).mean())
    assert np.mean(shares) == pytest.approx(of_choices, abs=0.13)


def test_a_pair_of_vectors_scores_as_the_model_does() -> None:
    begun = Begun("gml-fm")
    items = np.arange(20, dtype=np.int32)
    users = begun.batches.draw_users(30, np.random.default_rng(0))
    by_vectors = begun.scores(users, items, hides=False)
    np.testing.assert_allclose(by_vectors, begun.model.score_all(users, items), rtol=1e-3, atol=1e-4)


def test_users_are_drawn_with_all_that_training_shows_of_them() -> None:
    begun = Begun()
    batches = begun.batches
    users = batches.draw_users(40, np.random.default_rng(3))
    assert len(set(users.numbers.tolist())) == 40
    assert users.history is not None
    for place, user in enumerate(users.numbers):
        expected = batches.items[batches.users == user].tolist()
        assert users.history.of_user(place).tolist() == expected


@pytest.mark.parametrize("new_items", [None, NewItems(0.0, 0.2), NewItems(0.2, 1.0)])
def test_unknown_items_stand_at_the_mean_row_where_nothing_is_known_of_new_ones(new_items: NewItems | None) -> None:
    begun = Begun()
    begun.batches.ids = replace(begun.batches.ids, new_items=new_items)
    list(begun.level().end())
    trained = begun.encoded.item.ids[begun.batches.ids.trained_items, 0].astype(np.int64)
    torch.testing.assert_close(begun.table[begun.batches.ids.unknown_item], begun.table[trained].mean(0))


def test_under_other_losses_the_row_is_learned_and_moved_alone() -> None:
    begun = Begun(loss="squared", n_negatives=4)
    unknown = begun.batches.ids.unknown_item
    before = begun.table[unknown].clone()
    list(begun.level().end())
    step = begun.table[unknown] - before
    assert float(step.norm()) > 0
    begun.batches.ids = replace(begun.batches.ids, new_items=None)
    before = begun.table.clone()
    list(begun.level().end())
    assert begun.table.equal(before)


def test_the_row_is_left_alone_where_no_ids_are_hidden() -> None:
    begun = Begun()
    assert HistoryLevel.is_open(begun.model, begun.batches)
    assert not HistoryLevel.is_open(begun.model, Begun(cold_start_rate=0.0).batches)
    assert not HistoryLevel.is_open(Begun("nfm", k=4).model, begun.batches)


def test_new_items_are_counted_in_training_rows_alone() -> None:
    data = renewed_shop()
    plain, with_history = (
        MemoryPlan(data, Settings.make("fm", "topn", {"k": 4, "history": history}), "global-time", {}, "cpu")
        for history in ("none", "last")
    )
    for refit in (Refit.NONE, Refit.VALIDATION):
        inputs = [
            plan.selection_inputs() if refit is Refit.NONE else plan.refit_inputs(refit) for plan in (plain, with_history)
        ]
        expected, counted = (each.batches().ids.new_items for each in inputs)
        assert counted == expected
        assert counted.of_choices > 0.05


def test_an_epoch_of_training_sets_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done = Begun(), []
    monkeypatch.setattr(HistoryLevel, "_set_level", lambda level: done.append(level))
    begun.trainer.run_epoch(NullObserver())
    assert len(done) == 1
