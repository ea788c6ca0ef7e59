"""Several methods under one budget each."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, load_dataset
from gmlfm.cli import main
from gmlfm.errors import GmlfmError, OptionError
from gmlfm.evaluation.significance import compare as compare_queries
from gmlfm.models.item_knn import ItemKNN
from gmlfm.tuning.comparison import Plan, compare, read_comparison
from gmlfm.tuning.study import Budget, Search, tune
from gmlfm.tuning.table import markdown
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
    assert "`ease` could not take part" in markdown(comparison)


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
    assert compare(data, plan, Budget(trials=1), tmp_path) == comparison


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


def test_wrong_plans_are_refused() -> None:
    for plan, message in (
        (Plan(("fm",)), "name two or more, each once"),
        (Plan(("fm", "fm")), "each once"),
        (Plan(("fm", "mf"), seeds=0), "seeds is 0; expected 1 or more"),
        (Plan(("fm", "mamo")), "the model 'mamo' cannot do the task 'topn'; leave it out"),
        (Plan(("fm", "mf"), split="randm"), "did you mean 'random'"),
        (Plan(("fm", "mf"), protocol="ful"), "did you mean 'full'"),
        (Plan(("fm", "mf"), preset="papr"), "did you mean 'paper'"),
    ):
        with pytest.raises(GmlfmError, match=message):
            plan.check()


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
    ):
        assert main([*command, *more]) == 2
        assert message in capsys.readouterr().err
        assert not out.exists()
    assert main(command) == 0
    capsys.readouterr()
    # A comparison's folder is no study's.
    assert main(["tune", str(market), "--model", "item-knn", "--trials", "1", "--out", str(out)]) == 2
    assert "holds other files" in capsys.readouterr().err
