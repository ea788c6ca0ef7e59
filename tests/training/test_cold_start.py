"""Training for newcomers: hidden items learn what the model says of known ones, the unknown user what users chose last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm.fitting.memory import MemoryPlan
from gmlfm.models import frozen
from gmlfm.models.base import Attributes
from gmlfm.training import cold_start as strangers_module
from gmlfm.training.cold_start import ColdStartTrainer, fit_unknown_user
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.loop import Trainer
from gmlfm.training.objectives import OBJECTIVES
from gmlfm.training.sampling.cold_start import Grid
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.settings import Settings
from tests.contracts.checkerboard import checkerboard


class Begun:
    """A model somewhat trained on the checkerboard, all of it at hand."""

    def __init__(self, model: str = "gml-fm", **options: Any) -> None:
        given = {"k": 6, "threads": 1, "cold_start_rate": 0.25, "batch_size": 80, "v_scale": 0.3, **options}
        settings = Settings.make(model, "topn", {name: one for name, one in given.items() if one is not None})
        self.job = MemoryPlan(checkerboard(), settings, "newcomers", {"share": 0.2, "validation_share": 0.1}, "cpu")
        self.material = self.job.first()
        made = settings.build(self.material.layout)
        self.material.introduce(made)
        self.batches = self.material.batches()
        self.trainer = Trainer(made, self.material.layout.n_rows, settings.training, "cpu", self.material.layout.field_of_row())
        for batch in self.batches.epoch(0):
            list(self.trainer.steps().run(batch, self.batches.groups_per_step))

    @property
    def latest(self) -> DeviceBatch:
        cold_start_sampler = self.batches.cold_start_sampler(0)
        assert cold_start_sampler is not None
        return DeviceBatch.upload(cold_start_sampler.latest(), torch.device("cpu"))

    def fields(self, ids: torch.Tensor) -> torch.Tensor | None:
        if not self.trainer.model.needs_fields:
            return None
        return torch.from_numpy(self.material.layout.field_of_row()).long()[ids]


class Recording:
    """Steps that only look."""

    def __init__(self) -> None:
        self.seen: list[tuple[Batch, int, str | None]] = []

    def run(self, batch: Batch, size: int, loss: str | None = None) -> Any:
        self.seen.append((batch, size, loss))
        yield 0.0, batch.labels.size


def cold_start(begun: Begun, steps: Any, size: int = 16) -> ColdStartTrainer:
    trainer = begun.trainer
    return ColdStartTrainer(
        trainer.model,
        trainer.table,
        steps,
        size,
        begun.batches.cold_start_sampler(0),
        begun.material.layout.field_of_row(),
        "squared",
    )


def test_a_quarter_as_many_steps_hide_ids_and_teach_tastes() -> None:
    begun, looking = Begun(), Recording()
    at_work = cold_start(begun, looking)
    for _ in range(10):
        list(at_work.after(5 * 16))  # 1.25 steps are due each time
    assert sum(len(batch) for batch, _, _ in looking.seen) == 12 * 16
    cold_start_sampler, grid = begun.batches.cold_start_sampler(0), Grid.within(16, 5)
    assert cold_start_sampler is not None
    shown, (hidden, size, loss) = cold_start_sampler.at_random(1, grid), looking.seen[0]
    assert (size, loss, grid) == (16, "squared", (16, 1))
    assert (hidden.item_ids[..., 0] == cold_start_sampler.ids.unknown_item).all()
    assert np.array_equal(hidden.item_ids[..., 1:], shown.item_ids[..., 1:])
    assert (hidden.user_ids[:5, 0] == cold_start_sampler.ids.unknown_user).all()
    assert np.array_equal(hidden.user_ids[5:], shown.user_ids[5:])
    said, heard = (scores_of(begun, one) for one in (shown, hidden))
    for part in (slice(5), slice(5, None)):
        # As far as users differ, what was said with the ids in sight; on the whole, as high as the item in the middle.
        by_item, now = said[part].mean(0), heard[part].mean(0)
        expected = said[part] - by_item + now - now.mean() + np.median(by_item)
        np.testing.assert_allclose(hidden.labels[part], expected, rtol=1e-4, atol=1e-5)
    assert np.abs(hidden.labels - heard).max() > 1e-2
    assert begun.trainer.model.training  # dropout is back for the step


def test_hidden_ids_learn_tastes() -> None:
    """A third of an epoch's steps, again and again: what is heard comes to differ by user as what is said does."""
    begun = Begun(lr=0.01)
    cold_start_sampler, grid = begun.batches.cold_start_sampler(9), Grid(60, 4)
    assert cold_start_sampler is not None
    shown = cold_start_sampler.at_random(1, grid)
    item_side = shown.item_ids.copy()
    item_side[..., 0] = cold_start_sampler.ids.unknown_item
    hidden = replace(shown, item_ids=item_side)

    def distance() -> float:
        said, heard = (scores_of(begun, one).reshape(60, -1) for one in (shown, hidden))
        return float(((said - said.mean(0)) - (heard - heard.mean(0))).std() / (said - said.mean(0)).std())

    before = distance()
    for _ in range(15):
        list(cold_start(begun, begun.trainer.steps()).after(16 * 80))
    assert distance() < 0.8 * before
    middle = np.median(scores_of(begun, shown).reshape(60, -1).mean(0))
    assert abs(float(scores_of(begun, hidden).mean()) - middle) < 0.5


