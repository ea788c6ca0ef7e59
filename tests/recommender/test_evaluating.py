from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender, load_dataset, make_split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation import metrics as evaluation_metrics
from gmlfm.evaluation.protocols import evaluate_held_out
from gmlfm.recommender import evaluating
from gmlfm.recommender.evaluating import _over_catalogue, baseline_name, evaluate_curve, evaluate_part
from tests.recommender.conftest import QUICK
from tests.training.sampling.test_instances import single_sales


@pytest.fixture(scope="module")
def market(small_market: Path) -> Dataset:
    return load_dataset(small_market)


def test_other_data_are_evaluated_by_the_ids_they_share(board: Dataset) -> None:
    """Rows of the run's own test part, given as other data in another order, have the same ranks where no history counts."""
    trained = Recommender(**QUICK, history="none").fit(board)
    data, split = trained.fitted.data, trained.fitted.split
    test = pl.DataFrame(
        {
            "user": data.users.ids.gather(data.user_numbers[split.test]).reverse(),
            "item": data.items.ids.gather(data.item_numbers[split.test]).reverse(),
            "time": [9] * len(split.test),
            "stars": [5.0] * len(split.test),
        }
    )
    sides = [
        pl.DataFrame([side.ids.alias(name), *side.fields.iter_columns()]).reverse()
        for name, side in (("user", data.users), ("item", data.items))
    ]
    schema = {
        "interactions": {"user": "user", "item": "item", "time": "time", "label": "stars"},
        "users": {"id": "user", "fields": {"team": "category"}},
        "items": {"id": "item", "fields": {"colour": "category", "price": "number", "tags": {"kind": "set"}}},
    }
    other = Dataset.from_tables(test, *sides, schema=schema)
    for recommender in (trained, Recommender("popularity").fit(board)):
        of_part, of_data = recommender.evaluate(), recommender.evaluate(other)
        np.testing.assert_allclose(of_data.queries["hr@10"][::-1], of_part.queries["hr@10"])
        np.testing.assert_allclose(of_data.queries["ndcg@10"][::-1], of_part.queries["ndcg@10"])
    with pytest.raises(DataError, match="the run was trained with the user fields"):
        trained.evaluate(Dataset.from_tables(test, schema={"interactions": {"user": "user", "item": "item"}}))


def test_ratings_of_other_data_and_of_the_part(board: Dataset) -> None:
    recommender = Recommender("fm", "rating", k=4, epochs=2, threads=1).fit(board, "random")
    assert set(recommender.evaluate().metrics) >= {"rmse", "mae"}
    labels, predicted = board.interactions["label"].to_numpy(), recommender.fitted.ranker.score_pairs(
        board.user_numbers, board.item_numbers[:, None]
    )  # fmt: skip
    low, high = recommender.fitted.limits
    expected = np.sqrt(np.mean((np.clip(predicted[:, 0], low, high) - labels) ** 2))
    assert recommender.evaluate(board).metrics["rmse"] == pytest.approx(expected, rel=1e-5)


def test_drawn_instances_have_no_other_data(board: Dataset) -> None:
    recommender = Recommender("mf", "implicit", k=4, epochs=1, threads=1).fit(board)
    assert "auc" in recommender.evaluate().metrics
    with pytest.raises(OptionError, match="other data have none"):
        recommender.evaluate(board)


def test_metrics_at_several_cutoffs(trained: Recommender) -> None:
    metrics = trained.evaluate(cutoffs=(5, 10)).metrics
    names = ("hr", "ndcg", "mrr", "recall", "precision", "map", "coverage", "novelty")
    expected = {"mrr", *(f"{name}@{cutoff}" for name in names for cutoff in (5, 10))}
    assert set(metrics) >= expected
    registered = {**evaluation_metrics._RANKING, **evaluation_metrics._LISTS}
    assert set(metrics) == {*evaluation_metrics._UNCUT, *(f"{name}@{cutoff}" for name in registered for cutoff in (5, 10))}
    assert metrics["hr@5"] <= metrics["hr@10"]
    assert {name: value for name, value in metrics.items() if not name.endswith("@5")} == trained.evaluate().metrics
    at_catalogue = trained.evaluate(cutoffs=[40]).metrics
    assert at_catalogue["hr@40"] == at_catalogue["recall@40"] == 1.0
    for cutoffs in ((), (0,), (-1, 5), (2.5,), "10"):
        with pytest.raises(OptionError, match="cutoffs"):
            trained.evaluate(cutoffs=cutoffs)  # type: ignore[arg-type]


