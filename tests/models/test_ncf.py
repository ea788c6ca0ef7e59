from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.ncf import NCF
from tests.models.slow_loops import K, Row, check, item_row, joined_row, rows_and_batch, user_row


def test_it_is_the_mean_of_its_two_parts_which_can_be_trained_apart() -> None:
    model = NCF(K, hidden="4,2", pretrain=2)
    with torch.no_grad():
        model.product_head.uniform_(-1, 1)

    def parts(rows: Tensor, row: Row) -> tuple[Tensor, Tensor]:
        user, item = rows[user_row(row)], rows[item_row(row)]
        deep = model.deep_head(model.deep(torch.cat([user[K:], item[K:]]).unsqueeze(0)))
        return model.product_head @ (user[:K] * item[:K]), deep.squeeze()

    check(model, lambda rows, row: sum(parts(rows, row), torch.zeros(())) / 2, 2 * K)
    rows, user_side, item_side = rows_and_batch(2 * K)
    model.begin_epoch(1)
    product, deep = model.score_sets(rows, user_side, item_side)
    expected = parts(rows, joined_row(user_side, item_side, 1, 2))
    torch.testing.assert_close(product[1, 2], expected[0])
    torch.testing.assert_close(deep[1, 2], expected[1])
    model.begin_epoch(2)
    assert len(model.score_sets(rows, user_side, item_side)) == 1
    assert model.warm_epochs == 2


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="pretrain is -1; expected 0 or more"):
        NCF(pretrain=-1)
