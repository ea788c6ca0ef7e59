from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gmlfm import load_dataset
from gmlfm.cli import main
from gmlfm.data.sources.bazaar import Market, write_bazaar
from gmlfm.errors import GmlfmError, OptionError
from gmlfm.evaluation.significance import compare as compare_queries
from gmlfm.models.registry import MODELS
from gmlfm.models.spaces import Choice, Real
from gmlfm.training.settings import Settings
from gmlfm.tuning.comparison import Plan, compare, read_comparison
from gmlfm.tuning.spaces import defaults, search_space
from gmlfm.tuning.study import Budget, Search, tune
from gmlfm.tuning.table import markdown
from tests.contracts.checkerboard import checkerboard


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("market") / "m"
    write_bazaar(Market(n_users=120, n_purchases=1_200), folder)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_every_point_of_every_space_is_a_valid_setting(name: str) -> None:
    for task in MODELS[name].tasks:
        space = search_space(name, task)
        for setting, one in space.items():
            for value in one.values if isinstance(one, Choice) else (one.low, one.high):
                Settings.make(name, task, {setting: value})
        begin = defaults(name, task, space)
        assert set(begin) <= set(space)
        if MODELS[name].make is not None:
            assert len(begin) == len(space), "the first trial is the model's own defaults, whole"


def test_borders() -> None:
    assert Choice((1, 2, 4)).at_border(4)
    assert not Choice((0.0, 0.1, 0.2)).at_border(0.0)
    assert not Choice(("a", "b")).at_border("a")
    assert Real(1e-4, 1.0).at_border(1.1e-4)
    assert not Real(1e-4, 1.0).at_border(1e-2)


def test_a_search_finds_what_is_better_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    search = Search(checkerboard(), "item-knn", tmp_path)
    first = tune(search, Budget(trials=2))
    assert first.trials == 2
    again = tune(search, Budget(trials=5))
    assert again.trials == 5
    assert again.validation["ndcg@10"] >= first.validation["ndcg@10"]
    assert tune(search, Budget(trials=5)) == again
    # The same search from the beginning, not stopped, tries the same settings.
    assert tune(replace(search, folder=tmp_path / "other"), Budget(trials=5)).settings == again.settings
    with pytest.raises(OptionError, match="a study of other data or another task"):
        tune(replace(search, seed=1), Budget(trials=1))


def test_a_budget_of_seconds_is_kept_and_what_was_reached_counts(market: Path, tmp_path: Path) -> None:
    search = Search(load_dataset(market), "gml-fm", tmp_path, threads=1)
    found = tune(search, Budget(seconds=4.0))
    assert found.trials >= 1
    assert found.seconds < 15  # a step and a validation may end after the bell
    assert set(found.validation) == {"hr@10", "ndcg@10"}


def test_a_method_that_cannot_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.models.simple.free_memory", lambda: 100)
    found = compare(checkerboard(), Plan(("ease", "popularity", "item-knn"), seeds=1), Budget(trials=2), tmp_path)
    assert [row.model for row in found.rows] == ["item-knn", "popularity"]
    assert "ease inverts a matrix" in found.failures["ease"]
    assert "`ease` could not take part" in markdown(found)


def test_the_table_is_what_is_stored(tmp_path: Path) -> None:
    data = checkerboard()
    plan = Plan(("popularity", "item-knn", "mf"), seeds=2)
    found = compare(data, plan, Budget(trials=2), tmp_path, threads=1)
    assert read_comparison(data, tmp_path) == found
    assert compare(data, plan, Budget(trials=2), tmp_path, threads=1) == found  # nothing is left to do
    by_name = {row.model: row for row in found.rows}
    assert found.rows[0].means["ndcg@10"] == max(row.means["ndcg@10"] for row in found.rows)
    best, second = found.rows[0], found.rows[1]
    assert (best.against, second.against) == (second.model, best.model)
    queries = {
        name: np.mean([_column(tmp_path / "results" / f"{name}-{seed}.parquet") for seed in range(2)], axis=0)
        for name in by_name
    }
    expected = compare_queries(queries[best.model], queries[second.model])
    assert best.difference == pytest.approx(expected.difference)
    assert best.p_value == pytest.approx(expected.t_test)
    assert best.low <= best.means["ndcg@10"] <= best.high
    with pytest.raises(OptionError, match="holds another comparison"):
        compare(data, replace(plan, seeds=3), Budget(trials=2), tmp_path)