def test_the_validation_part_is_the_one_that_chose_the_epoch(trained: Recommender) -> None:
    evaluation = trained.evaluate(part="validation")
    for name, value in trained.fitted.validation.items():
        assert evaluation.metrics[name] == pytest.approx(value)
    with pytest.raises(OptionError, match="part is 'train'; expected test or validation"):
        trained.evaluate(part="train")
    with pytest.raises(DataError, match="the split 'none' has no test rows to evaluate on"):
        Recommender("popularity").fit(trained.fitted.data, "none").evaluate()


def test_wrong_protocols_are_one_sentence(trained: Recommender) -> None:
    with pytest.raises(OptionError, match="did you mean 'full'"):
        trained.evaluate(protocol="ful")
    with pytest.raises(OptionError, match="seed is -1"):
        trained.evaluate(protocol="sampled", seed=-1)
    with pytest.raises((DataError, OptionError), match="too small for that protocol, use full"):
        trained.evaluate(protocol="sampled")


def test_newcomers_are_a_group_of_their_own(market: Dataset) -> None:
    recommender = Recommender(**{**QUICK, "epochs": 2}).fit(market, split="newcomers")
    evaluation = recommender.evaluate(protocol="sampled")
    assert set(evaluation.groups) <= {"warm-warm", "warm-new", "new-warm", "new-new"}
    assert len(evaluation.groups) >= 2
    sizes = np.array([group["rows"] for group in evaluation.groups.values()])
    means = np.array([group["hr@10"] for group in evaluation.groups.values()])
    assert sizes.sum() == len(evaluation.rows)
    assert float((sizes * means).sum() / sizes.sum()) == pytest.approx(evaluation.metrics["hr@10"])


def test_items_never_met_are_ranked_among_such_items(market: Dataset) -> None:
    """A ranker that only tells met from unmet items must gain nothing by it."""
    split = make_split(market, "newcomers", seed=0)
    is_met = np.bincount(market.item_numbers[split.train], minlength=len(market.items)) > 0

    class UnmetFirst:
        def score_pairs(self, users: Any, items: Any, rows: Any = None) -> Any:
            return (~is_met[items]).astype(np.float32)

        def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
            return np.tile((~is_met[items]).astype(np.float32), (len(users), 1))

    evaluation = evaluate_held_out(UnmetFirst(), market, split, "test", "sampled")
    groups = [group for group in ("warm-new", "new-new") if group in evaluation.groups]
    assert groups
    for group in groups:
        assert evaluation.groups[group]["hr@10"] == pytest.approx(0.10)
    assert len(evaluation.queries["hr@10"]) == len(evaluation.rows) > 0.9 * len(split.test)


def test_as_published_the_evaluation_says_what_a_sale_in_training_says_alone() -> None:
    data = single_sales(600)
    for preset in (None, "paper"):
        recommender = Recommender("fm", task="implicit", preset=preset, k=2, epochs=1, threads=1).fit(data)
        notes = recommender.evaluate().notes
        assert notes == recommender.fitted.split.notes
        assert len(notes) == (preset == "paper")


def test_rows_that_were_learned_from_are_refused(board: Dataset, market: Dataset) -> None:
    """Of the test part after refit="all", of the validation part after any refit and in the published procedure."""
    everything = Recommender("popularity").fit(board, refit="all")
    with pytest.raises(OptionError, match=r"learned from its test rows \(refit on all rows\), .* train without refit=\"all\""):
        everything.evaluate()
    with pytest.raises(OptionError, match=r"learned from its validation rows \(refit on all rows\)"):
        everything.evaluate(part="validation")
    refitted = Recommender("popularity").fit(board, refit=True)
    assert refitted.evaluate().metrics["hr@10"] >= 0
    with pytest.raises(
        OptionError, match=r"learned from its validation rows \(refit on train \+ validation\), .* evaluate its test part"
    ):
        refitted.evaluate(part="validation")
    published = Recommender("mf", preset="paper", k=2, epochs=1, threads=1).fit(market)
    with pytest.raises(OptionError, match=r"validation rows \(trained as published\), .* evaluate its test part"):
        published.evaluate(part="validation")
    rated = Recommender("fm", "rating", k=2, epochs=1, threads=1).fit(board, "random", refit="all")
    with pytest.raises(OptionError, match="learned from its test rows"):
        rated.evaluate()


