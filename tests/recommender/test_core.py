from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.fitting import Refit
from gmlfm.fitting.run import learned_rows
from gmlfm.models.fm import FM
from gmlfm.models.gradient import GradientModel
from gmlfm.progress import Activity
from gmlfm.progress.displays import PlainDisplay
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.batches import BatchOptions
from gmlfm.training.trainer import DivergedError, Observer
from tests.recommender.conftest import QUICK

THREE = {**QUICK, "epochs": 3}


class NotRegistered(FM):
    """An FM under no name."""


def test_the_arguments_can_be_read_changed_and_cloned(board: Dataset) -> None:
    recommender = Recommender("fm", k=4, epochs=1, threads=1)
    arguments = {"model": "fm", "task": "topn", "preset": None, "device": "auto", "k": 4, "epochs": 1, "threads": 1}
    assert recommender.get_params() == recommender.get_params(deep=False) == arguments
    assert repr(recommender) == "<Recommender('fm', 'topn', k=4, epochs=1, threads=1): not fitted>"
    recommender.fit(board)
    assert repr(recommender).endswith("threads=1): fitted on 'checkerboard', no refit>")
    for copied in (recommender.clone(), clone(recommender)):
        assert copied.get_params() == arguments
        assert not copied.is_fitted
    before = recommender.predict([("u1", "i1")])["score"].to_list()
    assert recommender.set_params(k=2, task="rating", lr=0.5) is recommender
    assert (recommender.settings.task, recommender.settings.options["k"], recommender.settings.training.lr) == (
        "rating",
        2,
        0.5,
    )
    assert recommender.get_params() == {**arguments, "task": "rating", "k": 2, "lr": 0.5}
    assert recommender.predict([("u1", "i1")])["score"].to_list() == before  # what is fitted stays
    with pytest.raises(OptionError, match="unknown setting 'kk'"):
        recommender.set_params(kk=3)
    assert recommender.get_params()["k"] == 2


@pytest.mark.parametrize("model", ["fm", FM, NotRegistered, FM(k=3), NotRegistered(k=3)], ids=repr)
def test_a_model_by_name_class_or_instance_is_cloned_with_its_settings(model: Any, board: Dataset) -> None:
    settings = {"epochs": 1, "threads": 1, **({} if isinstance(model, FM) else {"k": 3})}
    original = Recommender(model, **settings)
    copied = clone(original)
    for recommender in (original, copied):
        assert recommender.settings.options["k"] == 3
        assert recommender.settings.info.cls in (FM, NotRegistered)
    pairs = [("u1", "i1"), ("u2", "i3")]
    assert original.fit(board).predict(pairs).equals(copied.fit(board).predict(pairs))


def test_a_loaded_run_is_cloned_with_its_settings(trained: Recommender) -> None:
    copied = clone(trained)
    assert copied.settings == trained.settings
    assert not copied.is_fitted
    assert repr(trained).endswith("fitted on 'checkerboard', no refit>")


def test_the_callers_model_is_not_trained_or_loaded_into(board: Dataset, tmp_path: Path) -> None:
    model = NotRegistered(k=3)
    weights = {name: tensor.clone() for name, tensor in model.dense_state().items()}
    recommender = Recommender(model, epochs=2, threads=1, lr=0.05).fit(board, out=tmp_path / "run")
    assert recommender.fitted.model is not model
    loaded = Recommender.load(tmp_path / "run", NotRegistered)
    recommender.forget("u3")
    assert not hasattr(model, "table")
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.dense_state().items())
    assert loaded.fitted.model is not recommender.fitted.model


def test_forgetting_reaches_folders_of_a_model_without_a_name(board: Dataset, tmp_path: Path) -> None:
    recommender = Recommender(NotRegistered, k=2, epochs=1, threads=1).fit(board, out=tmp_path / "a")
    recommender.save(tmp_path / "b")
    recommender.set_params(model="fm").fit(board, out=tmp_path / "c")
    recommender.forget("u17")
    for name, model in (("a", NotRegistered), ("b", NotRegistered), ("c", None)):
        run = Recommender.load(tmp_path / name, model)
        assert "u17" not in run.fitted.data.users.ids.to_list()


def test_refit_trains_again_on_more_rows(board: Dataset) -> None:
    runs = [Recommender(**THREE).fit(board, refit=refit).fitted for refit in (False, True, "all")]
    assert len({run.best_epoch for run in runs}) == 1
    tables = [run.model.state_dict()["table"].numpy() for run in runs]
    assert not np.array_equal(tables[0], tables[1][: len(tables[0])])
    assert [run.refit for run in runs] == [Refit.NONE, Refit.VALIDATION, Refit.ALL]
    assert [run.refit.label for run in runs] == ["no refit", "refit on train + validation", "refit on all rows"]
    with pytest.raises(OptionError, match="refit is 'some'"):
        Recommender(**THREE).fit(board, refit="some")


