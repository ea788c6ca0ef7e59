"""One model's search: budgets, restarts, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gmlfm import Dataset
from gmlfm.cli import main
from gmlfm.errors import OptionError
from gmlfm.tuning.study import Budget, Search, _Clock, _open, _OutOfTimeError, tune
from tests.contracts.checkerboard import checkerboard


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def test_a_search_finds_what_is_better_and_goes_on_where_it_stopped(data: Dataset, tmp_path: Path) -> None:
    search = Search(data, "item-knn", tmp_path)
    earlier = tune(search, Budget(trials=2))
    assert earlier.trials == 2
    later = tune(search, Budget(trials=5))
    assert later.trials == 5
    assert later.validation["ndcg@10"] >= earlier.validation["ndcg@10"]
    assert tune(search, Budget(trials=5)) == later
    # The same search from the beginning, not stopped, tries the same settings.
    assert tune(replace(search, folder=tmp_path / "other"), Budget(trials=5)).settings == later.settings
    with pytest.raises(OptionError, match="a study of other data or another task"):
        tune(replace(search, seed=1), Budget(trials=1))


def test_a_trial_that_the_clock_ends_counts_with_what_it_had_reached(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends_after_an_epoch(self: _Clock, done: int, total: int, loss: float) -> None:
        if self.best:
            raise _OutOfTimeError

    monkeypatch.setattr(_Clock, "on_step", ends_after_an_epoch)
    tuned = tune(Search(data, "gml-fm", tmp_path, threads=1), Budget(trials=1))
    assert tuned.trials == 1
    assert set(tuned.validation) == {"hr@10", "ndcg@10"}


def test_a_clock_ends_a_trial_when_its_seconds_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("gmlfm.tuning.study.time.perf_counter", lambda: now[0])
    clock = _Clock(3.0)
    now[0] = 2.9
    clock.on_step(1, 2, 0.0)
    now[0] = 3.1
    with pytest.raises(_OutOfTimeError):
        clock.on_step(1, 2, 0.0)
    _Clock(None).on_step(1, 2, 0.0)


def test_budgets() -> None:
    assert [Budget(seconds=5).left(100, spent) for spent in (4.9, 5.0)] == [True, False]
    assert [Budget(trials=5).left(n_done, 1e9) for n_done in (4, 5)] == [True, False]
    for values in ((None, None), (1, 1.0)):
        with pytest.raises(OptionError, match="either trials or seconds"):
            Budget(*values)
    for values in ((0, None), (None, 0.0), (None, float("nan"))):
        with pytest.raises(OptionError, match="must be above 0"):
            Budget(*values)


def test_the_defaults_are_tried_even_if_the_first_trial_was_killed(data: Dataset, tmp_path: Path) -> None:
    search = Search(data, "ease", tmp_path)
    _open(search).ask()  # a trial that never ended
    tune(search, Budget(trials=1))
    ended = [trial for trial in _open(search).get_trials() if trial.state.is_finished()]
    assert [trial.params for trial in ended] == [{"l2": 500.0}]


def test_a_model_without_settings_is_tried_once(data: Dataset, tmp_path: Path) -> None:
    tuned = tune(Search(data, "popularity", tmp_path), Budget(trials=9))
    assert (tuned.trials, tuned.settings, tuned.at_border) == (1, {}, [])


def test_episodic_models_are_tuned_too(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their budget ends a trial in the middle as it does a gradient model's."""

    def ends_after_an_epoch(self: _Clock, done: int, total: int, loss: float) -> None:
        if self.best:
            raise _OutOfTimeError

    monkeypatch.setattr(_Clock, "on_step", ends_after_an_epoch)
    tuned = tune(Search(data, "mamo", tmp_path, "rating", "random"), Budget(trials=1))
    assert (tuned.trials, tuned.failed) == (1, 0)
    assert set(tuned.validation) == {"rmse", "mae"}
    assert tuned.recommender(seed=3).settings.training.seed == 3


def test_the_command(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t"
    command = ["tune", str(market), "--model", "item-knn", "--out", str(out), "--trials", "3", "--threads", "1"]
    assert main([*command, "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert main(command) == 0
    assert "gmlfm train" in capsys.readouterr().out
    run = str(tmp_path / "run")
    assert main(["train", str(market), "--model", "item-knn", "--config", str(out / "best.toml"), "--out", run]) == 0
    written = json.loads((tmp_path / "run" / "model" / "run.json").read_text())["settings"]
    assert {name: written[name] for name in tuned["settings"]} == tuned["settings"]
    for arguments, message in (
        (["tune", str(market), "--out", run, "--trials", "1", "--seconds", "1"], "not both"),
        (["tune", str(market), "--out", run, "--seconds", "-1"], "above 0"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_next_names_what_was_tuned(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", str(market), "--model", "mf", "--task", "implicit", "--trials", "1", "--threads", "1"]
    assert main([*command, "--out", str(tmp_path / "s")]) == 0
    assert "--model mf --task implicit --config" in capsys.readouterr().out


def test_a_folder_of_something_else_or_a_damaged_one_is_refused(
    market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", str(market), "--model", "item-knn", "--trials", "1"]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("dear reader")
    assert main([*command, "--out", str(foreign)]) == 2
    assert "holds other files" in capsys.readouterr().err
    study = tmp_path / "s"
    assert main([*command, "--out", str(study), "--device", "gpu"]) == 2
    assert not study.exists()
    assert main([*command, "--out", str(study)]) == 0
    for name in ("study.json", "study.journal"):
        (study / name).write_text("{nonsense\n{}\n")
        capsys.readouterr()
        assert main([*command, "--out", str(study)]) == 2
        assert "is damaged" in capsys.readouterr().err
        if name == "study.json":
            for path in study.iterdir():
                path.unlink()
            assert main([*command, "--out", str(study)]) == 0  # an empty folder begins anew
