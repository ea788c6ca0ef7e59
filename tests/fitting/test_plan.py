"""One fit's plan: what decides, where it is written, and how it goes on after it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gmlfm import Dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting import FittedRun, Refit, fit
from gmlfm.fitting.fit import make_plan
from gmlfm.fitting.plan import (
    CHECKPOINTS,
    CHECKPOINTS_OF_REFIT,
    CURVE,
    STAMP,
    chosen_device,
    curve_text,
    read_curve,
    refuse_too_large,
)
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import EpochReport, NullObserver, Resumable
from tests.contracts.checkerboard import checkerboard

QUICK = {"k": 4, "threads": 1, "epochs": 4, "patience": 9}
PLAIN = {**QUICK, "history": "none"}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


@pytest.mark.parametrize(
    ("task", "preset", "metric"),
    [("topn", None, "ndcg@10"), ("topn", "paper", "hr@10"), ("rating", None, "-rmse"), ("implicit", "paper", "-rmse")],
)
def test_the_metric_that_decides(data: Dataset, task: str, preset: str | None, metric: str) -> None:
    assert make_plan(data, Settings.make("fm", task, {}, preset), "random").metric == metric


class Stops(NullObserver):
    """Ends a fit after so many epochs of it, those of the refit counted on."""

    def __init__(self, after: int) -> None:
        self._left = after

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt


def without_times(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in entry.items() if "second" not in name} for entry in curve]


def check_resumed(source: Dataset | PreparedData, settings: Settings, after: int, folder: Path, **options: Any) -> None:
    """Stopped after some epochs and resumed, a fit ends with the bits of one that was never stopped."""
    expected = fit(source, settings, folder=folder / "uninterrupted", **options)
    stopped = fit(source, settings, folder=folder / "stopped", observer=Stops(after), **options)
    assert stopped.report.interrupted
    assert stopped.refit is Refit.NONE
    resumed = fit(source, settings, folder=folder / "stopped", resume=True, **options)
    state = resumed.model.state_dict()
    assert state.keys() == expected.model.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.model.state_dict().items())
    assert (resumed.best_epoch, resumed.validation) == (expected.best_epoch, expected.validation)
    assert without_times(resumed.curve) == without_times(expected.curve)
    assert without_times(read_curve(folder / "stopped" / CURVE)) == without_times(expected.curve)


@pytest.mark.parametrize("after", [2, 5], ids=["in the selection", "in the refit"])
@pytest.mark.parametrize(
    ("model", "task", "split"),
    [("gml-fm", "topn", "leave-one-out"), ("sasrec", "topn", "leave-one-out"), ("mamo", "rating", "random")],
)
def test_stopped_and_resumed_it_ends_with_the_same_bits(
    data: Dataset, model: str, task: str, split: str, after: int, tmp_path: Path
) -> None:
    check_resumed(data, Settings.make(model, task, QUICK), after, tmp_path, split=split, refit=True)


def test_a_fit_from_shards_is_resumed_alike(small_prepared: PreparedData, tmp_path: Path) -> None:
    check_resumed(small_prepared, Settings.make("gml-fm", "topn", {**QUICK, "epochs": 2}), 1, tmp_path)


def test_a_curve_that_is_ahead_of_its_checkpoint_is_cut(data: Dataset, tmp_path: Path) -> None:
    """The last checkpoint is damaged: the epoch before it is where training goes on."""
    settings = Settings.make("fm", "topn", PLAIN)
    expected = fit(data, settings, folder=tmp_path / "uninterrupted")
    assert fit(data, settings, folder=tmp_path / "stopped", observer=Stops(3)).report.interrupted
    (tmp_path / "stopped" / CHECKPOINTS / "epoch-00003.safetensors").write_bytes(b"cut")
    assert len(read_curve(tmp_path / "stopped" / CURVE)) == 3
    resumed = fit(data, settings, folder=tmp_path / "stopped", resume=True)
    assert without_times(resumed.curve) == without_times(expected.curve)
    assert all(torch.equal(tensor, expected.model.state_dict()[name]) for name, tensor in resumed.model.state_dict().items())


def test_a_finished_fit_that_is_resumed_trains_nothing_more(data: Dataset, tmp_path: Path) -> None:
    settings = Settings.make("gml-fm", "topn", {**QUICK, "epochs": 2})
    expected = fit(data, settings, folder=tmp_path, refit=True)
    resumed = fit(data, settings, folder=tmp_path, refit=True, resume=True, observer=Stops(1))
    assert all(torch.equal(tensor, expected.model.state_dict()[name]) for name, tensor in resumed.model.state_dict().items())
    assert resumed.curve == expected.curve


def test_a_folder_is_resumed_only_by_the_same_fit(data: Dataset, tmp_path: Path) -> None:
    settings = Settings.make("fm", "topn", {**PLAIN, "epochs": 1})
    fit(data, settings, folder=tmp_path)
    stamp = json.loads((tmp_path / STAMP).read_text())
    assert (stamp["refit"], stamp["data"], stamp["model"]) == ("none", data.content_hash, "fm")
    others: list[dict[str, Any]] = [{"refit": True}, {"split": "random"}, {"split_options": {"seed": 1}}]
    for options in others:
        name = "refit" if "refit" in options else "split"
        with pytest.raises(OptionError, match=rf"was begun otherwise and cannot be resumed: {name} was \w+ and is \w+\. Give"):
            fit(data, settings, folder=tmp_path, resume=True, **options)
    with pytest.raises(
        OptionError, match=r"resumed: k was 4 and is 5; lr was 0\.003 and is 0\.5\. Give what it was begun with"
    ):
        fit(data, Settings.make("fm", "topn", {**PLAIN, "k": 5, "lr": 0.5}), folder=tmp_path, resume=True)
    fit(data, settings, folder=tmp_path, resume=True)
    (tmp_path / STAMP).write_text('{"settings": 5')
    with pytest.raises(DataError, match=r"fit\.json is damaged .*; begin anew with --force"):
        fit(data, settings, folder=tmp_path, resume=True)


@pytest.mark.parametrize(
    "changed",
    [{"epochs": 4}, {"epochs": 4, "patience": 3}, {"threads": 2, "epochs": 3}],
    ids=lambda changed: ", ".join(changed),
)
def test_how_long_and_on_what_it_is_trained_may_change_on_the_way(
    data: Dataset, changed: dict[str, int], tmp_path: Path
) -> None:
    """Resumed with more epochs, it ends where a training of so many epochs from the start does."""
    fit(data, Settings.make("fm", "topn", {**PLAIN, "epochs": 2}), folder=tmp_path / "resumed")
    longer = Settings.make("fm", "topn", {**PLAIN, **changed})
    resumed = fit(data, longer, folder=tmp_path / "resumed", resume=True)
    whole = fit(data, longer, folder=tmp_path / "whole")
    assert len(resumed.curve) == changed["epochs"]
    if "threads" not in changed:  # which add up in another order
        weights = resumed.model.state_dict()
        assert all(torch.equal(weights[name], tensor) for name, tensor in whole.model.state_dict().items())
        assert resumed.best_epoch == whole.best_epoch


def test_under_a_schedule_over_the_epochs_their_number_stays(data: Dataset, tmp_path: Path) -> None:
    cosine = {**PLAIN, "schedule": "cosine"}
    fit(data, Settings.make("fm", "topn", {**cosine, "epochs": 2}), folder=tmp_path)
    with pytest.raises(OptionError, match=r"cannot be resumed: epochs was 2 and is 4\. Give what it was begun with"):
        fit(data, Settings.make("fm", "topn", {**cosine, "epochs": 4}), folder=tmp_path, resume=True)
    longer = fit(data, Settings.make("fm", "topn", {**cosine, "epochs": 2, "patience": 1}), folder=tmp_path, resume=True)
    assert len(longer.curve) == 2


@pytest.mark.parametrize("after", [2, 5], ids=["in the selection", "in the refit"])
def test_interrupted_the_best_epoch_so_far_is_what_remains(data: Dataset, after: int) -> None:
    settings = Settings.make("fm", "topn", PLAIN)
    stopped = fit(data, settings, refit=True, observer=Stops(after))
    selected = fit(data, Settings.make("fm", "topn", {**PLAIN, "epochs": min(after, 4)}))
    assert stopped.best_epoch == selected.best_epoch
    state = stopped.model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in selected.model.state_dict().items())


def test_interrupted_before_the_first_epoch_nothing_remains(data: Dataset) -> None:
    class AtOnce(NullObserver):
        def on_step(self, done: int, total: int, loss: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(data, Settings.make("fm", "topn", PLAIN), observer=AtOnce())


def test_begun_anew_the_checkpoints_of_before_are_gone(data: Dataset, tmp_path: Path) -> None:
    run = fit(data, Settings.make("fm", "topn", {**PLAIN, "epochs": 3}), folder=tmp_path, refit=True)
    assert list((tmp_path / CHECKPOINTS_OF_REFIT).iterdir())
    assert len(read_curve(tmp_path / CURVE)) == len(run.curve) == 3
    fit(data, Settings.make("fm", "topn", {**PLAIN, "epochs": 1}), folder=tmp_path)
    assert sorted(path.name for path in (tmp_path / CHECKPOINTS).iterdir()) == ["epoch-00001.json", "epoch-00001.safetensors"]
    assert not (tmp_path / CHECKPOINTS_OF_REFIT).exists()
    assert len(read_curve(tmp_path / CURVE)) == 1


def test_the_curve_is_that_of_the_selection_alone(data: Dataset, tmp_path: Path) -> None:
    epochs: list[int] = []

    class Watch(NullObserver):
        def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
            epochs.append(report.epoch)

    run: FittedRun = fit(data, Settings.make("fm", "topn", PLAIN), folder=tmp_path, refit=True, observer=Watch())
    assert [entry["epoch"] for entry in run.curve] == [1, 2, 3, 4]
    assert epochs == [1, 2, 3, 4, *range(1, run.best_epoch + 1)]
    assert read_curve(tmp_path / CURVE) == run.curve


def test_curves_are_written_and_read(tmp_path: Path) -> None:
    curve = [{"epoch": 1, "loss": 0.25, "validation": {"hr@10": 0.5}}, {"epoch": 2, "loss": 0.125, "validation": {}}]
    assert curve_text(curve).count("\n") == 2
    (tmp_path / CURVE).write_text(curve_text(curve))
    assert read_curve(tmp_path / CURVE) == curve
    assert read_curve(tmp_path / "nothing") == []


def test_a_table_larger_than_the_memory_is_refused(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.fitting.plan.free_memory", lambda: 12 * 1000 * 65)
    refuse_too_large(1000, 65)
    with pytest.raises(
        OptionError, match=r"the table of 1,001 rows of 65 numbers takes 0.0 GiB in training and 0.0 GiB are free"
    ):
        refuse_too_large(1001, 65)
    monkeypatch.setattr("gmlfm.fitting.plan.free_memory", lambda: 100)
    with pytest.raises(OptionError, match="lower k, or raise min_count"):
        fit(data, Settings.make("fm", "topn", PLAIN))


def test_a_full_gpu_says_what_to_lower(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("gmlfm.fitting.plan.RowTrainer", full)
    with pytest.raises(
        OptionError, match=r"the GPU's memory is full \(.* rows of 5 numbers, batch_size auto\); lower k or batch_size"
    ):
        fit(data, Settings.make("fm", "topn", PLAIN))


def test_devices_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="device is 'gpu'; expected auto, cpu or cuda"):
        chosen_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen_device("auto") == chosen_device("cpu") == "cpu"
    with pytest.raises(OptionError, match="device is 'cuda', but there is none here; use auto or cpu"):
        chosen_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (chosen_device("auto"), chosen_device("cpu"), chosen_device("cuda")) == ("cuda", "cpu", "cuda")
