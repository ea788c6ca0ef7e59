from __future__ import annotations

import numpy as np

from gmlfm.models.popularity import Popularity
from tests.models.slow_loops import HISTORY, NO_PLAN, inputs_of, score_all


def test_it_counts_every_positive_for_every_user() -> None:
    model = Popularity()
    model.fit(inputs_of(), NO_PLAN)
    counts = HISTORY.sum(0) + np.array([1, 0, 0, 0, 0])
    np.testing.assert_array_equal(score_all(model), np.tile(counts, (4, 1)))