def _column(path: Path) -> np.ndarray:
    import polars as pl

    return pl.read_parquet(path)["ndcg@10"].to_numpy()


def test_ratings_are_compared_by_rmse(tmp_path: Path) -> None:
    found = compare(checkerboard(), Plan(("mf", "gml-fm"), "rating", "random", seeds=1), Budget(trials=1), tmp_path, threads=1)
    assert found.metric == "rmse"
    assert found.rows[0].means["rmse"] <= found.rows[1].means["rmse"]
    assert found.rows[0].low <= found.rows[0].means["rmse"] <= found.rows[0].high
    assert found.rows[0].difference <= 0


def test_the_papers_grid() -> None:
    space = search_space("gml-fm-dnn", "topn", "paper")
    assert space["lr"] == Choice((0.0001, 0.001, 0.01, 0.1))
    assert set(space) == {"lr", "dropout", "layers", "k"}
    assert set(search_space("gml-fm-md", "topn", "paper")) >= {"lr", "k"}


def test_the_commands(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t"
    command = ["tune", str(market), "--model", "item-knn", "--out", str(out), "--trials", "3", "--threads", "1"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(command) == 0
    assert "gmlfm train" in capsys.readouterr().out
    run = str(tmp_path / "run")
    assert main(["train", str(market), "--model", "item-knn", "--config", str(out / "best.toml"), "--out", run]) == 0
    kept = json.loads((tmp_path / "run" / "model" / "run.json").read_text())["settings"]
    assert {name: kept[name] for name in found["settings"]} == found["settings"]
    both = [
        "compare",
        str(market),
        "--models",
        "item-knn,popularity",
        "--out",
        str(tmp_path / "c"),
        "--trials",
        "2",
        "--seeds",
        "1",
    ]
    capsys.readouterr()
    assert main(both) == 0
    shown = capsys.readouterr().out
    assert "item-knn" in shown
    table = (tmp_path / "c" / "table.md").read_text()
    assert main(both) == 0
    assert (tmp_path / "c" / "table.md").read_text() == table
    assert (tmp_path / "c" / "picture.svg").read_text().startswith("<svg")
    assert "<table>" in (tmp_path / "c" / "table.html").read_text()
    for arguments, message in (
        (["compare", str(market), "--models", "fm", "--out", run], "name two or more"),
        (["compare", str(market), "--models", "fm,item-kn", "--out", run], "did you mean 'item-knn'"),
        (["compare", str(market), "--models", "fm,mamo", "--out", run], "cannot do the task 'topn'"),
        (["tune", str(market), "--out", run, "--trials", "1", "--seconds", "1"], "not both"),
        (["tune", str(market), "--out", run, "--seconds", "-1"], "above 0"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_killed_in_the_middle_a_comparison_goes_on_to_its_table(market: Path, tmp_path: Path) -> None:
    def command(out: str) -> list[str]:
        models = ["--models", "popularity,item-knn,ease", "--trials", "4", "--seeds", "1", "--threads", "1"]
        return [sys.executable, "-m", "gmlfm", "compare", str(market), "--out", str(tmp_path / out), *models]

    process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = tmp_path / "killed" / "studies" / "item-knn" / "study.journal"
    deadline = time.monotonic() + 60
    while not journal.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "table.md").exists()
    subprocess.run(command("killed"), check=True, capture_output=True)
    table = (tmp_path / "killed" / "table.md").read_text()
    found = read_comparison(load_dataset(market), tmp_path / "killed")
    assert {row.model: row.trials for row in found.rows} == {"popularity": 1, "item-knn": 4, "ease": 4}
    assert markdown(found) == table


def test_wrong_plans_are_refused() -> None:
    for call, message in (
        (lambda: Budget(), "either trials or seconds"),
        (lambda: Budget(1, 1.0), "either trials or seconds"),
        (lambda: Plan(("fm", "fm")).check(), "each once"),
        (lambda: Plan(("fm", "mf"), seeds=0).check(), "seeds is 0"),
        (lambda: search_space("ease", "topn", "paper"), "trains by gradients"),
    ):
        with pytest.raises(GmlfmError, match=message):
            call()
