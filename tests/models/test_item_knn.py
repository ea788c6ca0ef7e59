from __future__ import annotations

import numpy as np
import pytest

from gmlfm.errors import OptionError
from gmlfm.models.item_knn import ItemKNN
from tests.models.slow_loops import HISTORY, NO_PLAN, inputs_of, score_all


def test_it_is_its_loop() -> None:
    model = ItemKNN(neighbours=2, shrink=1.5)
    model.fit(inputs_of(), NO_PLAN)
    norms = np.sqrt(HISTORY.sum(0))
    similar = np.zeros((5, 5))
    for i in range(5):
        scores = [(HISTORY[:, i] @ HISTORY[:, j] / (norms[i] * norms[j] + 1.5) if i != j else 0.0) for j in range(5)]
        for j in sorted(range(5), key=lambda j: (-scores[j], j))[:2]:
            similar[i, j] = scores[j]
    expected = HISTORY @ similar.T
    np.testing.assert_allclose(score_all(model)[:3], expected[:3], rtol=1e-6)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="neighbours is 0; expected 1 or more"):
        ItemKNN(neighbours=0)
    with pytest.raises(OptionError, match="shrink is -1; expected 0 or more"):
        ItemKNN(shrink=-1)