def test_early_stopping_keeps_the_best_epoch(board: Dataset) -> None:
    recommender = Recommender(**{**QUICK, "epochs": 12, "patience": 2}).fit(board)
    run = recommender.fitted
    best = max(run.curve, key=lambda entry: entry["validation"]["ndcg@10"])
    assert run.best_epoch == best["epoch"]
    assert run.validation == best["validation"]
    assert run.validation_protocol == "full"  # forty items leave nobody 99
    evaluation = recommender.evaluate(protocol="full", part="validation")
    assert evaluation.metrics["ndcg@10"] == pytest.approx(best["validation"]["ndcg@10"])


def _initial_rows(recommender: Recommender) -> torch.Tensor:
    model = recommender.settings.build()
    assert isinstance(model, GradientModel)
    return model.initial_rows(recommender.fitted.encoder.n_rows, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("cold_start_rate", "moves"), [(0.0, False), (0.3, True)])
def test_ids_hidden_in_training_move_the_unknown_rows(cold_start_rate: float, moves: bool, board: Dataset) -> None:
    recommender = Recommender(**{**THREE, "cold_start_rate": cold_start_rate, "history": "none"}).fit(board, "none")
    before, table = _initial_rows(recommender), recommender.fitted.model.state_dict()["table"]
    for part in ("user", "item"):
        row = recommender.fitted.encoder.part(part)[0].unknown_row  # type: ignore[arg-type]
        assert bool((table[row] == before[row]).all()) != moves


def test_an_item_without_a_positive_never_trains_the_unknown_row() -> None:
    """Drawn as a negative it updates its attributes alone (checked without cold start, so that nothing else moves the row)."""
    table = pl.DataFrame({"u": ["a", "a", "b", "b", "b"], "i": ["w", "x", "w", "y", "z"]})
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i"}})
    recommender = Recommender(**{**QUICK, "cold_start_rate": 0.0, "epochs": 5}).fit(data, "leave-one-out")
    unknown = recommender.fitted.encoder.part("item")[0].unknown_row
    assert (recommender.fitted.encoded.item.ids[:, 0] == unknown).sum() == 2
    assert (recommender.fitted.model.state_dict()["table"][unknown] == _initial_rows(recommender)[unknown]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lrr": 0.1}, "unknown setting 'lrr' for the model 'gml-fm'; did you mean 'lr'"),
        ({"lr": -1}, "lr is -1; expected above 0"),
        ({"lr": "fast"}, "lr is 'fast'; expected a number"),
        ({"k": 2.5}, "k is 2.5; expected a whole number"),
        ({"k": 10**9}, "k is 1000000000; expected 1 to 10,000"),
        ({"epochs": -1}, "epochs is -1"),
        ({"cold_start_rate": 1.0}, "cold_start_rate is 1; expected 0 or more, below 1"),
        ({"hide": 1.0}, "cold_start_rate is 1; expected 0 or more, below 1"),
        ({"negatives": 0}, "set negatives to 1 or more"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 10**20}, "seed is 100000000000000000000; expected"),
        ({"v_scale": -1.0}, "v_scale is -1; expected 0 or more"),
        ({"fresh": "perhaps"}, "expected true or false"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"model": "gmlfm"}, "did you mean 'gml-fm'"),
        ({"task": "top"}, "did you mean 'topn'"),
        ({"model": "popularity", "task": "rating"}, "cannot do the task 'rating'"),
        ({"model": "gml-fm-unit", "layers": 9}, "layers is 9"),
        ({"task": "rating", "loss": "bpr"}, "which is the task topn"),
        ({"task": "rating", "loss": "logistic"}, "use squared"),
        ({"model": "ease", "lr": 99}, "unknown setting 'lr'"),
        ({"model": "popularity", "loss": "bpr"}, "unknown setting 'loss'"),
        ({"model": "mamo", "task": "rating", "cold_start_rate": 0.5}, "unknown setting 'cold_start_rate'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Recommender(**settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_use_is_one_sentence(trained: Recommender, board: Dataset) -> None:
    assert trained.recommend("u1", 3)["user"].to_list() == ["u1"] * 3
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: trained.recommend([]), "users is empty"),
        (lambda: trained.recommend(["u1"], n="3"), "n is '3'; expected a whole number"),  # type: ignore[arg-type]
        (lambda: trained.recommend(["u1"], n=2.5), "expected a whole number"),  # type: ignore[arg-type]
        (lambda: Recommender().fit("d"), "fit takes a Dataset, not str"),  # type: ignore[arg-type]
        (
            lambda: Recommender().fit(pl.DataFrame({"u": [1]})),
            r"not a table \(DataFrame\); make one with Dataset\.from_tables\(",
        ),  # type: ignore[arg-type]
        (
            lambda: Recommender().fit(pd.DataFrame({"u": [1]})),
            r"not a table \(DataFrame\); make one with Dataset\.from_tables\(",
        ),  # type: ignore[arg-type]
        (lambda: Recommender().fit(pa.table({"u": [1]})), r"not a table \(Table\); make one with Dataset\.from_tables\("),  # type: ignore[arg-type]
        (lambda: Recommender(task="implicit").fit(board, "newcomers"), "splits its drawn instances at random"),
        (lambda: Recommender().recommend(["a"]), "not fitted yet"),
        (lambda: Recommender(preset="paper").fit(board, refit=True), "leave refit out"),
        (lambda: Recommender(device="gpu").fit(board), "device is 'gpu'; expected auto, cpu or cuda"),
    ]
    for call, message in calls:
        with pytest.raises(GmlfmError, match=message):
            call()


