"""One trial: what ends it, what it counts as, what it tells of its cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gmlfm import Dataset, Recommender, load_dataset
from gmlfm.errors import OptionError
from gmlfm.evaluation.protocols import Evaluation
from gmlfm.training.trainer import EpochReport
from gmlfm.tuning.budget import Finals
from gmlfm.tuning.search import Search
from gmlfm.tuning.trial import Clock, OutOfTimeError, run_trial
from tests.contracts.checkerboard import checkerboard

QUICK = {"history": "none", "k": 4, "epochs": 3, "patience": 9, "batch_size": 200}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def search(data: Dataset, model: str = "fm", **more: Any) -> Search:
    return Search(data, model, Path("unused"), threads=1, **more)


def test_a_clock_ends_a_trial_when_its_seconds_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("gmlfm.tuning.trial.time.perf_counter", lambda: now[0])
    clock = Clock(3.0)
    now[0] = 2.9
    clock.on_step(1, 2, 0.0)
    now[0] = 3.1
    with pytest.raises(OutOfTimeError):
        clock.on_step(1, 2, 0.0)
    Clock(None).on_step(1, 2, 0.0)


@pytest.mark.parametrize(("seconds", "warm_up"), [([], 0.0), ([9.0], 0.0), ([9.0, 1.0, 2.0, 3.0], 7.0), ([1.0, 2.0], 0.0)])
def test_the_first_epoch_tells_what_a_process_does_once(seconds: list[float], warm_up: float) -> None:
    clock = Clock(None)
    for number, epoch_seconds in enumerate(seconds, 1):
        report = EpochReport(number, 0.5, {"ndcg@10": 0.1}, number == 1, epoch_seconds, 1.0)
        clock.on_epoch(report, trainer=None)  # type: ignore[arg-type]
    cost = clock.cost(20.0)
    assert (cost.seconds, cost.epochs, cost.best_epoch, cost.warm_up) == (20.0, len(seconds), min(1, len(seconds)), warm_up)


def test_a_trial_cut_short_counts_by_its_best_epoch_and_fails_without_one(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_trial(search(data), QUICK, None, None)
    assert (whole.error, whole.cost.epochs) == ("", 3)

    def ends_in_the_second_epoch(self: Clock, done: int, total: int, loss: float) -> None:
        if self.epochs == 1:
            raise OutOfTimeError

    monkeypatch.setattr(Clock, "on_step", ends_in_the_second_epoch)
    cut = run_trial(search(data), QUICK, None, None)
    assert (cut.error, cut.cost.epochs, cut.cost.best_epoch) == ("", 1, 1)
    assert cut.validation == run_trial(search(data), {**QUICK, "epochs": 1}, None, None).validation
    monkeypatch.undo()
    failed = run_trial(search(data), QUICK, 0.0, None)
    assert (failed.validation, failed.error) == ({}, "the budget ended before the first epoch did")


def test_the_cost_of_what_follows_is_measured_where_it_is_asked_for(data: Dataset) -> None:
    finals = Finals(3, True, "full")
    result = run_trial(search(data, "item-knn"), {}, None, finals)
    n_train = 40 * 13  # fifteen positives a user, two of them held out
    assert result.cost.rows_ratio == (n_train + 40) / n_train
    assert result.cost.test_seconds == result.cost.measuring_seconds > 0  # as many rows are tested as validated
    assert (result.cost.epochs, result.cost.best_epoch) == (0, 0)
    plain = run_trial(search(data, "item-knn"), {}, None, None).cost
    assert (plain.rows_ratio, plain.test_seconds, plain.spent) == (0.0, 0.0, plain.seconds)


def test_the_test_part_is_not_looked_at_to_measure_what_it_takes(market: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, evaluate, data = [], Recommender.evaluate, load_dataset(market)

    def recorded(self: Recommender, **options: Any) -> Evaluation:
        parts.append((options["protocol"], options["part"]))
        return evaluate(self, **options)

    monkeypatch.setattr(Recommender, "evaluate", recorded)
    finals = Finals(3, True, "full")
    assert not run_trial(search(data, "item-knn"), {}, None, finals).error
    assert parts == [("full", "validation")]
    assert not run_trial(search(data, "item-knn", preset="paper"), {}, None, finals).error
    assert parts[1:] == [("full", "test")]  # whose choices are made there, and whose validation rows are trained on


def test_wrong_use_is_raised_and_a_failure_is_told(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="holds out no validation rows, so nothing can be chosen on them"):
        run_trial(search(data, "item-knn", split="none"), {}, None, None)
    monkeypatch.setattr("gmlfm.models.ease.free_memory", lambda: 100)
    result = run_trial(search(data, "ease"), {}, None, None)
    assert "ease inverts a matrix" in result.error
    assert result.validation == {}
