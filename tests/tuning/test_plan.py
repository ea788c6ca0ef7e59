"""What a comparison is, and its file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gmlfm import Dataset
from gmlfm.errors import GmlfmError, OptionError
from gmlfm.tuning.budget import Budget, Finals
from gmlfm.tuning.plan import Plan, stamp_folder
from gmlfm.tuning.search import Search
from tests.contracts.checkerboard import checkerboard

PLAN = Plan(("fm", "mf", "ease"), seeds=2, settings={"k": "8", "fm.k": "4"})


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def stamp(out: Path, plan: Plan, budget: Budget, data: Dataset) -> None:
    searches = {model: Search(data, model, out, settings=plan.fixed[model]) for model in plan.models}
    stamp_folder(out, plan, budget, plan.share(budget), searches)


def test_wrong_plans_are_refused() -> None:
    for plan, message in (
        (Plan(("fm",)), "name two or more, each once"),
        (Plan(("fm", "fm")), "each once"),
        (Plan(("fm", "mf"), seeds=0), "seeds is 0; expected 1 or more"),
        (Plan(("fm", "mamo")), "the model 'mamo' cannot do the task 'topn'; leave it out"),
        (Plan(("fm", "mf"), split="randm"), "did you mean 'random'"),
        (Plan(("fm", "mf"), protocol="ful"), "did you mean 'full'"),
        (Plan(("fm", "mf"), preset="papr"), "did you mean 'paper'"),
        (Plan(("mamo", "fm"), "rating", "random", preset="paper"), "sets batch_size, which the model 'mamo' does not have"),
        (Plan(("fm", "mf"), settings={"l2": "3"}), "none of fm, mf has a setting 'l2'"),
    ):
        with pytest.raises(GmlfmError, match=message):
            plan.check()
    PLAN.check()


def test_seconds_are_shared_equally_and_trials_are_each_methods_own() -> None:
    assert PLAN.share(Budget(trials=7)) == Budget(trials=7)
    assert PLAN.share(Budget(seconds=60.0)) == Budget(seconds=20.0, finals=Finals(2, True, "full"))
    assert PLAN.share(Budget(seconds=60.0)) != replace(PLAN, refit=False).share(Budget(seconds=60.0))
    published = Plan(("fm", "mf"), preset="paper").share(Budget(seconds=1.0)).finals
    assert published is not None
    assert not published.refit  # it trains on the validation rows from the start


def test_the_stamp_is_a_plan_again(data: Dataset, tmp_path: Path) -> None:
    stamp(tmp_path, PLAN, Budget(seconds=60.0), data)
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["plan"]["settings"] == {"fm.k": 4, "mf.k": 8}
    assert written["share"] == 20.0
    assert set(written["spaces"]) == set(PLAN.models)
    assert not any("k" in space for space in written["spaces"].values())
    again = Plan(**{**written["plan"], "models": tuple(written["plan"]["models"])})
    assert again.fixed == PLAN.fixed
    stamp(tmp_path, again, Budget(seconds=60.0), data)  # the same comparison


def test_what_differs_is_named(data: Dataset, tmp_path: Path) -> None:
    stamp(tmp_path, PLAN, Budget(seconds=60.0), data)
    for plan, budget, difference in (
        (replace(PLAN, seeds=3), Budget(seconds=60.0), "seeds: 2 there, 3 here"),
        (replace(PLAN, models=("mf", "fm")), Budget(seconds=60.0), "models: fm,mf,ease there, mf,fm here"),
        (replace(PLAN, settings={}), Budget(seconds=60.0), "the fixed settings: fm.k=4, mf.k=8 there, none here"),
        (PLAN, Budget(trials=3), "budget: 60 seconds in all, .* there, 3 trials a method here"),
    ):
        with pytest.raises(OptionError, match=rf"holds another comparison \({difference}\); choose a new folder"):
            stamp(tmp_path, plan, budget, data)
    with pytest.raises(OptionError, match=r"holds another comparison \(the data differ\)"):
        stamp(tmp_path, PLAN, Budget(seconds=60.0), checkerboard(seed=1))
    (tmp_path / "plan.json").write_text("[]")
    with pytest.raises(OptionError, match=r"holds another comparison \(see plan.json there\)"):
        stamp(tmp_path, PLAN, Budget(seconds=60.0), data)