def scores_of(begun: Begun, batch: Batch) -> np.ndarray:
    table, model = begun.trainer.table, begun.trainer.model
    user_side = Attributes(torch.from_numpy(batch.user_ids).long(), torch.from_numpy(batch.user_x))
    item_side = Attributes(torch.from_numpy(batch.item_ids).long(), torch.from_numpy(batch.item_x))
    with torch.no_grad():
        found: np.ndarray = model.scores(model.transform_rows(table), user_side, item_side).numpy()
    return found


def test_an_epoch_too_short_for_a_step_has_one() -> None:
    begun, looking = Begun(), Recording()
    at_work = cold_start(begun, looking)
    list(at_work.after(16))
    assert not looking.seen
    list(at_work.end())
    assert len(looking.seen) == 1


MODELS: list[tuple[str, dict[str, Any]]] = [
    ("gml-fm", {}),
    ("fm", {"loss": "logistic", "v_scale": None}),
    ("bpr-mf", {"v_scale": None}),
    ("transfm", {"loss": "softmax", "v_scale": None}),
    ("ngcf", {"v_scale": None}),
    ("xdeepfm", {"v_scale": None}),
]


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_the_unknown_users_row_is_fitted_and_nothing_else_moves(name: str, options: dict[str, Any]) -> None:
    begun = Begun(name, **options)
    model, table, batch = begun.trainer.model, begun.trainer.table, begun.latest
    model.eval()
    loss, row = begun.job.settings.training.loss, int(batch.user_ids[0, 0])

    def objective() -> float:
        user_side, item_side = batch.user_ids.long(), batch.item_ids.long()
        sides = (
            Attributes(user_side, batch.user_x, begun.fields(user_side)),
            Attributes(item_side, batch.item_x, begun.fields(item_side)),
        )
        scores = frozen.frozen_scores(model, table, *sides)
        return float(OBJECTIVES[loss](scores, batch.labels, batch.weights) + 0.05 * table[row].square().sum())

    before, dense, value = table.clone(), {key: one.clone() for key, one in model.state_dict().items()}, objective()
    fit_unknown_user(model, table, batch, loss, begun.fields)
    assert objective() < value - 1e-6
    moved = (table != before).any(1).nonzero().flatten().tolist()
    assert moved == [row]
    assert all(one.equal(dense[key]) for key, one in model.state_dict().items())
    # Again from there, it hardly moves: that is the least there is.
    least = objective()
    for _ in range(5):
        fit_unknown_user(model, table, batch, loss, begun.fields)
    assert objective() >= least - 0.02 * (value - least)


