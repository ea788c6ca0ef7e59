"""A comparison's rows, from what is stored of its methods."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from gmlfm import Dataset
from gmlfm.errors import DataError
from gmlfm.tuning.plan import Plan
from gmlfm.tuning.results import Results
from gmlfm.tuning.rows import read_comparison
from gmlfm.tuning.study import Tuned
from tests.contracts.checkerboard import checkerboard


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def store(out: Path, plan: Plan, queries: dict[str, list[dict[str, list[float]]]], failures: dict[str, str]) -> None:
    about = {"plan": {**asdict(plan), "models": list(plan.models)}, "budget": "10 seconds in all", "share": 5.0}
    (out / "plan.json").write_text(json.dumps(about))
    (out / "failures.json").write_text(json.dumps(failures))
    for model, by_seed in queries.items():
        Results(out).choose(Tuned(model, plan.task, None, {}, {"k": 8}, {"ndcg@10": 0.5}, 3, 1, 12.0, []))
        for seed, values in enumerate(by_seed):
            Results(out).add(model, seed, {name: np.array(value) for name, value in values.items()}, 2.0 + seed)


def test_rows_are_means_over_seeds_and_queries_and_the_best_is_first(data: Dataset, tmp_path: Path) -> None:
    queries = {
        "fm": [{"ndcg@10": [0.0, 0.2], "hr@10": [0.0, 1.0]}, {"ndcg@10": [0.2, 0.4], "hr@10": [1.0, 1.0]}],
        "mf": [{"ndcg@10": [0.5, 0.7], "hr@10": [1.0, 1.0]}, {"ndcg@10": [0.5, 0.5], "hr@10": [1.0, 1.0]}],
    }
    store(tmp_path, Plan(("fm", "ease", "mf"), seeds=2), queries, {"ease": "too large."})
    comparison = read_comparison(data, tmp_path)
    assert [row.model for row in comparison.rows] == ["mf", "fm"]
    row = comparison.rows[1]
    assert row.means == pytest.approx({"ndcg@10": 0.2, "hr@10": 0.75})
    assert row.seed_spread == pytest.approx(np.std([0.1, 0.3]))
    assert (row.against, row.difference) == ("mf", pytest.approx(0.2 - 0.55))
    assert (row.final_seconds, row.search_seconds, row.seconds) == (5.0, 12.0, 17.0)
    assert (row.trials, row.failed, row.fixed, comparison.share) == (3, 1, {"k": 8}, 5.0)
    assert comparison.failures == {"ease": "too large."}


def test_errors_of_ratings_are_roots_of_means(data: Dataset, tmp_path: Path) -> None:
    queries = {
        "fm": [{"squared_error": [4.0, 0.0], "absolute_error": [2.0, 0.0]}],
        "mf": [{"squared_error": [1.0, 1.0], "absolute_error": [1.0, 1.0]}],
    }
    store(tmp_path, Plan(("fm", "mf"), "rating", "random", seeds=1), queries, {})
    comparison = read_comparison(data, tmp_path)
    assert [(row.model, row.means["rmse"], row.means["mae"]) for row in comparison.rows] == [
        ("mf", 1.0, 1.0),
        ("fm", pytest.approx(2**0.5), 1.0),
    ]
    assert comparison.rows[0].difference == pytest.approx(1.0 - 2**0.5)


def test_a_folder_without_a_table_is_refused(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no finished comparison"):
        read_comparison(data, tmp_path)
    store(tmp_path, Plan(("fm", "mf"), seeds=1), {}, {"fm": "too large.", "mf": "too slow."})
    with pytest.raises(DataError, match=r"no method came to an end: fm: too large\.; mf: too slow\."):
        read_comparison(data, tmp_path)
