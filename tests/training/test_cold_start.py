"""Training for newcomers: hidden items learn what the model says of known ones, the unknown user what users chose last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset
from gmlfm.fitting import Refit
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models import frozen
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.training import cold_start
from gmlfm.training.cold_start import ColdStartTrainer, fit_unknown_user, move_unknown_item
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.objectives import OBJECTIVES
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.batches import RankingBatches
from gmlfm.training.sampling.cold_start import ColdStartSampler, Grid
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.sampling.new_items import NewItems
from gmlfm.training.settings import Settings
from tests.contracts.checkerboard import checkerboard


class Begun:
    """A model somewhat trained on the checkerboard, and what it was trained with."""

    def __init__(self, model: str = "gml-fm", **options: Any) -> None:
        values = {"k": 6, "threads": 1, "cold_start_rate": 0.25, "batch_size": 80, "v_scale": 0.3, **options}
        values |= {"history": "none"} if model in ("fm", "gml-fm") else {}
        settings = Settings.make(model, "topn", {name: value for name, value in values.items() if value is not None})
        self.plan = MemoryPlan(checkerboard(), settings, "newcomers", {"share": 0.2, "validation_share": 0.1}, "cpu")
        inputs = self.plan.selection_inputs()
        self.batches: RankingBatches = inputs.batches()
        self.field_of_row = inputs.layout.field_of_row()
        self.model = settings.build(inputs.layout)
        assert isinstance(self.model, GradientModel)
        if self.model.inputs.graph:
            user_rows, item_rows = (
                inputs.encoded.user.ids[self.batches.users, 0],
                inputs.encoded.item.ids[self.batches.items, 0],
            )
            self.model.set_graph(user_rows.astype(np.int64), item_rows.astype(np.int64))
        n_rows = inputs.layout.n_rows
        self.trainer = RowTrainer(self.model, n_rows, settings.training, self.batches, field_of_row=self.field_of_row)
        self.table = self.trainer.table
        for batch in self.batches.epoch(0):
            list(self.trainer.engine.run(batch, self.batches.groups_per_step))

    def sampler(self, epoch: int = 0) -> ColdStartSampler:
        sampler = self.batches.cold_start_sampler(epoch)
        assert sampler is not None
        return sampler

    @property
    def latest(self) -> DeviceBatch:
        return DeviceBatch.upload(self.sampler().latest(), torch.device("cpu"))

    def fields(self, ids: torch.Tensor) -> torch.Tensor | None:
        return torch.from_numpy(self.field_of_row).long()[ids] if self.model.needs_fields else None

    def cold_start_trainer(self, engine: Any, size: int = 16) -> ColdStartTrainer:
        return ColdStartTrainer(self.model, self.table, engine, size, self.sampler(), self.field_of_row, "squared")

    def scores_of(self, batch: Batch) -> np.ndarray:
        user_side = Attributes(torch.from_numpy(batch.user_ids).long(), torch.from_numpy(batch.user_x))
        item_side = Attributes(torch.from_numpy(batch.item_ids).long(), torch.from_numpy(batch.item_x))
        with torch.no_grad():
            scores: np.ndarray = self.model.scores(self.model.transform_rows(self.table), user_side, item_side).numpy()
        return scores


class RecordingEngine:
    """Takes no steps, and keeps what it was called with."""

    takes_device_batches = False

    def __init__(self) -> None:
        self.calls: list[tuple[Batch, int, str | None]] = []

    def run(self, batch: Batch, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        self.calls.append((batch, groups_per_step, loss))
        yield 0.0, batch.labels.size


def test_a_quarter_as_many_steps_hide_ids_and_teach_tastes() -> None:
    begun, engine = Begun(), RecordingEngine()
    trainer = begun.cold_start_trainer(engine)
    for _ in range(10):
        list(trainer.after(5 * 16))  # 1.25 steps are due each time
    assert sum(len(batch) for batch, _, _ in engine.calls) == 12 * 16
    sampler, grid = begun.sampler(), Grid.within(16, 5)
    shown, (hidden, size, loss) = sampler.draw_grid(1, grid), engine.calls[0]
    assert (size, loss, grid) == (16, "squared", (16, 1))
    assert (hidden.item_ids[..., 0] == sampler.ids.unknown_item).all()
    assert np.array_equal(hidden.item_ids[..., 1:], shown.item_ids[..., 1:])
    assert (hidden.user_ids[:5, 0] == sampler.ids.unknown_user).all()
    assert np.array_equal(hidden.user_ids[5:], shown.user_ids[5:])
    teacher, student = (begun.scores_of(batch) for batch in (shown, hidden))
    for users in (slice(5), slice(5, None)):
        # As far as users differ, what the teacher says with the ids in sight; on the whole, as high as the item in the middle.
        by_item, current = teacher[users].mean(0), student[users].mean(0)
        expected = teacher[users] - by_item + current - current.mean() + np.median(by_item)
        np.testing.assert_allclose(hidden.labels[users], expected, rtol=1e-4, atol=1e-5)
    assert np.abs(hidden.labels - student).max() > 1e-2
    assert begun.model.training  # dropout is back for the step


def test_hidden_ids_learn_tastes() -> None:
    """A third of an epoch's steps, again and again: the student's scores come to differ by user as the teacher's do."""
    begun = Begun(lr=0.01)
    sampler, grid = begun.sampler(9), Grid(60, 4)
    shown = sampler.draw_grid(1, grid)
    item_ids = shown.item_ids.copy()
    item_ids[..., 0] = sampler.ids.unknown_item
    hidden = replace(shown, item_ids=item_ids)

    def distance() -> float:
        teacher, student = (begun.scores_of(batch).reshape(60, -1) for batch in (shown, hidden))
        return float(((teacher - teacher.mean(0)) - (student - student.mean(0))).std() / (teacher - teacher.mean(0)).std())

    before = distance()
    for _ in range(15):
        list(begun.cold_start_trainer(begun.trainer.engine).after(16 * 80))
    assert distance() < 0.8 * before
    middle = np.median(begun.scores_of(shown).reshape(60, -1).mean(0))
    assert abs(float(begun.scores_of(hidden).mean()) - middle) < 0.5


