"""Several methods under one budget each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, load_dataset
from gmlfm.cli import main
from gmlfm.errors import OptionError
from gmlfm.evaluation.significance import compare as compare_queries
from gmlfm.models.item_knn import ItemKNN
from gmlfm.models.settings import Choice
from gmlfm.tuning import Budget, Comparison, Plan, Search, compare, tune
from gmlfm.tuning.budget import Cost, Finals
from gmlfm.tuning.rows import read_comparison
from gmlfm.tuning.table import headings, markdown, text_rows
from gmlfm.tuning.trial import TrialResult, run_trial
from tests.contracts.checkerboard import checkerboard


class ForeignKNN(ItemKNN):
    """A model of somebody else's."""


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def test_a_method_that_cannot_is_named_and_the_others_go_on(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gmlfm.models.ease.free_memory", lambda: 100)
    comparison = compare(data, Plan(("ease", "popularity", "item-knn"), seeds=1), Budget(trials=2), tmp_path)
    assert [row.model for row in comparison.rows] == ["item-knn", "popularity"]
    assert "ease inverts a matrix" in comparison.failures["ease"]
    assert "ease could not take part" in markdown(comparison)


def test_the_table_is_what_is_stored(data: Dataset, tmp_path: Path) -> None:
    plan = Plan(("popularity", "item-knn", "mf"), seeds=2)
    comparison = compare(data, plan, Budget(trials=2), tmp_path, threads=1)
    assert read_comparison(data, tmp_path) == comparison
    assert compare(data, plan, Budget(trials=2), tmp_path, threads=1) == comparison  # nothing is left to do
    assert comparison.rows[0].means["ndcg@10"] == max(row.means["ndcg@10"] for row in comparison.rows)
    best, second = comparison.rows[0], comparison.rows[1]
    assert (best.against, second.against) == (second.model, best.model)
    results = tmp_path / "results"
    queries = {
        row.model: np.mean(
            [pl.read_parquet(results / f"{row.model}-{seed}.parquet")["ndcg@10"].to_numpy() for seed in range(2)], axis=0
        )
        for row in comparison.rows
    }
    expected = compare_queries(queries[best.model], queries[second.model])
    assert best.difference == pytest.approx(expected.difference)
    assert best.p_value == pytest.approx(expected.t_test)
    assert best.low <= best.means["ndcg@10"] <= best.high
    with pytest.raises(OptionError, match="holds another comparison"):
        compare(data, replace(plan, seeds=3), Budget(trials=2), tmp_path)


def test_a_model_from_elsewhere_takes_part(data: Dataset, tmp_path: Path) -> None:
    name = f"{__name__}:ForeignKNN"
    comparison = compare(data, Plan(("item-knn", name), seeds=1), Budget(trials=1), tmp_path)
    assert not comparison.failures
    means = {row.model: row.means["ndcg@10"] for row in comparison.rows}
    assert means[name] == means["item-knn"]


def test_ratings_are_compared_by_rmse(data: Dataset, tmp_path: Path) -> None:
    plan = Plan(("mf", "gml-fm"), "rating", "random", seeds=1)
    comparison = compare(data, plan, Budget(trials=1), tmp_path, threads=1)
    assert comparison.metric == "rmse"
    assert comparison.rows[0].means["rmse"] <= comparison.rows[1].means["rmse"]
    assert comparison.rows[0].low <= comparison.rows[0].means["rmse"] <= comparison.rows[0].high
    assert comparison.rows[0].difference <= 0


def test_what_was_tested_is_what_is_shown(data: Dataset, tmp_path: Path) -> None:
    """A study that goes on later must not change the row of a comparison that was tested before."""
    plan = Plan(("popularity", "item-knn"), seeds=1)
    comparison = compare(data, plan, Budget(trials=1), tmp_path)
    tune(Search(data, "item-knn", tmp_path / "studies" / "item-knn"), Budget(trials=6))
    assert compare(data, plan, Budget(trials=1), tmp_path) == comparison


def test_a_damaged_result_is_made_again(data: Dataset, tmp_path: Path) -> None:
    plan = Plan(("popularity", "item-knn"), seeds=1)
    comparison = compare(data, plan, Budget(trials=1), tmp_path)
    (tmp_path / "results" / "item-knn-0.parquet").write_bytes(b"PAR1")
    assert without_seconds(compare(data, plan, Budget(trials=1), tmp_path)) == without_seconds(comparison)


def without_seconds(comparison: Comparison) -> Comparison:
    return replace(comparison, rows=tuple(replace(row, seconds=0.0, final_seconds=0.0) for row in comparison.rows))


def with_costs(monkeypatch: pytest.MonkeyPatch, seconds: Mapping[str, float]) -> dict[str, list[float | None]]:
    """Trials that take these seconds by their own account, as long as they are not cut; and the limits each was given."""
    limits: dict[str, list[float | None]] = {model: [] for model in seconds}

    def timed(search: Search, chosen: Mapping[str, Any], limit: float | None, finals: Finals | None) -> TrialResult:
        limits[search.model].append(limit)
        result = run_trial(search, chosen, None, None)
        took = seconds[search.model] if limit is None else min(limit, seconds[search.model])
        return replace(
            result, cost=Cost(took, rows_ratio=1.0, test_seconds=0.5, measuring_seconds=0.5) if finals else Cost(took)
        )

    monkeypatch.setattr("gmlfm.tuning.study.run_trial", timed)
    return limits


def test_the_seconds_are_shared_equally_and_cover_the_final_trainings(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_costs(monkeypatch, {"item-knn": 1.0, "ease": 2.0, "popularity": 1.0})
    notes: list[str] = []
    plan = Plan(("item-knn", "ease", "popularity"), seeds=2)
    comparison = compare(data, plan, Budget(seconds=60.0), tmp_path, note=notes.append)
    # A share of 20: 0.5 measure the test; two final trainings of 1 or 2 seconds and their tests of 0.5 are set apart.
    trials = {row.model: row.trials for row in comparison.rows}
    assert trials == {"item-knn": 16, "ease": 7, "popularity": 1}
    searched = {row.model: row.search_seconds for row in comparison.rows}
    assert searched == pytest.approx({"item-knn": 16.5, "ease": 14.5, "popularity": 1.5})
    assert notes == []
    assert comparison.share == 20.0
    assert "60 seconds in all, 20 a method for its search and its final trainings" in markdown(comparison)
    assert all(row.final_seconds > 0 and row.seconds == row.search_seconds + row.final_seconds for row in comparison.rows)


def test_a_method_that_needs_more_than_its_share_gets_the_least_trials_and_all_are_told_first(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = with_costs(monkeypatch, {"item-knn": 100.0, "popularity": 0.1})
    events: list[str] = []
    plan = Plan(("item-knn", "popularity"), seeds=2, refit=False)
    comparison = compare(
        data,
        plan,
        Budget(seconds=20.0),
        tmp_path,
        note=events.append,
        tested=lambda model, seed: events.append(f"test {model} {seed}"),
    )
    assert events[0] == (
        "3 trials and 2 final trainings take more than a method's 10 seconds (by a first trial: item-knn 502) and are made all "
        "the same; about --seconds 1,003 would do."  # 3 x 100 + 0.5 + 2 x (100 + 0.5)
    )
    assert [event for event in events[1:] if not event.startswith("test")] == []
    rows = {row.model: row for row in comparison.rows}
    assert (rows["item-knn"].trials, rows["popularity"].trials) == (3, 1)
    assert limits["item-knn"] == [None] * 3  # whole
    seconds = headings(comparison).index("seconds: search + final")
    shown = {cells[0]: cells[seconds] for cells in text_rows(comparison)}
    assert shown["item-knn"].startswith("300 + ")
    assert shown["item-knn"].endswith("(share 10)")
    assert "share" not in shown["popularity"]


def test_a_comparison_of_seconds_goes_on_where_it_stopped(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = {"item-knn": 1.0, "popularity": 1.0}
    plan, budget = Plan(("item-knn", "popularity"), seeds=1), Budget(seconds=20.0)
    with_costs(monkeypatch, costs)
    expected = without_seconds(compare(data, plan, budget, tmp_path / "whole"))

    class Stopped(Exception):
        pass

    def stops(model: str, n_trials: int, seconds: float) -> None:
        if model == "item-knn" and n_trials == 4:
            raise Stopped

    with pytest.raises(Stopped):
        compare(data, plan, budget, tmp_path / "stopped", report=stops)
    assert without_seconds(compare(data, plan, budget, tmp_path / "stopped")) == expected


def test_settings_are_fixed_for_all_or_for_a_model(data: Dataset, tmp_path: Path) -> None:
    settings = {"k": "4", "epochs": "1", "fm.k": "2"}
    plan = Plan(("fm", "mf", "popularity"), seeds=1, settings=settings)
    comparison = compare(data, plan, Budget(trials=1), tmp_path, threads=1)
    fixed = {row.model: row.fixed for row in comparison.rows}
    assert fixed == {"fm": {"k": 2, "epochs": 1}, "mf": {"k": 4, "epochs": 1}, "popularity": {}}
    assert not any(set(row.fixed) & set(row.settings) for row in comparison.rows)
    cells = {row[0]: row[-1] for row in text_rows(comparison)}
    assert headings(comparison)[-1] == "fixed settings"
    assert cells == {"fm": "epochs=1, k=2", "mf": "epochs=1, k=4", "popularity": "-"}
    # The same values go on, however they are written; others are another comparison.
    same = replace(plan, settings={"fm.k": 2, "mf.k": 4, "epochs": 1})
    assert compare(data, same, Budget(trials=1), tmp_path, threads=1) == comparison
    message = r"holds another comparison \(the fixed settings: .*fm.k=2, .* there, .*fm.k=4, .* here\); choose a new folder"
    with pytest.raises(OptionError, match=message):
        compare(data, replace(plan, settings={"k": "4", "epochs": "1"}), Budget(trials=1), tmp_path)


def test_a_comparison_does_not_go_on_with_other_spaces_or_seconds(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(("popularity", "item-knn"), seeds=1)
    compare(data, plan, Budget(trials=1), tmp_path)
    with pytest.raises(
        OptionError, match=r"holds another comparison \(budget: 1 trials a method there, 2 trials a method here"
    ):
        compare(data, plan, Budget(trials=2), tmp_path)
    monkeypatch.setattr("gmlfm.tuning.search.search_space", lambda *arguments, **choices: {"shrink": Choice((0.0,))})
    with pytest.raises(OptionError, match=r"holds another comparison \(the search spaces differ\)"):
        compare(data, plan, Budget(trials=1), tmp_path)


def test_what_is_fitted_at_once_takes_part_under_the_preset(market: Path, tmp_path: Path) -> None:
    plan = Plan(("popularity", "ease", "mf"), protocol="paper", seeds=1, preset="paper", settings={"epochs": "1"})
    comparison = compare(load_dataset(market), plan, Budget(trials=1), tmp_path, threads=1)
    assert not comparison.failures
    by_model = {row.model: row for row in comparison.rows}
    # The choice is made on the test part by the protocol of the test: the two figures are one number.
    for model in ("popularity", "ease"):
        assert by_model[model].validation == pytest.approx(by_model[model].means["ndcg@10"])


_KILLS_ITSELF = """
import os, signal, sys
from gmlfm.cli import main
from gmlfm.recommender import Recommender
fit, n_fits = Recommender.fit, 0
def fit_or_die(self, *arguments, **options):
    global n_fits
    n_fits += self.settings.model == "item-knn"
    if n_fits == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return fit(self, *arguments, **options)
Recommender.fit = fit_or_die
main(sys.argv[1:])
"""


def test_killed_in_the_middle_a_comparison_goes_on_to_its_table(market: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    models = ["--models", "popularity,item-knn,ease", "--trials", "4", "--seeds", "1", "--threads", "1"]
    command = ["compare", str(market), "--out", str(out), *models]
    killed = subprocess.run([sys.executable, "-c", _KILLS_ITSELF, *command], capture_output=True)
    assert killed.returncode == -9
    assert (out / "studies" / "item-knn" / "study.journal").exists()
    assert not (out / "table.md").exists()
    assert main(command) == 0
    comparison = read_comparison(load_dataset(market), out)
    assert {row.model: row.trials for row in comparison.rows} == {"popularity": 1, "item-knn": 4, "ease": 4}
    assert markdown(comparison) == (out / "table.md").read_text()


def test_the_command(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    command = ["compare", str(market), "--models", "item-knn,popularity", "--out", str(out), "--trials", "2", "--seeds", "1"]
    assert main(command) == 0
    assert "item-knn" in capsys.readouterr().out
    table = (out / "table.md").read_text()
    assert main(command) == 0
    assert (out / "table.md").read_text() == table
    assert ElementTree.fromstring((out / "picture.svg").read_text()).tag.endswith("svg")
    assert "<table>" in (out / "table.html").read_text()
    for models, message in (
        ("fm", "name two or more"),
        ("fm,item-kn", "did you mean 'item-knn'"),
        ("fm,mamo", "cannot do the task 'topn'"),
    ):
        assert main(["compare", str(market), "--models", models, "--out", str(tmp_path / "wrong")]) == 2
        assert message in capsys.readouterr().err


def test_wrong_use_leaves_no_trace(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    command = ["compare", str(market), "--models", "popularity,item-knn", "--trials", "1", "--seeds", "1", "--out", str(out)]
    for more, message in (
        (["--split", "leav-one-out"], "did you mean 'leave-one-out'"),
        (["--device", "gpu"], "device is 'gpu'"),
        (["--threads", "0"], "threads is 0"),
        (["--trials", "0"], "above 0"),
        (["--set", "k=32"], "none of popularity, item-knn has a setting 'k'"),
    ):
        assert main([*command, *more]) == 2
        assert message in capsys.readouterr().err
        assert not out.exists()
    assert main(command) == 0
    capsys.readouterr()
    # A comparison's folder is no study's.
    assert main(["tune", str(market), "--model", "item-knn", "--trials", "1", "--out", str(out)]) == 2
    assert "holds other files" in capsys.readouterr().err
