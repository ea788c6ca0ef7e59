"""Whether a method still rises where its training ends, and what it is given then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gmlfm import Dataset, Recommender
from gmlfm.models.settings import Choice
from gmlfm.training.options import TrainingOptions
from gmlfm.tuning import Budget, Plan, Search, compare, tune
from gmlfm.tuning.budget import Cost, Finals
from gmlfm.tuning.results import Results
from gmlfm.tuning.rising import CUT_SHORT, LAST_EPOCH, MOST_EPOCHS, final_epochs, rises, searched_epochs
from gmlfm.tuning.study import Tuned
from gmlfm.tuning.table import headings, legend, text_rows
from gmlfm.tuning.trial import Clock, OutOfTimeError, TrialResult, run_trial
from tests.contracts.checkerboard import checkerboard

CONSTANT = TrainingOptions(epochs=10)
COSINE = TrainingOptions(epochs=20, schedule="cosine")
TUNED = Tuned("fm", "topn", None, {}, {}, {"ndcg@10": 0.5}, 3, 0, 12.0, [])


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def cost(epochs: int, best: int, is_cut_short: bool = False) -> Cost:
    return Cost(1.0, epochs, best, is_cut_short=is_cut_short)


def test_at_a_constant_rate_the_validation_curve_tells() -> None:
    for of_trial, expected in (
        (cost(10, 10), LAST_EPOCH),
        (cost(10, 9), ""),
        (cost(6, 3), ""),  # patience ended it
        (cost(6, 6), ""),  # it diverged
        (cost(6, 6, True), CUT_SHORT),
        (cost(6, 5, True), ""),
        (Cost(1.0), ""),  # fitted at once
    ):
        assert rises(of_trial, CONSTANT, {}) == expected


def test_under_a_cosine_the_last_epoch_says_nothing() -> None:
    searched = {"epochs": Choice((5, 10, 20))}
    for of_trial, space, expected in (
        (cost(20, 20), {}, ""),  # epochs are fixed: nothing can be told
        (cost(20, 20), searched, MOST_EPOCHS),
        (cost(20, 18), searched, MOST_EPOCHS),
        (cost(14, 9), searched, ""),  # patience ended it
        (cost(14, 9, True), searched, CUT_SHORT),
        (cost(14, 14, True), {}, CUT_SHORT),
    ):
        assert rises(of_trial, COSINE, space) == expected
    assert rises(cost(10, 10), replace(COSINE, epochs=10), searched) == ""


def test_epochs_are_searched_where_a_cosine_has_to_end() -> None:
    assert searched_epochs(COSINE) == Choice((10, 20, 40))
    assert searched_epochs(CONSTANT) is None
    assert searched_epochs(replace(COSINE, epochs=1)) is None


def test_half_as_many_epochs_again_are_given_for_seconds() -> None:
    for tuned, expected in (
        (TUNED, 0),
        (replace(TUNED, epochs=7, most_epochs=7, rises=LAST_EPOCH), 11),
        (replace(TUNED, epochs=40, most_epochs=40, rises=MOST_EPOCHS), 60),
        (replace(TUNED, epochs=6, most_epochs=50, rises=CUT_SHORT), 9),
        (replace(TUNED, epochs=6, most_epochs=8, rises=CUT_SHORT), 8),  # no more than its settings have
        (replace(TUNED, epochs=7, most_epochs=7, rises=LAST_EPOCH, preset="paper"), 0),
    ):
        assert final_epochs(tuned, by_seconds=True) == expected
        assert final_epochs(tuned, by_seconds=False) == 0


def test_a_trial_that_the_seconds_cut_short_says_so(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(data, "fm", Path("unused"), threads=1)
    quick = {"k": 4, "epochs": 3, "patience": 9, "batch_size": 200}
    assert not run_trial(search, quick, None, None).cost.is_cut_short

    def ends_in_the_second_epoch(self: Clock, done: int, total: int, loss: float) -> None:
        if self.epochs == 1:
            raise OutOfTimeError

    monkeypatch.setattr(Clock, "on_step", ends_in_the_second_epoch)
    cut = run_trial(search, quick, None, None).cost
    assert (cut.is_cut_short, cut.epochs) == (True, 1)


def test_a_search_keeps_how_its_best_trial_ended(data: Dataset, tmp_path: Path) -> None:
    settings = {"k": "2", "epochs": "2", "patience": "9", "schedule": "constant"}
    tuned = tune(Search(data, "fm", tmp_path, settings=settings, threads=1), Budget(trials=1))
    assert (tuned.epochs, tuned.most_epochs) == (2, 2)
    best_epoch = tuned.recommender(0, threads=1).fit(data).fitted.best_epoch
    assert tuned.rises == (LAST_EPOCH if best_epoch == 2 else "")
    at_once = tune(Search(data, "item-knn", tmp_path / "knn"), Budget(trials=1))
    assert (at_once.epochs, at_once.most_epochs, at_once.rises) == (0, 0, "")


def rising(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Every trial of fm is best at its last epoch; and the model, the epochs and the seed of each fit."""
    fits: list[tuple[str, int, int]] = []
    fit = Recommender.fit

    def recorded(self: Recommender, *arguments: Any, **options: Any) -> Recommender:
        fits.append((self.settings.model, self.settings.training.epochs, self.settings.training.seed))
        return fit(self, *arguments, **options)

    def timed(search: Search, chosen: Mapping[str, Any], limit: float | None, finals: Finals | None) -> TrialResult:
        result = run_trial(search, chosen, None, None)
        epochs = 2 if search.model == "fm" else 0
        return replace(result, cost=Cost(1.0, epochs, epochs, rows_ratio=1.0, test_seconds=0.1, measuring_seconds=0.1))

    monkeypatch.setattr(Recommender, "fit", recorded)
    monkeypatch.setattr("gmlfm.tuning.study.run_trial", timed)
    return fits


