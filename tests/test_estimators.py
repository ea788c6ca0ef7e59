from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine, make_friedman1
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gmlfm.errors import OptionError
from gmlfm.estimators import GMLFMClassifier, GMLFMRegressor, _Columns
from gmlfm.training.trainer import DivergedError


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """So small matrices leave nothing to share, and threads that wait for a busy processor cost the most of the time."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@parametrize_with_checks(
    [
        GMLFMRegressor(random_state=0),
        GMLFMClassifier(random_state=0),
        GMLFMRegressor(early_stopping=False, epochs=60, random_state=0),
    ]
)
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


@pytest.mark.parametrize(
    ("preprocessing", "data", "least"),
    [
        (StandardScaler(), load_diabetes(return_X_y=True), 0.4),
        (None, load_diabetes(return_X_y=True), 0.4),
        (StandardScaler(), make_friedman1(400, noise=1.0, random_state=0), 0.6),
        (None, make_friedman1(400, noise=1.0, random_state=0), 0.6),
    ],
    ids=["diabetes, standardised", "diabetes", "friedman1, standardised", "friedman1"],
)
def test_a_small_pipeline_beats_the_mean_without_tuning(preprocessing: Any, data: Any, least: float) -> None:
    X, y = data
    pipeline = make_pipeline(*([preprocessing] if preprocessing else []), GMLFMRegressor(random_state=0))
    scores = cross_val_score(pipeline, X, y, cv=KFold(4, shuffle=True, random_state=0))
    assert scores.mean() > least  # R2: the mean has 0
    assert scores.min() > 0.2


def test_sixty_rows_are_not_learned_by_heart() -> None:
    """Ten columns and their pairs have more to choose from than 45 rows can tell; without a stop R2 was below -3."""
    X, y = load_diabetes(return_X_y=True)
    folds = KFold(4, shuffle=True, random_state=0)
    assert cross_val_score(GMLFMRegressor(random_state=0), X[:60], y[:60], cv=folds).mean() > -0.3
    unstopped = GMLFMRegressor(early_stopping=False, weight_decay=0.0, random_state=0)
    assert cross_val_score(unstopped, X[:60], y[:60], cv=folds).mean() < -1.0


def shop(n: int = 600) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Rows of a shop, whose target is a matter of city, product, both together, and a number."""
    rng = np.random.default_rng(0)
    city, product, size = rng.integers(0, 12, n), rng.integers(0, 20, n), rng.normal(100.0, 15.0, n)
    together = rng.normal(size=(12, 4)) @ rng.normal(size=(4, 20)) * 0.5
    target = rng.normal(size=12)[city] + rng.normal(size=20)[product] + together[city, product] + 0.02 * size
    rows = [{"city": f"c{c}", "product": f"p{p}", "size": s} for c, p, s in zip(city, product, size, strict=True)]
    return rows, 50.0 + 10.0 * (target + 0.5 * rng.normal(size=n))


def test_a_table_of_categories_beats_the_mean_and_a_linear_model() -> None:
    rows, y = shop()
    folds = KFold(4, shuffle=True, random_state=0)
    ours, linear = (
        cross_val_score(make_pipeline(DictVectorizer(), model), rows, y, cv=folds).mean()
        for model in (GMLFMRegressor(random_state=0), Ridge())
    )
    assert ours > 0.7
    assert ours > linear + 0.1


@pytest.mark.parametrize(
    ("data", "least"),
    [(load_breast_cancer(return_X_y=True), 0.93), (load_iris(return_X_y=True), 0.88), (load_wine(return_X_y=True), 0.88)],
    ids=["breast cancer", "iris", "wine"],
)
def test_classes_are_told_apart_without_tuning(data: Any, least: float) -> None:
    X, y = data
    pipeline = make_pipeline(StandardScaler(), GMLFMClassifier(random_state=0))
    assert cross_val_score(pipeline, X, y, cv=StratifiedKFold(4, shuffle=True, random_state=0)).mean() > least


