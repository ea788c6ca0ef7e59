from __future__ import annotations

import torch

from gmlfm.kernels.codes import LOSS_CODES, OPTIMISER_CODES, loss_terms
from gmlfm.training.objectives import OBJECTIVES
from gmlfm.training.rows import ROW_OPTIMISERS


def test_every_code_names_a_loss_or_an_optimiser_that_there_is() -> None:
    assert set(LOSS_CODES) <= set(OBJECTIVES)
    assert set(OPTIMISER_CODES) <= set(ROW_OPTIMISERS)


def test_a_groups_terms_are_those_of_the_objectives_mean() -> None:
    """With all terms alike, the mean is their sum over how many there are: found here by counting equal terms."""
    scores, labels = torch.zeros(1, 5), torch.tensor([[1.0, -1.0, -1.0, -1.0, -1.0]])
    for name, code in LOSS_CODES.items():
        doubled = OBJECTIVES[name](scores.repeat(2, 1), labels.repeat(2, 1), None)
        torch.testing.assert_close(doubled, OBJECTIVES[name](scores, labels, None))
        assert loss_terms(code, 5) == {"bpr": 4, "softmax": 1}.get(name, 5)