def test_other_data_are_ranked_among_the_items_of_the_run(board: Dataset) -> None:
    """A few rows that name a few items: the others of the run's interactions are candidates all the same."""
    recommender = Recommender("popularity").fit(board)
    data, rows = recommender.fitted.data, recommender.fitted.split.test[:4]
    users, items = data.users.ids.gather(data.user_numbers[rows]), data.items.ids.gather(data.item_numbers[rows])
    fields = {"id": "item", "fields": {"colour": "category", "price": "number", "tags": {"kind": "set"}}}
    schema = {
        "interactions": {"user": "user", "item": "item"},
        "users": {"id": "user", "fields": {"team": "category"}},
        "items": fields,
    }
    sides = [
        pl.DataFrame([side.ids.alias(name), *side.fields.iter_columns()]).filter(pl.col(name).is_in(ids.implode()))
        for name, side, ids in (("user", data.users, users), ("item", data.items, items))
    ]
    few = Dataset.from_tables(pl.DataFrame({"user": users, "item": items}), *sides, schema=schema)
    expected = recommender.evaluate().queries["mrr"][:4]
    assert recommender.evaluate(few).queries["mrr"].tolist() == pytest.approx(expected.tolist())
    stranger = sides[1].head(1).with_columns(pl.lit("new-item").alias("item"))
    interactions = pl.DataFrame({"user": [*users, users[0]], "item": [*items, "new-item"]})
    more = Dataset.from_tables(interactions, sides[0], pl.concat([sides[1], stranger]), schema=schema)
    evaluation = recommender.evaluate(more, users=2)
    assert len(np.unique(evaluation.users)) == 2
    n_seen = len(data.seen_items)
    n_left = n_seen - len(set(data.item_numbers[data.user_numbers == data.user_numbers[rows[0]]].tolist()))
    last_rank = recommender.evaluate(more).queries["mrr"][-1]  # popularity knows nothing of it: behind all that were chosen
    assert last_rank == pytest.approx(1 / (n_left + 1), rel=0.2)


def test_other_data_keep_their_history_rows_by_the_runs_items() -> None:
    spec = {"interactions": {"user": "user", "item": "item", "event": "e", "targets": ["buy"]}}
    rows = [(user, item, kind) for user in "abcd" for item, kind in (("x", "buy"), ("y", "buy"), ("z", "see"), ("w", "buy"))]
    run = Recommender("popularity").fit(Dataset.from_tables(_table(rows), schema=spec), "random").fitted
    other = Dataset.from_tables(_table([("a", "new", "see"), ("a", "z", "buy"), ("b", "w", "see")]), schema=spec)
    merged = _over_catalogue(run, other)
    assert [merged.items.ids[item] for item in merged.history_rows["item"]] == ["new", "w"]
    assert merged.history_rows["item"].to_list() == [4, run.data.items.ids.to_list().index("w")]
    assert merged.history_rows.drop("item").equals(other.history_rows.drop("item"))


def _table(rows: list[tuple[str, str, str]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["user", "item", "e"], orient="row")


def test_other_data_of_a_market_are_ranked_among_what_was_not_learned(market: Dataset) -> None:
    """The run's own test rows as other data, where things sell once: who knows only what was sold gains nothing."""
    recommender = Recommender("popularity").fit(market, "random")
    rows = recommender.fitted.split.test
    other = replace(market, interactions=market.interactions[rows])
    evaluation = recommender.evaluate(other, protocol="sampled")
    is_single = market.single_unit_items[other.item_numbers]
    assert np.isin(np.flatnonzero(is_single), evaluation.rows).all()
    np.testing.assert_allclose(evaluation.queries["hr@10"][is_single[evaluation.rows]], 0.1)


@pytest.mark.parametrize("protocol", ["full", "sampled"])
def test_popularity_beside_the_model_is_a_run_of_popularity(market: Dataset, protocol: str) -> None:
    for refit in (False, True):
        run = Recommender("fm", k=2, epochs=1, threads=1).fit(market, refit=refit).fitted
        baseline = evaluate_part(run, protocol, "test", 0, (5,), baseline=True)
        expected = Recommender("popularity").fit(market, refit=refit).evaluate(protocol=protocol, cutoffs=(5,))
        assert baseline.metrics == expected.metrics
        assert baseline.candidates_hash == expected.candidates_hash
    assert baseline_name(run) == "popularity"


@pytest.mark.parametrize("task", ["rating", "implicit"])
def test_the_training_mean_beside_predictions(board: Dataset, task: str) -> None:
    run = Recommender("fm", task, k=2, epochs=1, threads=1).fit(board, "random").fitted
    baseline = evaluate_part(run, "full", "test", 0, (10,), baseline=True)
    labels = board.interactions["label"].to_numpy() if run.instances is None else run.instances.labels
    mean = labels[run.split.train].mean()
    expected = np.sqrt(np.mean((labels[run.split.test] - mean) ** 2))
    assert baseline.metrics["rmse"] == pytest.approx(expected, rel=1e-5)
    assert baseline_name(run) == "training mean"
    some = evaluate_part(run, "full", "test", 0, (10,), users=3)
    assert len(np.unique(some.users)) == 3
    assert "a sample of 3 of" in some.notes[0]
    assert set(some.errors) == {"rmse", "mae"}


@pytest.fixture(scope="module")
def newcomers() -> Dataset:
    """70 users of two kinds: each goes through 20 of the 60 items of their kind, in an order of their own."""
    rng = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{2 * item + user % 2}", time)
        for user in range(70)
        for time, item in enumerate(rng.permutation(60)[:20])
    ]
    schema = {"interactions": {"user": "u", "item": "i", "time": "t"}}
    return Dataset.from_tables(pl.DataFrame(rows, schema=["u", "i", "t"], orient="row"), schema=schema)