def test_an_epoch_too_short_for_a_step_has_one() -> None:
    begun, engine = Begun(), RecordingEngine()
    trainer = begun.cold_start_trainer(engine)
    list(trainer.after(16))
    assert not engine.calls
    list(trainer.end())
    assert len(engine.calls) == 1


MODELS: list[tuple[str, dict[str, Any]]] = [
    ("gml-fm", {}),
    ("gml-fm-unit", {}),
    ("fm", {"loss": "logistic", "v_scale": None}),
    ("bpr-mf", {"v_scale": None}),
    ("transfm", {"loss": "softmax", "v_scale": None}),
    ("ngcf", {"v_scale": None}),
    ("xdeepfm", {"v_scale": None}),
]


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_the_unknown_users_row_is_fitted_and_nothing_else_moves(name: str, options: dict[str, Any]) -> None:
    begun = Begun(name, **options)
    model, table, batch = begun.model, begun.table, begun.latest
    model.eval()
    loss, row = begun.plan.settings.training.loss, int(batch.user_ids[0, 0])

    def objective() -> float:
        user_ids, item_ids = batch.user_ids.long(), batch.item_ids.long()
        attributes = (
            Attributes(user_ids, batch.user_x, begun.fields(user_ids)),
            Attributes(item_ids, batch.item_x, begun.fields(item_ids)),
        )
        scores = frozen.frozen_scores(model, table, *attributes)
        return float(OBJECTIVES[loss](scores, batch.labels, batch.weights) + 0.05 * table[row].square().sum())

    before, dense, value = table.clone(), {key: tensor.clone() for key, tensor in model.dense_state().items()}, objective()
    fit_unknown_user(model, table, batch, loss, begun.fields)
    assert objective() < value - 1e-6
    moved = (table != before).any(1).nonzero().flatten().tolist()
    assert moved == [row]
    assert all(tensor.equal(dense[key]) for key, tensor in model.dense_state().items())
    # Again from there, it hardly moves: that is the least there is.
    least = objective()
    for _ in range(5):
        fit_unknown_user(model, table, batch, loss, begun.fields)
    assert objective() >= least - 0.02 * (value - least)


