from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender, load_dataset, make_split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation import metrics as evaluation_metrics
from gmlfm.evaluation.protocols import evaluate_held_out
from tests.recommender.conftest import QUICK


@pytest.fixture(scope="module")
def market(small_market: Path) -> Dataset:
    return load_dataset(small_market)


def test_other_data_are_evaluated_by_the_ids_they_share(trained: Recommender, board: Dataset) -> None:
    """Rows of the run's own test part, given as other data in another order, have the same ranks."""
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
    assert len(evaluation.groups) > 2
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
    assert len(evaluation.queries["hr@10"]) == len(split.test)
