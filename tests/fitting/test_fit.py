"""The order of a fit: the choice on validation, then perhaps the refit; the same for data in memory and in shards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm import Dataset, load_dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import OptionError
from gmlfm.evaluation.protocols import evaluate_held_out
from gmlfm.fitting import FittedRun, Refit, fit
from gmlfm.fitting.fit import make_plan
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.fitting.plan import Stage
from gmlfm.fitting.shards import ShardPlan
from gmlfm.models.base import FitInputs, FitReport, Floats, Ints, Plan, UserSide
from gmlfm.models.closed_form import ClosedFormModel
from gmlfm.models.fm import FM
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError, Observer
from tests.contracts.checkerboard import checkerboard

QUICK = {"k": 2, "threads": 1, "batch_size": 200}


class CountingModel(ClosedFormModel):
    """Counts items, and every call of fit."""

    fitted_on: list[int]  # positives of each call

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        positives = inputs.positives()
        type(self).fitted_on.append(len(positives.users))
        self._counts = np.bincount(positives.items, minlength=positives.n_items).astype(np.float32)
        return FitReport()

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        return np.tile(self._counts[items], (len(users), 1))

    def state_dict(self) -> dict[str, Tensor]:
        return {"counts": torch.from_numpy(self._counts)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._counts = state["counts"].numpy()


class RecordedFM(FM):
    """An FM that tells the inputs and the plan of each of its fits."""

    fits: list[tuple[int, Stage]]  # instances of an epoch, and the stage

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        assert isinstance(plan, Stage)
        type(self).fits.append((inputs.batches().n_instances, plan))
        return super().fit(inputs, plan)


@pytest.fixture(params=["memory", "shards"])
def source(request: pytest.FixtureRequest, small_market: Path, small_prepared: PreparedData) -> Dataset | PreparedData:
    return load_dataset(small_market) if request.param == "memory" else small_prepared


@pytest.fixture(autouse=True)
def _no_calls_yet() -> None:
    CountingModel.fitted_on, RecordedFM.fits = [], []


def sizes(run: FittedRun) -> dict[Refit, int]:
    """How many rows each refit learns from."""
    train, validation, test = (len(rows) for rows in (run.split.train, run.split.validation, run.split.test))
    return {Refit.NONE: train, Refit.VALIDATION: train + validation, Refit.ALL: train + validation + test}


@pytest.mark.parametrize("refit", list(Refit))
def test_a_closed_form_model_is_fitted_once_on_the_rows_of_the_refit(source: Dataset | PreparedData, refit: Refit) -> None:
    run = fit(source, Settings.make(CountingModel, "topn", {}), refit=refit)
    assert CountingModel.fitted_on == [sizes(run)[refit]]
    assert run.refit is refit
    assert (run.best_epoch, run.curve) == (0, [])
    assert set(run.validation) == ({"hr@10", "ndcg@10"} if refit is Refit.NONE else set())
    assert bool(run.validation_protocol) == bool(run.validation)
    assert float(run.model.state_dict()["counts"].sum()) == sizes(run)[refit] == len(run.learned_rows)
    positives = run.inputs.positives()  # what forgetting fits it on again
    counts = np.bincount(positives.items, minlength=positives.n_items)
    np.testing.assert_array_equal(run.model.state_dict()["counts"].numpy(), counts)


@pytest.mark.parametrize("refit", [Refit.VALIDATION, Refit.ALL])
def test_a_trained_model_is_fitted_twice_the_second_time_for_the_best_epochs(
    source: Dataset | PreparedData, refit: Refit
) -> None:
    settings = Settings.make(RecordedFM, "topn", {**QUICK, "epochs": 2, "n_negatives": 1, "cold_start_rate": 0.0})
    run = fit(source, settings, refit=refit)
    (n_selection, selection), (n_refit, second) = RecordedFM.fits
    assert (n_selection, n_refit) == (2 * sizes(run)[Refit.NONE], 2 * sizes(run)[refit])
    assert (selection.epochs, second.epochs) == (None, run.best_epoch)
    assert run.refit is refit
    assert [entry["epoch"] for entry in run.curve] == [1, 2]
    assert run.validation == run.curve[run.best_epoch - 1]["validation"]
    assert run.validation_protocol


class LikeFirstItems(ClosedFormModel):
    """Scores -1, -2, ... by the item's number, at once."""

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        self.n_items = len(inputs.items.numbers)
        return FitReport(validation={"ndcg@10": 1.0}, protocol="its own")

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        return np.tile(-1.0 - items.astype(np.float32), (len(users), 1))

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        pass


