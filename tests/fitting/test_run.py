"""What a run has learned from is answered in one place: by Refit, the split and the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender, load_dataset, make_split
from gmlfm.data.splits import Split
from gmlfm.errors import OptionError
from gmlfm.fitting import Refit, fit
from gmlfm.fitting.run import learned_interactions, learned_rows, positives_of, ratings_of
from gmlfm.models.mamo import Mamo
from gmlfm.training.sampling.instances import implicit_instances
from gmlfm.training.settings import Settings
from tests.contracts.checkerboard import checkerboard

COLD_START = {"ratings": 10, "adapt": 6, "interactions": 3, "warm_items": 2}
WITH_UNUSED: list[tuple[str, dict[str, Any]]] = [("newcomers", {"share": 0.2}), ("cold-start", COLD_START)]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def test_refit_as_callers_say_it() -> None:
    assert [Refit.parse(value) for value in (False, True, "all")] == [Refit.NONE, Refit.VALIDATION, Refit.ALL]
    assert [Refit.parse(refit) for refit in Refit] == list(Refit)
    assert [refit.label for refit in Refit] == ["no refit", "refit on train + validation", "refit on all rows"]
    assert [Refit(text) for text in ("none", "validation", "all")] == list(Refit)  # as run.json has it


@pytest.mark.parametrize("value", ["some", "none", "True", "", 1, 0, None, 2.0])
def test_any_other_refit_is_refused(value: Any) -> None:
    with pytest.raises(OptionError) as caught:
        Refit.parse(value)
    assert str(caught.value) == f"refit is {value!r}; expected nothing, true or all."


@pytest.mark.parametrize(("name", "options"), [("leave-one-out", {}), ("random", {}), *WITH_UNUSED])
def test_rows_learned_from(data: Dataset, name: str, options: dict[str, Any]) -> None:
    split = make_split(data, name, **options)
    settings = Settings.make("fm", "topn", {})

    def rows(refit: Refit) -> list[int]:
        return learned_rows(split, settings, refit).tolist()

    assert rows(Refit.NONE) == split.train.tolist()
    assert rows(Refit.VALIDATION) == sorted([*split.train, *split.validation])
    assert rows(Refit.ALL) == sorted([*split.train, *split.validation, *split.test, *split.unused])
    assert (len(split.unused) > 0) == (name in ("newcomers", "cold-start"))
    assert rows(Refit.ALL) == data.positive_rows.tolist()  # all there are


@pytest.mark.parametrize(("task", "is_published"), [("topn", True), ("rating", False)])
def test_the_published_procedure_learns_from_the_validation_rows(data: Dataset, task: Any, is_published: bool) -> None:
    split = make_split(data, "random", task=task)
    rows = learned_rows(split, Settings.make("fm", task, {}, "paper"), Refit.NONE)
    expected = [*split.train, *split.validation] if is_published else split.train
    assert rows.tolist() == sorted(expected)


def test_a_published_run_was_trained_on_its_learned_rows(small_market: Path) -> None:
    data = load_dataset(small_market)
    settings = Settings.make("fm", "topn", {"k": 2, "epochs": 1, "threads": 1}, "paper")
    run = fit(data, settings, split="random")
    both = np.sort(np.concatenate([run.split.train, run.split.validation]))
    np.testing.assert_array_equal(run.learned_rows, both)
    np.testing.assert_array_equal(run.inputs.positives().users, data.user_numbers[both])


@pytest.mark.parametrize("refit", list(Refit))
@pytest.mark.parametrize(("name", "options"), WITH_UNUSED)
def test_what_a_run_says_it_learned_from_is_what_the_model_was_given(
    data: Dataset, name: str, options: dict[str, Any], refit: Refit
) -> None:
    run = fit(data, Settings.make("popularity", "topn", {}), split=name, split_options=options, refit=refit)
    expected = np.bincount(data.item_numbers[run.learned_rows], minlength=len(data.items))
    np.testing.assert_array_equal(run.model.state_dict()["counts"].numpy(), expected)
    positives = run.inputs.positives()
    np.testing.assert_array_equal(np.bincount(positives.items, minlength=len(data.items)), expected)


def test_interactions_behind_instances_are_those_of_the_positive_ones(data: Dataset) -> None:
    instances = implicit_instances(data)
    rows = learned_rows(instances.split, Settings.make("fm", "implicit", {}), Refit.NONE)
    interactions = learned_interactions(rows, instances)
    expected = {int(instances.rows[row]) for row in rows if instances.labels[row] > 0}
    assert interactions.tolist() == sorted(expected)
    assert learned_interactions(rows, None) is rows


def test_positives_and_ratings_of_rows(data: Dataset) -> None:
    rows = np.arange(40)
    positives, ratings = positives_of(data, rows), ratings_of(data, rows)
    is_positive = data.interactions["positive"].to_numpy()[rows]
    assert 0 < is_positive.sum() < len(rows)
    np.testing.assert_array_equal(positives.items, data.item_numbers[rows[is_positive]])
    assert (positives.n_users, positives.n_items) == (len(data.users), len(data.items))
    np.testing.assert_array_equal(ratings.users, data.user_numbers[rows])
    np.testing.assert_array_equal(ratings.labels, data.interactions["label"].to_numpy()[rows])
    labels = data.interactions["label"].set(pl.Series(np.arange(data.n_interactions) < 10), None)
    some_unrated = Dataset(data.schema, data.interactions.with_columns(labels), data.context, data.users, data.items)
    assert len(ratings_of(some_unrated, rows).labels) == 30


# Whoever is forgotten after refit="all" takes no other rows along.

OTHERS = [(f"u{user}", f"i{item}") for user in (0, 1, 16, 18, 39) for item in range(40)]


def without_user(data: Dataset, user: str) -> Dataset:
    """The data as if the user had never been."""
    number = data.users.ids.index_of(user)
    users, items = data.users.ids, data.items.ids
    is_kept = data.user_numbers != number
    interactions = pl.DataFrame(
        {
            "user": users.gather(data.user_numbers[is_kept]),
            "item": items.gather(data.item_numbers[is_kept]),
            "time": data.interactions["time"].filter(is_kept),
            "stars": data.interactions["label"].filter(is_kept),
        }
    )
    side_tables = [
        pl.DataFrame([side.ids.alias(name), *side.fields.iter_columns()])
        for name, side in (("user", data.users), ("item", data.items))
    ]
    return Dataset.from_tables(interactions, side_tables[0].filter(pl.col("user") != user), side_tables[1], schema=data.schema)


@pytest.mark.parametrize(("split", "options"), [("leave-one-out", {}), *WITH_UNUSED])
@pytest.mark.parametrize("name", ["ease", "item-knn", "popularity"])
def test_after_forgetting_a_closed_form_model_is_that_of_the_data_without_the_user(
    data: Dataset, name: str, split: str, options: dict[str, Any]
) -> None:
    recommender = Recommender(name).fit(data, split, split_options=options, refit="all")
    recommender.forget("u17")
    anew = Recommender(name).fit(without_user(data, "u17"), split, split_options=options, refit="all")
    assert recommender.fitted.data.n_interactions == anew.fitted.data.n_interactions
    np.testing.assert_allclose(
        recommender.predict(OTHERS)["score"].to_numpy(), anew.predict(OTHERS)["score"].to_numpy(), rtol=1e-4, atol=1e-6
    )
    trained = Recommender(name).fit(without_user(data, "u17"), split, split_options=options)
    assert not np.allclose(
        recommender.predict(OTHERS)["score"].to_numpy(), trained.predict(OTHERS)["score"].to_numpy(), atol=1e-6
    )


def support(recommender: Recommender) -> dict[str, list[tuple[str, float]]]:
    """The ratings that each user is adapted on, by id."""
    model, data = recommender.fitted.model, recommender.fitted.data
    assert isinstance(model, Mamo)
    by_user = model._attached.support
    return {
        data.users.ids[int(user)]: sorted(
            (data.items.ids[int(by_user.items[place])], float(by_user.labels[place])) for place in by_user.places(int(user))
        )
        for user in by_user.users
    }


@pytest.mark.parametrize(("split", "options"), [("random", {}), *WITH_UNUSED])
def test_after_forgetting_the_others_are_adapted_on_the_same_ratings(
    data: Dataset, split: str, options: dict[str, Any], tmp_path: Path
) -> None:
    settings = {"k": 4, "epochs": 1, "inner": 1, "layers": 1}
    recommender = Recommender("mamo", "rating", **settings).fit(data, split, split_options=options, refit="all")
    before = support(recommender)
    assert sum(len(ratings) for ratings in before.values()) == data.n_interactions
    recommender.forget("u17")
    del before["u17"]
    assert support(recommender) == before
    anew = Recommender("mamo", "rating", **settings)
    assert support(anew.fit(without_user(data, "u17"), split, split_options=options, refit="all")) == before
    recommender.save(tmp_path / "run")
    assert support(Recommender.load(tmp_path / "run")) == before


def test_a_split_is_never_changed_by_forgetting(data: Dataset) -> None:
    recommender = Recommender("popularity").fit(data, "newcomers", refit="all")
    run = recommender.fitted
    before = [rows.copy() for rows in parts(run.split)]
    recommender.forget("u17")
    assert recommender.fitted is not run
    assert all(np.array_equal(rows, earlier) for rows, earlier in zip(parts(run.split), before, strict=True))
    assert sum(len(rows) for rows in parts(recommender.fitted.split)) < sum(len(rows) for rows in before)


def parts(split: Split) -> list[np.ndarray]:
    return [split.train, split.validation, split.test, split.unused]
