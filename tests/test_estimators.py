from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from gmlfm.estimators import GMLFMClassifier, GMLFMRegressor


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """So small matrices leave nothing to share, and threads that wait for a busy processor cost the most of the time."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@parametrize_with_checks([GMLFMRegressor(epochs=60, random_state=0), GMLFMClassifier(epochs=25, random_state=0)])
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def crossed(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """A target that only a pair of columns explains."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 4, (n, 2))
    return table, np.where((table[:, 0] + table[:, 1]) % 2 == 0, 1.0, -1.0)


def test_a_pair_of_columns_is_learned_dense_and_sparse_alike() -> None:
    table, target = crossed()
    features = OneHotEncoder().fit_transform(table)
    dense = GMLFMRegressor(random_state=0).fit(features.toarray(), target)
    from_sparse = GMLFMRegressor(random_state=0).fit(sparse.csr_matrix(features), target)
    assert dense.score(features.toarray(), target) > 0.9
    np.testing.assert_allclose(dense.predict(features.toarray()), from_sparse.predict(features), rtol=1e-5, atol=1e-6)


def test_in_a_pipeline_and_a_grid() -> None:
    table, target = crossed(200)
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore"), GMLFMClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"gmlfmclassifier__k": [2, 8]}, cv=2).fit(table, target > 0)
    assert search.best_score_ > 0.85
    chances = search.predict_proba(table)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_several_classes() -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(300, 3))
    target = np.array(["a", "b", "c"])[table.argmax(axis=1)]
    assert GMLFMClassifier(random_state=0).fit(table, target).score(table, target) > 0.85
    with pytest.raises(ValueError, match="needs two classes"):
        GMLFMClassifier().fit(table, ["a"] * 300)