def test_the_scales_of_columns_and_target_do_not_matter() -> None:
    X, y = make_friedman1(200, noise=1.0, random_state=0)
    plain = GMLFMRegressor(random_state=0).fit(X, y).predict(X)
    scaled = GMLFMRegressor(random_state=0).fit(1e4 * X + 300.0, 1e6 * y - 5e7).predict(1e4 * X + 300.0)
    np.testing.assert_allclose((scaled + 5e7) / 1e6, plain, rtol=1e-3, atol=1e-2)


def test_training_stops_when_the_rows_held_out_say_so() -> None:
    X, y = make_friedman1(400, noise=1.0, random_state=0)
    early = GMLFMRegressor(random_state=0).fit(X, y)
    late = GMLFMRegressor(early_stopping=False, epochs=60, random_state=0).fit(X, y)
    patient = GMLFMRegressor(n_iter_no_change=25, random_state=0).fit(X, y)
    assert 10 < early.n_iter_ < 200
    assert early.n_iter_ < patient.n_iter_
    assert late.n_iter_ == 60
    hopeless = GMLFMRegressor(tol=1e9, random_state=0).fit(X, y)  # no gain is large enough: the first epoch, then patience
    assert hopeless.n_iter_ == 11


def test_the_best_epoch_is_kept() -> None:
    """With lr so high the last epochs are no better than the mean."""
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    assert GMLFMRegressor(lr=0.3, n_iter_no_change=30, random_state=0).fit(X, y).score(X, y) > 0.3


def test_training_that_comes_to_nothing_is_told_where_no_rows_are_held_out() -> None:
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    with pytest.raises(DivergedError, match="nothing was learned"):
        GMLFMRegressor(lr=100.0, early_stopping=False, random_state=0).fit(X, y)
    # A batch that does worse than at the start while the others do better is none of that; warnings are errors here.
    rng = np.random.default_rng(0)
    sparse_rows = sparse.random(40, 3, 0.4, random_state=0, data_rvs=lambda n: rng.uniform(0.6, 1.0, n))
    GMLFMRegressor(early_stopping=False, epochs=30, random_state=0).fit(sparse_rows, rng.integers(0, 4, 40))


def test_held_out_rows_are_a_share_of_each_class_and_no_training_rows() -> None:
    targets = np.where(np.arange(1000) < 100, 1.0, -1.0).astype(np.float32)
    train, held_out = GMLFMClassifier(validation_fraction=0.2)._held_out(targets, 0, by_class=True)
    assert sorted([*train, *held_out]) == list(range(1000))
    assert len(held_out) == 200
    assert (targets[held_out] > 0).sum() == pytest.approx(20, abs=1)
    sizes = {n: len(GMLFMRegressor()._held_out(np.zeros(n, np.float32), 0, by_class=False)[1]) for n in (6, 40, 100, 1000)}
    assert sizes == {6: 0, 40: 10, 100: 20, 1000: 100}
    assert len(GMLFMRegressor(early_stopping=False)._held_out(targets, 0, by_class=False)[1]) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0; expected a number above 0 and below 1"),
        ({"tol": -1.0}, "tol is -1.0; expected 0 or more"),
        ({"batch_size": 0}, "batch_size is 0; expected 'auto', or a whole number of 1 or more"),
        ({"n_iter_no_change": 0}, "patience is 0"),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        GMLFMRegressor(**settings).fit(np.eye(20), np.arange(20))


def test_numbers_are_standardised_and_what_is_sparse_keeps_its_zeros() -> None:
    matrix = sparse.csr_matrix(
        np.array([[1.0, 0.0, 5.0, 2.0], [3.0, 0.0, 0.0, 2.0], [5.0, 4.0, 0.0, 2.0], [7.0, 0.0, 0.0, 0.0]])
    )
    columns = _Columns(matrix)
    assert columns.is_number.tolist() == [True, False, False, False]  # the last says that something is there
    scaled = columns(matrix).toarray()
    np.testing.assert_allclose(scaled[:, 0], (np.array([1, 3, 5, 7]) - 4) / np.std([1, 3, 5, 7]))
    np.testing.assert_allclose(scaled[:, 1:], matrix.toarray()[:, 1:] > 0)
    far = sparse.csr_matrix(np.array([[1e9, 0.0, 0.0, 0.0]]))
    assert columns(far)[0, 0] == 10.0