def test_a_loss_that_diverges_stops_and_says_what_to_lower(board: Dataset) -> None:
    with pytest.raises(DivergedError, match=r"the loss became .* lower lr \(now 1e\+30\)"):
        Recommender(**{**QUICK, "lr": 1e30, "epochs": 20, "optimiser": "sgd"}).fit(board)


def test_divergence_after_a_good_epoch_keeps_that_epoch(
    board: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Recommender(**{**QUICK, "epochs": 1, "schedule": "constant"}).fit(board)
    run_epoch = RowTrainer.run_epoch

    class NotANumber:
        takes_device_batches = False

        def run(self, batch: Any, size: int) -> Iterator[tuple[float, int]]:
            yield float("nan"), size

    def diverging(self: RowTrainer, observer: Observer) -> float:
        if self.epoch == 1:
            self._engine = NotANumber()  # type: ignore[assignment]
        return run_epoch(self, observer)

    monkeypatch.setattr(RowTrainer, "run_epoch", diverging)
    with pytest.raises(DivergedError, match="the weights of epoch 1 are kept: the loss became nan in epoch 2; lower lr"):
        Recommender(**THREE, schedule="constant").fit(board, out=tmp_path / "r")
    assert Recommender.load(tmp_path / "r").recommend(["u1"], 5).equals(plain.recommend(["u1"], 5))


def test_a_full_gpu_says_what_to_lower(board: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(RowTrainer, "fit", full)
    with pytest.raises(OptionError, match=r"the GPU's memory is full .*; lower k or batch_size, or use the device cpu"):
        Recommender("gml-fm", k=4).fit(board)


def test_small_data_get_small_batches_unless_a_size_is_given() -> None:
    assert [BatchOptions().groups_per_step(n, 1) for n in (100, 6_000, 1_000_000)] == [64, 150, 4096]
    assert BatchOptions(batch_size=1000).groups_per_step(100, 5) == 200
    assert Recommender(batch_size="auto").settings.batches.batch_size is None


@pytest.mark.parametrize(("shift", "scale"), [(50.0, 10.0), (0.0, 1.0), (-3.0, 1e-3)])
def test_ratings_are_learned_whatever_their_unit(shift: float, scale: float, board: Dataset) -> None:
    labels = board.interactions["label"] * scale + shift
    data = replace(board, interactions=board.interactions.with_columns(labels))
    recommender = Recommender("gml-fm", "rating", k=8, threads=1).fit(data, "random")
    assert recommender.evaluate().metrics["rmse"] < 0.9 * float(labels.std() or 0)
    assert float(recommender.predict([("u1", "i1")])["score"][0]) == pytest.approx(shift + 3 * scale, abs=3 * scale)


def test_labels_that_cannot_be_learned_are_named(board: Dataset) -> None:
    for labels, message in (([1e300] * board.n_interactions, "a label is 1e"), ([None] * board.n_interactions, "has a label")):
        data = replace(board, interactions=board.interactions.with_columns(pl.Series("label", labels, dtype=pl.Float64)))
        with pytest.raises(DataError, match=message):
            Recommender(task="rating", k=2).fit(data, "random")


def test_pretraining_is_not_judged_and_does_not_cost_patience(board: Dataset) -> None:
    recommender = Recommender("ncf", pretrain=4, epochs=20, patience=2, k=4, threads=1, lr=0.02).fit(board)
    assert recommender.fitted.best_epoch > 4
    assert not any(entry["best"] for entry in recommender.fitted.curve[:4])


def test_mamo_is_adapted_on_the_training_rows_alone(board: Dataset) -> None:
    run = Recommender("mamo", "rating", k=4, epochs=1).fit(board, "newcomers").fitted
    assert len(run.split.unused) > 0
    assert np.array_equal(learned_rows(run.split, run.settings, Refit.NONE), run.split.train)
    assert np.array_equal(run.learned_rows, run.split.train)


@pytest.mark.parametrize(("progress", "is_told"), [(None, False), (True, True), (False, False)])
def test_fit_shows_progress_where_it_is_asked_for(
    progress: bool | None, is_told: bool, board: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    displays = []

    class Recording(PlainDisplay):
        def __init__(self) -> None:
            super().__init__(io.StringIO())
            self.words: list[str] = []
            displays.append(self)

        def begin(self, words: Any, unit: str = "") -> Activity:
            self.words.append(words if isinstance(words, str) else words(self.clock()))
            return super().begin(words, unit)

    monkeypatch.setattr("gmlfm.progress.showing.display", Recording)
    Recommender("fm", **{**QUICK, "epochs": 1}).fit(board, out=tmp_path / "run", progress=progress)
    expected = ["splitting", "encoding", "fitting fm", "epoch 1 of at most 1, 0 without gain of 1", "writing the run"]
    # The kernels may be ready from another test.
    words = [[text for text in display.words if "kernels" not in text] for display in displays]
    assert words == ([expected] if is_told else [])
