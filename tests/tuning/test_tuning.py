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
from gmlfm.tuning.study import Budget, Search, _Clock, _OutOfTimeError, tune
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


def test_a_trial_that_the_bell_ends_counts_with_what_it_had_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends_after_an_epoch(self: _Clock, done: int, total: int, loss: float) -> None:
        if self.best:
            raise _OutOfTimeError

    monkeypatch.setattr(_Clock, "on_step", ends_after_an_epoch)
    found = tune(Search(checkerboard(), "gml-fm", tmp_path, threads=1), Budget(trials=1))
    assert found.trials == 1
    assert set(found.validation) == {"hr@10", "ndcg@10"}
    assert [Budget(seconds=5).left(100, spent) for spent in (4.9, 5.0)] == [True, False]
    assert [Budget(trials=5).left(done, 1e9) for done in (4, 5)] == [True, False]


def test_a_clock_rings_when_its_seconds_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("gmlfm.tuning.study.time.perf_counter", lambda: now[0])
    clock = _Clock(3.0)
    now[0] = 2.9
    clock.on_step(1, 2, 0.0)
    now[0] = 3.1
    with pytest.raises(_OutOfTimeError):
        clock.on_step(1, 2, 0.0)


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


def test_what_was_tested_is_what_is_shown(tmp_path: Path) -> None:
    """A study that goes on later must not change the row of a comparison that was tested before."""
    data, plan = checkerboard(), Plan(("popularity", "item-knn"), seeds=1)
    found = compare(data, plan, Budget(trials=1), tmp_path)
    tune(Search(data, "item-knn", tmp_path / "studies" / "item-knn"), Budget(trials=6))
    assert compare(data, plan, Budget(trials=1), tmp_path) == found


def test_the_defaults_are_tried_even_if_the_first_trial_was_killed(tmp_path: Path) -> None:
    from gmlfm.tuning.study import _open

    search = Search(checkerboard(), "ease", tmp_path)
    _open(search).ask()  # a trial that never ended
    tune(search, Budget(trials=1))
    done = [one for one in _open(search).get_trials() if one.state.is_finished()]
    assert [one.params for one in done] == [{"l2": 500.0}]


def test_a_damaged_result_is_made_again(tmp_path: Path) -> None:
    data, plan = checkerboard(), Plan(("popularity", "item-knn"), seeds=1)
    found = compare(data, plan, Budget(trials=1), tmp_path)
    (tmp_path / "results" / "item-knn-0.parquet").write_bytes(b"PAR1")
    assert compare(data, plan, Budget(trials=1), tmp_path) == found


def test_the_papers_choice_on_test_is_told(tmp_path: Path) -> None:
    market = tmp_path / "m"
    write_bazaar(Market(n_users=60, n_purchases=700), market)
    plan = Plan(("mf", "fm"), protocol="sampled", seeds=1, preset="paper")
    found = compare(load_dataset(market), plan, Budget(trials=1), tmp_path / "c", threads=1)
    text = markdown(found)
    assert "CHOICES WERE MADE ON THE TEST PART" in text
    assert "no refit" in text
    assert "NDCG@10 TEST, as published" in text


def test_wrong_use_leaves_no_trace(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c"
    begin = ["compare", str(market), "--models", "popularity,item-knn", "--trials", "1", "--seeds", "1", "--out", str(out)]
    for more, message in (
        (["--split", "leav-one-out"], "did you mean 'leave-one-out'"),
        (["--device", "gpu"], "device is 'gpu'"),
        (["--threads", "0"], "threads is 0"),
        (["--trials", "0"], "above 0"),
    ):
        assert main([*begin, *more]) == 2
        assert message in capsys.readouterr().err
        assert not out.exists()
    assert main(begin) == 0
    capsys.readouterr()
    study = ["tune", str(market), "--model", "item-knn", "--trials", "1"]
    assert main([*study, "--out", str(out)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert main([*study, "--out", str(tmp_path / "s"), "--device", "gpu"]) == 2
    assert main([*study, "--out", str(tmp_path / "s")]) == 0
    for name in ("study.json", "study.journal"):
        (tmp_path / "s" / name).write_text("{nonsense\n{}\n")
        capsys.readouterr()
        assert main([*study, "--out", str(tmp_path / "s")]) == 2
        assert "is damaged" in capsys.readouterr().err
        if name == "study.json":
            (tmp_path / "s" / name).unlink()
            (tmp_path / "s" / "study.journal").rename(tmp_path / "kept")
            (tmp_path / "s" / "best.toml").unlink()
            assert main([*study, "--out", str(tmp_path / "s")]) == 0


def test_next_names_what_was_tuned(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", str(market), "--model", "mf", "--task", "implicit", "--trials", "1", "--threads", "1"]
    assert main([*command, "--out", str(tmp_path / "s")]) == 0
    assert "--model mf --task implicit --config" in capsys.readouterr().out