class TrainedFirstItems(GradientModel):
    """The same scores from a model that learns in epochs: by row number, whatever it is trained to."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(()))

    @property
    def row_width(self) -> int:
        return 1

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        return rows[item_side.ids].sum(-2)[..., 0] * 0.0 + self.unused - 1e-6 * item_side.ids[..., 0]

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        return np.tile(-1.0 - items.astype(np.float32), (len(users), 1))

    def score_pairs(self, users: UserSide, items: Ints) -> Floats:
        return -1.0 - items.astype(np.float32)


@pytest.mark.parametrize(("split", "preset"), [("newcomers", None), ("leave-one-out", None), ("leave-one-out", "paper")])
def test_the_same_scores_have_the_same_validation_however_they_were_learned(
    small_market: Path, split: str, preset: str | None
) -> None:
    data = load_dataset(small_market)
    at_once = fit(data, Settings.make(LikeFirstItems, "topn", {}, preset), split=split)
    trained = fit(data, Settings.make(TrainedFirstItems, "topn", {"epochs": 1, "threads": 1}, preset), split=split)
    assert at_once.validation == trained.validation
    assert at_once.validation_protocol == trained.validation_protocol
    part = "test" if preset else "validation"
    evaluation = evaluate_held_out(at_once.ranker, data, at_once.split, part, "paper" if preset else "sampled")
    expected = evaluation.balanced()
    assert at_once.validation == pytest.approx({name: expected[name] for name in ("hr@10", "ndcg@10")})
    if split == "newcomers":
        assert at_once.validation["ndcg@10"] != pytest.approx(evaluation.metrics["ndcg@10"])  # pooled is another number


def test_without_a_validation_part_a_model_fitted_at_once_has_no_figure() -> None:
    run = fit(checkerboard(), Settings.make(CountingModel, "topn", {}), split="none")
    assert (run.validation, run.validation_protocol) == ({}, "")


def test_memory_and_shards_go_one_path(small_market: Path, small_prepared: PreparedData) -> None:
    """The same names of figures, the same protocol of a report, whichever plan it was."""
    settings = Settings.make("fm", "topn", {**QUICK, "epochs": 1})
    data = load_dataset(small_market)
    assert type(make_plan(data, settings, "auto")) is MemoryPlan
    assert type(make_plan(small_prepared, settings, "auto")) is ShardPlan
    memory, shards = (fit(source, settings) for source in (data, small_prepared))
    assert memory.validation.keys() == shards.validation.keys() == {"hr@10", "ndcg@10"}
    assert memory.curve[0].keys() == shards.curve[0].keys()
    assert sizes(memory) == sizes(shards)
    for run in (memory, shards):
        users, items = np.arange(3, dtype=np.int32), np.arange(7, dtype=np.int32)
        pairs = np.broadcast_to(items, (3, 7)).astype(np.int32)
        np.testing.assert_allclose(
            run.ranker.score_all(users, items), run.ranker.score_pairs(users, pairs), rtol=1e-4, atol=1e-6
        )


def test_a_selection_that_diverges_is_not_refitted(monkeypatch: pytest.MonkeyPatch) -> None:
    run_epoch = RowTrainer.run_epoch

    def diverges(self: RowTrainer, observer: Observer) -> float:
        if self.epoch == 1:
            raise DivergedError("the loss became nan")
        return run_epoch(self, observer)

    monkeypatch.setattr(RowTrainer, "run_epoch", diverges)
    run = fit(checkerboard(), Settings.make(RecordedFM, "topn", {**QUICK, "epochs": 3}), refit="all")
    assert len(RecordedFM.fits) == 1
    assert (run.refit, run.best_epoch) == (Refit.NONE, 1)
    assert run.report.diverged == "the weights of epoch 1 are kept: the loss became nan"


def overflowing_in_refit(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Epoch `epoch` of the refit (from 1) leaves weights that are not finite."""
    run_epoch = RowTrainer.run_epoch

    def overflows(self: RowTrainer, observer: Observer) -> float:
        loss = run_epoch(self, observer)
        if len(RecordedFM.fits) == 2 and self.epoch + 1 == epoch:
            self.table[5] = float("inf")
        return loss

    monkeypatch.setattr(RowTrainer, "run_epoch", overflows)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_refit_that_diverges_leaves_the_model_of_the_selection(
    source: Dataset | PreparedData, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.make(RecordedFM, "topn", {**QUICK, "epochs": 2, "patience": 9, "lr": 0.01})
    selected = fit(source, settings)
    assert selected.best_epoch == 2
    RecordedFM.fits.clear()
    overflowing_in_refit(monkeypatch, epoch)
    run = fit(source, settings, refit=True)
    assert len(RecordedFM.fits) == 2
    assert (run.refit, run.best_epoch, run.validation) == (Refit.NONE, 2, selected.validation)
    kept = "nothing was learned" if epoch == 1 else "the weights of epoch 1 are kept"
    assert run.report.diverged == (
        f"the refit on train + validation diverged, so the model without it is kept, of epoch 2: {kept}: "
        f"weights are not finite after epoch {epoch}; lower lr (now 0.01)."
    )
    assert run.encoder.fields == selected.encoder.fields
    users, items = np.arange(5, dtype=np.int32), np.arange(20, dtype=np.int32)
    np.testing.assert_array_equal(run.ranker.score_all(users, items), selected.ranker.score_all(users, items))


@pytest.mark.parametrize("name", ["ngcf", "nfm"])
def test_whatever_a_model_is_made_of_comes_back_after_a_refit_that_diverges(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.make(name, "topn", {"k": 4, "threads": 1, "epochs": 1})
    selected = fit(checkerboard(), settings)
    run_epoch, trainers = RowTrainer.run_epoch, list[RowTrainer]()

    def diverges(self: RowTrainer, observer: Observer) -> float:
        trainers.append(self)
        if len(trainers) == 2:
            raise DivergedError("the loss became nan")
        return run_epoch(self, observer)

    monkeypatch.setattr(RowTrainer, "run_epoch", diverges)
    run = fit(checkerboard(), settings, refit="all")
    assert run.report.diverged.startswith("the refit on all rows diverged")
    users, items = np.arange(5, dtype=np.int32), np.arange(20, dtype=np.int32)
    np.testing.assert_array_equal(run.ranker.score_all(users, items), selected.ranker.score_all(users, items))


def test_without_a_validation_part_every_epoch_is_trained() -> None:
    run = fit(checkerboard(), Settings.make("fm", "topn", {**QUICK, "epochs": 3, "patience": 1}), split="none")
    assert (run.best_epoch, run.validation, run.validation_protocol) == (3, {}, "")
    assert isinstance(run.model, GradientModel)


def test_the_published_procedure_has_no_refit() -> None:
    settings = Settings.make("fm", "topn", QUICK, "paper")
    with pytest.raises(OptionError, match="the preset 'paper' trains on all but the test rows already; leave refit out"):
        fit(checkerboard(), settings, refit=True)
    with pytest.raises(OptionError, match="refit is 'some'; expected nothing, true or all"):
        fit(checkerboard(), settings, refit="some")


def test_threads_are_those_of_the_settings() -> None:
    before = torch.get_num_threads()
    try:
        fit(checkerboard(), Settings.make("popularity", "topn", {"threads": 1}))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
