"""One model's search: budgets, restarts, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gmlfm import Dataset, load_dataset
from gmlfm.cli import main
from gmlfm.errors import DataError, OptionError
from gmlfm.models.settings import Choice
from gmlfm.tuning import Budget, Search, tune
from gmlfm.tuning.study import Study, read_stamp
from gmlfm.tuning.trial import Clock, OutOfTimeError
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
    with pytest.raises(OptionError, match="holds a study with another seed; choose another folder"):
        tune(replace(search, seed=1), Budget(trials=1))


def test_a_trial_that_the_clock_ends_counts_with_what_it_had_reached(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends_after_an_epoch(self: Clock, done: int, total: int, loss: float) -> None:
        if self.best:
            raise OutOfTimeError

    monkeypatch.setattr(Clock, "on_step", ends_after_an_epoch)
    tuned = tune(Search(data, "gml-fm", tmp_path, threads=1), Budget(trials=1))
    assert tuned.trials == 1
    assert set(tuned.validation) == {"hr@10", "ndcg@10"}


def test_the_defaults_are_tried_even_if_the_first_trial_was_killed(data: Dataset, tmp_path: Path) -> None:
    search = Search(data, "ease", tmp_path)
    Study(search)._propose()  # a trial that never ended
    tune(search, Budget(trials=1))
    assert [trial.params for trial in Study(search).ended] == [{"l2": 500.0, "half_life": 0.0}]


def test_a_lock_that_a_killed_process_left_is_released(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a relative folder, too, where a link to the journal would lead nowhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gmlfm.tuning.journal._LOCK_SECONDS", 1)
    search = Search(data, "item-knn", Path("studies/one"))
    assert tune(search, Budget(trials=1)).trials == 1
    (tmp_path / "studies" / "one" / "study.journal.lock").touch()
    assert tune(search, Budget(trials=2)).trials == 2


def test_a_model_without_settings_is_tried_once(data: Dataset, tmp_path: Path) -> None:
    tuned = tune(Search(data, "popularity", tmp_path), Budget(trials=9))
    assert (tuned.trials, tuned.settings, tuned.at_border) == (1, {}, [])


def test_all_of_a_small_space_is_tried_and_nothing_twice(data: Dataset, tmp_path: Path) -> None:
    search = Search(data, "item-knn", tmp_path, settings={"neighbours": "20", "half_life": "none"})
    shrink = search.space["shrink"]
    assert isinstance(shrink, Choice)
    tuned = tune(search, Budget(trials=50))
    assert (tuned.trials, tuned.failed) == (len(shrink.values), 0)
    assert sorted(trial.params["shrink"] for trial in Study(search).ended) == sorted(shrink.values)


def test_what_is_fixed_leaves_the_space_and_stays_with_the_study(data: Dataset, tmp_path: Path) -> None:
    search = Search(data, "item-knn", tmp_path, settings={"neighbours": "20", "half_life": "none"})
    tuned = tune(search, Budget(trials=2))
    assert (tuned.fixed, set(tuned.settings)) == ({"neighbours": 20, "half_life": 0}, {"shrink"})
    assert tuned.recommender(seed=0).settings.options["neighbours"] == 20
    assert json.loads((tmp_path / "study.json").read_text())["fixed settings"] == {"neighbours": 20, "half_life": 0}
    # However it is written, it is the same value; another one is another study.
    assert tune(replace(search, settings={"item-knn.neighbours": 20, "half_life": 0}), Budget(trials=2)) == tuned
    for settings in ({"neighbours": "10"}, {}):
        message = "holds a study with other fixed settings.*; choose another folder"
        with pytest.raises(OptionError, match=message):
            tune(replace(search, settings=settings), Budget(trials=3))
    assert len(Study(search).ended) == 2


def test_a_study_does_not_go_on_with_another_search_space(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(Search(data, "item-knn", tmp_path), Budget(trials=1))
    narrower = {"neighbours": Choice((5, 10)), "shrink": Choice((0.0,))}
    monkeypatch.setattr("gmlfm.tuning.search.search_space", lambda *arguments, **choices: narrower)
    with pytest.raises(OptionError, match="holds a study with another search space; choose another folder"):
        tune(Search(data, "item-knn", tmp_path), Budget(trials=2))


@pytest.mark.parametrize("split", ["newcomers", "leave-one-out"])
def test_the_same_scores_have_the_same_figure_however_they_were_learned(market: Path, tmp_path: Path, split: str) -> None:
    """One column: the mean of the split's groups for a model fitted at once as for one that is trained."""
    data, names = load_dataset(market), [f"tests.fitting.test_fit:{name}" for name in ("LikeFirstItems", "TrainedFirstItems")]
    figures = [
        tune(Search(data, name, tmp_path / str(number), split=split, threads=1), Budget(trials=1)).validation
        for number, name in enumerate(names)
    ]
    assert figures[0] == figures[1]


def test_episodic_models_are_tuned_too(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their budget ends a trial in the middle as it does a gradient model's."""

    def ends_after_an_epoch(self: Clock, done: int, total: int, loss: float) -> None:
        if self.best:
            raise OutOfTimeError

    monkeypatch.setattr(Clock, "on_step", ends_after_an_epoch)
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
    written = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert {name: written[name] for name in tuned["settings"]} == tuned["settings"]
    for arguments, message in (
        (["tune", str(market), "--out", run, "--trials", "1", "--seconds", "1"], "not both"),
        (["tune", str(market), "--out", run, "--seconds", "-1"], "above 0"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_the_command_fixes_settings(market: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t"
    command = ["tune", str(market), "--model", "item-knn", "--out", str(out), "--trials", "1"]
    assert main([*command, "--set", "neighbours=20"]) == 0
    shown = capsys.readouterr().out
    assert "fixed" in shown
    assert "neighbours = 20" in (out / "best.toml").read_text()
    for more, message in (
        (["--set", "neighbours=10"], "other fixed settings"),
        (["--set", "neighbors=20"], "did you mean 'neighbours'"),
        (["--set", "k"], "--set takes KEY=VALUE"),
        (["--set", "seed=3"], "use --seed 3"),
    ):
        assert main([*command, *more]) == 2
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


def test_a_folder_whose_name_is_too_long_is_refused_by_its_beginning(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"^the folder '.{60}\.\.\.' cannot be used \(File name too long\); choose another one\.$"
    ):
        read_stamp(tmp_path / ("x" * 5_000) / "plan.json")
