from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.errors import OptionError
from gmlfm.models.afm import AFM
from gmlfm.models.base import UserSide
from gmlfm.models.gradient import Attributes, gather
from tests.models.slow_loops import LAYOUT, K, Row, attribute_inputs, check, linear, rows_and_batch


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


@given(st.integers(0, 10_000), st.sampled_from([1e-9, -1e-9]), st.booleans())
def test_it_does_not_jump_where_a_number_is_at_its_centre(seed: int, x: float, gathered: bool) -> None:
    """An attribute of x = 0 is one of x = 1e-9, also where the rows at hand are numbered anew, from 0, without padding."""
    model = AFM(K, attention=4).double().eval()
    rows, user_side, item_side = rows_and_batch(1 + K, seed)
    user_side, item_side = (
        Attributes(side.ids[..., :2].contiguous(), side.x[..., :2].contiguous()) for side in (user_side, item_side)
    )
    if gathered:
        distinct, (user_side, item_side) = gather(user_side, item_side)
        assert 0 in user_side.ids  # a place, which is no padding
        rows = rows[distinct]
    scores = []
    for value in (0.0, x):
        user_side.x[:, 0] = value
        item_side.x[..., 1] = value
        scores.append(model.scores(rows, user_side, item_side))
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("n_times", [1, 20])
def test_an_item_is_scored_alike_whatever_rows_are_at_hand(n_times: int) -> None:
    """Few pairs are scored over their own rows, many over the whole table; no padding stands among them, but an x of 0."""
    model, inputs = AFM(K, attention=4, v_scale=1.0), attribute_inputs()
    model.table = model.initial_rows(LAYOUT.n_rows, torch.Generator().manual_seed(0))
    x = inputs.encoded.item.values.copy()
    x[1, 1] = 0.0
    item = AttributeTable(inputs.encoded.item.ids, x)
    model.attach(replace(inputs, encoded=replace(inputs.encoded, item=item)))
    user = inputs.encoded.user
    sides = [
        Attributes(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(x))
        for ids, x in ((user.ids[:1], user.values[:1]), (item.ids[1][None, None], x[1][None, None]))
    ]
    with torch.no_grad():
        expected = float(model.eval().scores(model.table, *sides))
    asking = UserSide(np.zeros(1, np.int32), AttributeTable(user.ids[:1], user.values[:1]))
    scores = model.score_pairs(asking, np.full((1, n_times), 1, np.int32))
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_padding_takes_no_share_of_the_attention() -> None:
    model = AFM(K, attention=4).double().eval()
    rows, user_side, item_side = rows_and_batch(1 + K)
    padding = torch.zeros(*item_side.ids.shape[:-1], 2, dtype=torch.int64)
    padded = Attributes(torch.cat([item_side.ids, padding], -1), torch.cat([item_side.x, padding.double()], -1))
    torch.testing.assert_close(model.scores(rows, user_side, padded), model.scores(rows, user_side, item_side))


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
