from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.afm import AFM
from gmlfm.models.gradient import Attributes
from tests.models.slow_loops import K, Row, check, linear, rows_and_batch


def test_it_weighs_each_pair_by_its_softmax() -> None:
    model = AFM(K, attention=4)
    with torch.no_grad():
        model.head.uniform_(-1, 1)

    def slow(rows: Tensor, row: Row) -> Tensor:
        products = [rows[i, 1:] * rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2)]
        logits = torch.stack([model.importance(torch.relu(model.attend(product))) for product in products]).squeeze(1)
        weights = logits.exp() / logits.exp().sum()
        return linear(rows, row) + model.head @ sum(w * product for w, product in zip(weights, products, strict=True))

    check(model, slow, 1 + K)


def test_the_loss_adds_the_attention_networks_weights() -> None:
    model = AFM(K, attention=4, attention_l2=2.0)
    rows, user_side, item_side = rows_and_batch(1 + K)
    penalty = model.penalty(rows, user_side, item_side)
    assert penalty is not None
    assert float(penalty.detach()) == pytest.approx(2.0 * float(model.attend.weight.detach().square().sum()))
    assert AFM(K).penalty(rows, user_side, item_side) is None


def test_without_any_pair_it_is_linear() -> None:
    model = AFM(K).double().eval()
    rows = torch.randn(3, 1 + K, dtype=torch.float64)
    user_side = Attributes(torch.tensor([[1]]), torch.ones(1, 1, dtype=torch.float64))
    item_side = Attributes(torch.tensor([[[0]]]), torch.zeros(1, 1, 1, dtype=torch.float64))
    torch.testing.assert_close(model.scores(rows, user_side, item_side)[0, 0], rows[1, 0])


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="attention_l2 is -1; expected 0 or more"):
        AFM(attention_l2=-1)
    with pytest.raises(OptionError, match="attention is 0; expected 1 or more"):
        AFM(attention=0)