@pytest.mark.parametrize("name", ["gml-fm", "gml-fm-unit", "gml-fm-md", "fm", "transfm", "mf"])
def test_scores_looked_up_are_the_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Begun(name, **({} if name.startswith("gml") else {"v_scale": None}))
    batch = DeviceBatch.upload(begun.sampler(3).draw_grid(2, Grid(20, 3)), torch.device("cpu"))
    user_side, item_side = (
        Attributes(ids.long(), x) for ids, x in ((batch.user_ids, batch.user_x), (batch.item_ids, batch.item_x))
    )
    calls: list[Any] = []
    by_table = frozen._by_table
    monkeypatch.setattr(frozen, "_by_table", lambda *arguments: calls.append(arguments) or by_table(*arguments))
    scores = frozen.frozen_scores(begun.model, begun.table, user_side, item_side)
    assert calls
    with torch.no_grad():
        expected = begun.model.scores(begun.model.transform_rows(begun.table), user_side, item_side)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gml-fm", "gml-fm-unit", "transfm", "mf"])
def test_a_rows_pairs_as_the_whole_score(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Begun(name, **({} if name.startswith("gml") else {"v_scale": None}))
    model, table, batch = begun.model, begun.table, begun.latest
    model.eval()
    user_side, item_side = (
        Attributes(ids.long(), x) for ids, x in ((batch.user_ids, batch.user_x), (batch.item_ids, batch.item_x))
    )
    row, values = int(batch.user_ids[0, 0]), torch.linspace(-0.5, 0.5, table.shape[1])
    quick = frozen.scores_of_row(model, table, row, user_side, item_side)(values)
    monkeypatch.setattr(
        frozen, "row_scores_by_pairs", lambda model, rows, start, users, items: frozen.row_scores(model, rows, users, items)
    )
    slow = frozen.scores_of_row(model, table, row, user_side, item_side)(values)
    changed = table.clone()
    changed[row] = values
    torch.testing.assert_close(quick, slow, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slow, frozen.frozen_scores(model, changed, user_side, item_side), rtol=1e-4, atol=1e-5)


def test_a_row_that_becomes_no_number_stays_as_it_was() -> None:
    begun = Begun()
    batch, table = begun.latest, begun.table
    row = int(batch.user_ids[0, 0])
    table[int(batch.item_ids[0, 0, 0])] = float("nan")
    before = table[row].clone()
    fit_unknown_user(begun.model, table, batch, "squared", begun.fields)
    assert table[row].equal(before)


def test_tastes_are_taught_at_the_median_items_height_unless_the_level_is_set_otherwise() -> None:
    teacher, student = torch.linspace(-1, -0.8, 12).view(1, 3, 4), torch.full((1, 3, 4), -0.5)
    at_median, as_high = (cold_start._targets(teacher, student, keeps_level) for keeps_level in (False, True))
    assert at_median.mean().item() == pytest.approx(teacher.mean(1).median().item())
    assert as_high.mean().item() == pytest.approx(-0.5)
    torch.testing.assert_close(at_median - at_median.mean(), as_high - as_high.mean())


@pytest.mark.parametrize("name", ["gml-fm", "gml-fm-unit", "fm", "mf", "transfm", "ngcf", "deepfm"])
@pytest.mark.parametrize("by", [0.4, -0.3])
def test_the_unknown_item_is_moved_and_nothing_else(name: str, by: float) -> None:
    begun = Begun(name, v_scale=None)
    model, table = begun.model, begun.table
    model.eval()
    batch, _ = begun.sampler().draw_rankings()
    batch.item_ids[..., 0] = begun.batches.ids.unknown_item
    users = Attributes(torch.from_numpy(batch.user_ids).long(), torch.from_numpy(batch.user_x))
    items = Attributes(torch.from_numpy(batch.item_ids).long(), torch.from_numpy(batch.item_x))
    users, items = (
        replace(side, fields=begun.fields(side.ids)) if begun.model.needs_fields else side for side in (users, items)
    )
    before, mean = table.clone(), float(frozen.frozen_scores(model, table, users, items).mean())
    move_unknown_item(model, table, users, items, by)
    tolerance = 0.1 if name == "ngcf" else 0.005  # its slope changes where an activation does
    assert float(frozen.frozen_scores(model, table, users, items).mean()) == pytest.approx(mean + by, abs=tolerance)
    moved = (table != before).any(1).nonzero().flatten().tolist()
    assert moved == [begun.batches.ids.unknown_item]


LOSSES = [("fm", "squared"), ("fm", "logistic"), ("fm", "softmax"), ("gml-fm", "squared"), ("gml-fm-unit", "squared")]


@pytest.mark.parametrize(("model", "loss"), LOSSES)
def test_after_an_epoch_unknown_items_have_the_places_that_new_ones_had(model: str, loss: str) -> None:
    """With the known items that stand for new ones hidden, they have their share of the first places, under any loss."""
    begun = Begun(model, loss=loss, v_scale=None)
    new_items = NewItems(of_choices=0.3, of_candidates=0.25)
    begun.batches.ids = replace(begun.batches.ids, new_items=new_items)
    list(begun.cold_start_trainer(begun.trainer.engine).end())
    batch, is_owned = begun.sampler().draw_rankings()
    hidden = replace(batch, item_ids=batch.item_ids.copy())
    hidden.item_ids[..., 0] = begun.batches.ids.unknown_item
    known, unknown = begun.scores_of(batch), begun.scores_of(hidden)
    known[is_owned] = unknown[is_owned] = -np.inf
    n_new = round(known.shape[1] / 3)
    places = np.argsort(-np.concatenate([known, unknown[:, :n_new]], axis=1), axis=1)[:, :10]
    assert (places >= known.shape[1]).mean() == pytest.approx(0.3, abs=0.12)


def test_the_level_is_the_same_whatever_is_trained_on() -> None:
    """Estimated from training rows alone: without refit, with it, and with all rows; held-out items have no part in it."""
    data = renewed_shop()
    estimates = []
    for refit in Refit:
        plan = MemoryPlan(data, Settings.make("fm", "topn", {"k": 4, "history": "none"}), "random", {}, "cpu")
        inputs = plan.selection_inputs() if refit is Refit.NONE else plan.refit_inputs(refit)
        new_items = inputs.batches().ids.new_items
        estimates.append((new_items.of_choices, new_items.of_choices / new_items.of_candidates))
    assert min(share for share, _ in estimates) > 0.1
    for share, ratio in estimates[1:]:
        assert share == pytest.approx(estimates[0][0], rel=0.35)
        assert ratio == pytest.approx(estimates[0][1], rel=0.35)  # by the share of held-out rows it was 1, 2.5 and infinite


def test_held_out_rows_have_no_part_in_the_level() -> None:
    data = renewed_shop()
    settings = Settings.make("fm", "topn", {"k": 4, "history": "none"})
    plan = MemoryPlan(data, settings, "leave-one-out", {}, "cpu")
    held_out = np.concatenate([plan.split.validation, plan.split.test])
    items = data.item_numbers.copy()
    items[held_out] = items[0]
    other = replace(data, interactions=data.interactions.with_columns(item=pl.Series(items)))
    changed = MemoryPlan(other, settings, "leave-one-out", {}, "cpu")
    assert set(changed.split.train) == set(plan.split.train)
    estimates = [which.selection_inputs().batches().ids.new_items for which in (plan, changed)]
    assert estimates[0] == estimates[1]


def renewed_shop() -> Dataset:
    """Items come one after another and are asked for while they are young."""
    rng = np.random.default_rng(2)
    times = np.sort(rng.random(6_000))
    items = np.floor((times - rng.exponential(0.3, 6_000)) * 300).astype(int)
    table = pl.DataFrame({"u": rng.integers(0, 300, 6_000), "i": items, "t": (times * 1e9).astype(int)})
    return Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "time": "t"}})
