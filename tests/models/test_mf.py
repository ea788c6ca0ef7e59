from __future__ import annotations

import numpy as np
import pytest
import torch

from gmlfm.errors import OptionError
from gmlfm.models.mf import MF
from tests.models.slow_loops import B, G, K, check, item_row, rows_and_batch, user_row


def test_it_is_its_equation() -> None:
    model = MF(K)
    with torch.no_grad():
        model.bias.fill_(0.5)
    check(
        model,
        lambda rows, row: (
            0.5 + rows[user_row(row), 0] + rows[item_row(row), 0] + rows[user_row(row), 1:] @ rows[item_row(row), 1:]
        ),
        1 + K,
    )


def test_pmf_adds_the_priors_of_each_instance() -> None:
    model = MF(K, biases=False, lambda_user=0.7, lambda_item=0.2).double()
    rows, user_side, item_side = rows_and_batch(1 + K)
    expected = np.mean(
        [
            0.7 * float(rows[user_side.ids[b, 0], 1:].square().sum())
            + 0.2 * float(rows[item_side.ids[b, g, 0], 1:].square().sum())
            for b in range(B)
            for g in range(G)
        ]
    )
    penalty = model.penalty(rows, user_side, item_side)
    assert penalty is not None
    assert float(penalty) == pytest.approx(expected)
    check(model, lambda rows, row: rows[user_row(row), 1:] @ rows[item_row(row), 1:], 1 + K)
    assert MF(K).penalty(rows, user_side, item_side) is None


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="lambda_user is -1; expected 0 or more"):
        MF(lambda_user=-1)
