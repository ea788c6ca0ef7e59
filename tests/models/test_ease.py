from __future__ import annotations

import numpy as np
import pytest

from gmlfm.errors import DataError, OptionError
from gmlfm.models.ease import EASE
from tests.models.slow_loops import HISTORY, NO_PLAN, inputs_of, score_all


@pytest.mark.parametrize("history", [HISTORY, np.vstack([HISTORY, HISTORY[::-1], HISTORY])])
def test_it_is_its_closed_form_from_either_side(history: np.ndarray) -> None:
    """With fewer users than items and the other way."""
    model = EASE(l2=2.0)
    model.fit(inputs_of(history), NO_PLAN)
    inverse = np.linalg.inv(history.T @ history + 2.0 * np.eye(5))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    has_history = history.sum(1) > 0
    scores = score_all(model, len(history))[has_history]
    np.testing.assert_allclose(scores, (history @ weights)[has_history], rtol=1e-5, atol=1e-6)
    for i in range(5):  # the definition itself: each column is a ridge regression without the item
        others = [j for j in range(5) if j != i]
        ridge = np.linalg.solve(
            history[:, others].T @ history[:, others] + 2.0 * np.eye(4), history[:, others].T @ history[:, i]
        )
        np.testing.assert_allclose(weights[others, i], ridge, atol=1e-9)


def test_it_refuses_what_does_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.models.ease.free_memory", lambda: 100)
    with pytest.raises(DataError, match=r"ease inverts a matrix of 4 x 4 .* Use item-knn"):
        EASE().fit(inputs_of(), NO_PLAN)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="l2 is 0; expected above 0"):
        EASE(l2=0)
