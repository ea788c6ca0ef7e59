"""What one study searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Dataset
from gmlfm.errors import OptionError
from gmlfm.models.settings import Choice, Real
from gmlfm.tuning.search import Search
from tests.contracts.checkerboard import checkerboard
from tests.models.history_world import history_data


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def test_what_is_fixed_is_not_searched(data: Dataset) -> None:
    whole = Search(data, "fm", Path("f"))
    search = Search(data, "fm", Path("f"), settings={"k": "8", "fm.negatives": "2"}, seed=3, threads=1)
    assert search.fixed == {"k": 8, "n_negatives": 2}
    assert set(search.space) == set(whole.space) - {"k", "n_negatives"}
    settings = search.recommender({"lr": 0.02}).settings
    assert (settings.options["k"], settings.batches.n_negatives, settings.training.lr) == (8, 2, 0.02)
    assert (settings.training.seed, settings.training.threads) == (3, 1)


def test_the_stamp_has_all_that_trials_have_in_common(data: Dataset) -> None:
    stamp = Search(data, "ease", Path("f"), seed=2).stamp
    assert stamp == {
        "model": "ease",
        "task": "topn",
        "preset": None,
        "split": "leave-one-out",
        "seed": 2,
        "data": data.content_hash,
        "fixed settings": {},
        "search space": {
            "l2": {"low": 1.0, "high": 10_000.0, "log": True},
            "half_life": [0.0, 2.5, 5.0, 10.0, 20.0, 50.0, 100.0],
        },
    }
    assert isinstance(Search(data, "ease", Path("f")).space["l2"], Real)
    fixed = Search(data, "ease", Path("f"), settings={"l2": "30", "half_life": "none"}).stamp
    assert (fixed["fixed settings"], fixed["search space"]) == ({"l2": 30.0, "half_life": 0}, {})
    assert json.loads(json.dumps(stamp)) == stamp


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "randm"}, "split is 'randm'; did you mean 'random'"),
        ({"device": "gpu"}, "device is 'gpu'"),
        ({"task": "rating"}, "the model 'ease' cannot do the task 'rating'"),
        ({"preset": "papr"}, "did you mean 'paper'"),
    ],
)
def test_wrong_searches_are_refused(data: Dataset, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Search(data, "ease", Path("f"), **options).check()  # type: ignore[arg-type]


def test_with_a_history_it_is_searched_instead_of_the_loss_and_the_negatives() -> None:
    """Which a history has settled: trials with those of models without one would lose to the defaults."""
    timed = history_data()
    frame = pl.DataFrame({"user": ["a", "b", "b"], "item": ["x", "y", "x"]})
    untimed = Dataset.from_tables(frame, schema={"interactions": {"user": "user", "item": "item"}})
    assert Search(untimed, "fm", Path("f")).history == ""
    assert Search(timed, "fm", Path("f"), task="implicit").history == ""
    search = Search(timed, "fm", Path("f"))
    assert search.history == "last,recent,past"
    plain = Search(timed, "fm", Path("f"), settings={"fm.history": "none"})
    assert plain.fixed == {"history": "none"}
    assert set(plain.space) - set(search.space) == {"loss", "n_negatives"}
    assert set(search.space) - set(plain.space) == {"epochs", "half_life", "history_dropout"}
    assert search.defaults.keys() == search.space.keys()
    assert (search.defaults["lr"], search.defaults["v_scale"]) == (0.005, 0.05)
    assert plain.defaults["lr"] == 0.003
    assert set(plain.space) == set(Search(untimed, "fm", Path("f")).space)
    assert Search(timed, "fm", Path("f"), preset="paper").history == ""
    assert Search(timed, "gml-fm", Path("f")).history == "last,recent,past"
    assert Search(timed, "nfm", Path("f")).history == ""
    given = Search(timed, "nfm", Path("f"), settings={"history": "last", "half_life": 3})
    assert (given.fixed, given.history) == ({"half_life": 3.0, "history": "last"}, "last")


def test_what_the_model_refuses_beside_the_fixed_settings_is_not_searched(data: Dataset) -> None:
    def choices(model: str, name: str, **fixed: str) -> tuple[Any, ...]:
        space = Search(data, model, Path("f"), settings=fixed).space.get(name, Choice(()))
        assert isinstance(space, Choice)
        return space.values

    assert choices("gml-fm", "rank") == choices("gml-fm", "rank", k="8") == (0, 4, 8)
    assert choices("gml-fm", "rank", k="4") == (0, 4)
    assert choices("gml-fm", "rank", k="2") == ()  # one is no choice
    assert choices("gml-fm", "k", rank="20") == (32, 64, 128)
    assert len(choices("item-knn", "half_life", shrink="1")) == len(choices("item-knn", "half_life")) > 1
    assert choices("item-knn", "half_life", user_rows="training") == ()