SETTINGS = {"fm.k": "2", "fm.epochs": "2", "fm.patience": "9", "fm.schedule": "constant"}


def test_a_method_that_still_rises_when_its_seconds_end_gets_more_and_the_table_shows_it(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = rising(monkeypatch)
    plan = Plan(("fm", "item-knn"), seeds=2, settings=SETTINGS)
    comparison = compare(data, plan, Budget(seconds=14.0), tmp_path, threads=1)
    assert fits[-2:] == [("item-knn", 50, 0), ("item-knn", 50, 1)]
    of_fm = [fit for fit in fits if fit[0] == "fm"]
    assert [epochs for _, epochs, _ in of_fm[:-2]] == [2] * (len(of_fm) - 2)
    assert of_fm[-2:] == [("fm", 3, 0), ("fm", 3, 1)]
    final = Results(tmp_path).final("fm", 1)
    assert (final.epochs, final.given) == (3, 3)
    row = next(row for row in comparison.rows if row.model == "fm")
    assert (row.epochs, row.rises, row.given_epochs) == (2, LAST_EPOCH, 3)
    cells = {cells[0]: dict(zip(headings(comparison), cells, strict=True)) for cells in text_rows(comparison)}
    assert cells["fm"]["still rising"].startswith("best at its last of 2 epochs; given 3")
    assert cells["item-knn"]["still rising"] == "-"
    assert "A method still rises where" in legend(comparison)
    assert "given up to 1.5 times the epochs" in legend(comparison)
    assert compare(data, plan, Budget(seconds=14.0), tmp_path, threads=1) == comparison  # nothing is left to do


def test_under_trials_it_is_marked_and_gets_no_more(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = rising(monkeypatch)
    comparison = compare(data, Plan(("fm", "item-knn"), seeds=1, settings=SETTINGS), Budget(trials=1), tmp_path, threads=1)
    assert [epochs for model, epochs, _ in fits if model == "fm"] == [2, 2]
    cells = {cells[0]: dict(zip(headings(comparison), cells, strict=True)) for cells in text_rows(comparison)}
    assert cells["fm"]["still rising"].startswith("best at its last of 2 epochs")
    assert "given" not in cells["fm"]["still rising"]
    assert "given up to" not in legend(comparison)


def test_where_nothing_rises_there_is_no_column(data: Dataset, tmp_path: Path) -> None:
    comparison = compare(data, Plan(("popularity", "item-knn"), seeds=1), Budget(trials=1), tmp_path)
    assert "still rising" not in headings(comparison)
    assert "still rises" not in legend(comparison)


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_final_training_that_is_best_at_its_last_epoch_is_told_at_a_constant_rate(
    schedule: str, data: Dataset, tmp_path: Path
) -> None:
    settings = {"fm.k": "2", "fm.epochs": "1", "fm.schedule": schedule}
    comparison = compare(data, Plan(("fm", "item-knn"), seeds=2, settings=settings), Budget(trials=1), tmp_path, threads=1)
    row = next(row for row in comparison.rows if row.model == "fm")
    assert (row.rises, row.rising_seeds) == ((LAST_EPOCH, 2) if schedule == "constant" else ("", 0))
    assert ("still rising" in headings(comparison)) == (schedule == "constant")
    if schedule == "constant":
        cells = {cells[0]: dict(zip(headings(comparison), cells, strict=True)) for cells in text_rows(comparison)}
        assert cells["fm"]["still rising"] == "best at its last of 1 epochs; 2 of 2 final ones best at their last epoch"