@pytest.mark.parametrize("name", ["gml-fm", "gml-fm-md", "fm", "transfm", "mf"])
def test_scores_looked_up_are_the_models(name: str) -> None:
    begun = Begun(name, **({} if name.startswith("gml") else {"v_scale": None}))
    cold_start_sampler = begun.batches.cold_start_sampler(3)
    assert cold_start_sampler is not None
    batch = DeviceBatch.upload(cold_start_sampler.at_random(2, Grid(20, 3)), torch.device("cpu"))
    user_side, item_side = (
        Attributes(ids.long(), x) for ids, x in ((batch.user_ids, batch.user_x), (batch.item_ids, batch.item_x))
    )
    model, table = begun.trainer.model, begun.trainer.table
    looked_up: list[Any] = []
    by_table = frozen._by_table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen, "_by_table", lambda *given: looked_up.append(1) or by_table(*given))
        found = frozen.frozen_scores(model, table, user_side, item_side)
    assert looked_up
    with torch.no_grad():
        expected = model.scores(model.transform_rows(table), user_side, item_side)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gml-fm", "transfm", "mf"])
def test_by_pairs_as_by_whole_scores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Begun(name, **({} if name == "gml-fm" else {"v_scale": None}))
    model, table, batch = begun.trainer.model, begun.trainer.table, begun.latest
    model.eval()
    user_side, item_side = (
        Attributes(ids.long(), x) for ids, x in ((batch.user_ids, batch.user_x), (batch.item_ids, batch.item_x))
    )
    row, some = int(batch.user_ids[0, 0]), torch.linspace(-0.5, 0.5, table.shape[1])
    quick = frozen.scores_of_row(model, table, row, user_side, item_side)(some)
    monkeypatch.setattr(frozen, "by_pairs", frozen.by_whole_scores)
    slow = frozen.scores_of_row(model, table, row, user_side, item_side)(some)
    whole = table.clone()
    whole[row] = some
    torch.testing.assert_close(quick, slow, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slow, frozen.frozen_scores(model, whole, user_side, item_side), rtol=1e-4, atol=1e-5)


def test_a_row_that_becomes_no_number_stays_as_it_was() -> None:
    begun = Begun()
    batch, table = begun.latest, begun.trainer.table
    row = int(batch.user_ids[0, 0])
    table[int(batch.item_ids[0, 0, 0])] = float("nan")
    before = table[row].clone()
    fit_unknown_user(begun.trainer.model, table, batch, "squared", begun.fields)
    assert table[row].equal(before)


def test_where_what_is_chosen_is_new_the_unknown_stands_higher() -> None:
    said, heard = torch.linspace(-1, -0.8, 12).view(1, 3, 4), torch.full((1, 3, 4), -0.9)
    as_known, higher = (strangers_module._tastes(said, heard, level) for level in (float("-inf"), 0.2))
    assert as_known.mean().item() == pytest.approx(said.mean(1).median().item())
    assert higher.mean().item() == pytest.approx(0.2)
    assert strangers_module._level(3.0, "squared") == pytest.approx(0.5)  # three of four are chosen: 2 * 3 / 4 - 1
    assert strangers_module._level(3.0, "logistic") == pytest.approx(np.log(3))
    assert strangers_module._level(None, "squared") == strangers_module._level(3.0, "bpr") == float("-inf")


def test_odds_of_the_new_are_by_what_was_chosen_once() -> None:
    begun = Begun(negatives=3)
    cold_start_sampler = begun.batches.cold_start_sampler(0)
    assert cold_start_sampler is not None
    data, train = begun.job.data, begun.job.split.train
    counts = np.bincount(data.item_numbers[train], minlength=len(data.items))[data.seen_items]
    first = (counts == 1).sum() / len(train)
    assert cold_start_sampler.ids.first_choices == pytest.approx(first)
    assert cold_start_sampler.odds == pytest.approx(first / (3 * (counts == 0).mean()))