SPLIT = {"share": 0.2, "validation_share": 0.2}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("item-knn", {}),
        ("item-knn", {"user_rows": "training"}),
        ("ease", {"half_life": 20}),
        ("fm", {"history": "last,past", "n_negatives": "all"}),
        ("fm", {"history": "none"}),
        ("popularity", {}),
    ],
)
def test_a_newcomer_is_known_by_what_is_given(newcomers: Dataset, model: str, settings: dict[str, Any]) -> None:
    """One row says which half of the items is theirs; popularity cannot tell, whatever is given."""
    trains = model == "fm"
    quick = {**QUICK, "epochs": 20, "lr": 0.05, "history_dropout": 0.5} if trains else {"threads": 1}
    recommender = Recommender(model, **{**quick, **settings}).fit(newcomers, split="newcomers", split_options=SPLIT)
    curve = recommender.newcomer_curve((0, 1, 8), part="validation", cutoffs=(10, 40))
    hits = curve.metric("hr@40")
    assert list(hits) == [0, 1, 8]
    if model == "popularity":
        assert hits == dict.fromkeys((0, 1, 8), curve.baseline.metrics["hr@40"])
    else:
        assert hits[8] > hits[0] + 0.2
        assert hits[8] > 0.9
    first = curve.points[0]
    assert first.users.tolist() == curve.points[8].users.tolist()
    assert not np.isin(first.users, newcomers.user_numbers[recommender.fitted.split.train]).any()
    shown = str(curve)
    assert f"full: a target of each of {len(first.rows)} newcomers" in shown
    assert f"{hits[8]:.4f}" in shown
    assert "popularity" in shown


def test_a_curve_of_a_sample_of_newcomers(newcomers: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender("fm", **{**QUICK, "history": "none"}).fit(newcomers, split="newcomers", split_options=SPLIT)
    monkeypatch.setattr(evaluating, "_MOST_FOLDED", 5)
    done: list[tuple[int, int]] = []
    curve = evaluate_curve(recommender.fitted, (0, 2), "full", "test", 0, (10,), None, lambda n, of: done.append((n, of)))
    assert done == [(5, 10), (10, 10)]
    assert len(curve.points[2].rows) == 5
    assert "a sample of 5 of" in curve.notes[-1]
    some = recommender.newcomer_curve((0, 2), users=3, seed=1)
    assert len(some.points[0].rows) == 3
    knn = Recommender("item-knn", threads=1).fit(newcomers, split="newcomers", split_options=SPLIT)
    assert len(knn.newcomer_curve((0, 2)).points[0].rows) > 5


def test_a_curve_needs_users_of_whom_nothing_was_learned(newcomers: Dataset, board: Dataset) -> None:
    fitted = Recommender("popularity").fit(newcomers, split="newcomers", split_options=SPLIT, refit=True)
    with pytest.raises(DataError, match="'newcomers' has no validation users of whom nothing was learned"):
        fitted.newcomer_curve(part="validation")
    assert fitted.newcomer_curve((0, 3)).points[3].protocol == "full"
    everything = Recommender("popularity").fit(newcomers, split="newcomers", split_options=SPLIT, refit="all")
    with pytest.raises(OptionError, match="nobody is new to it"):
        everything.newcomer_curve()
    ratings = Recommender("fm", "rating", k=4, epochs=1, threads=1).fit(board, "random")
    with pytest.raises(OptionError, match="the run's task is 'rating'"):
        ratings.newcomer_curve()
    with pytest.raises(OptionError, match="did you mean 'full'"):
        fitted.newcomer_curve(protocol="ful")
