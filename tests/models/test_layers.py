from __future__ import annotations

import pytest
import torch
from torch import nn

from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel, Normed, by_field, check_widths, linear_term, mlp, scaled, widths
from gmlfm.models.nfm import NFM
from tests.models.slow_loops import K, rows_and_batch


@pytest.mark.parametrize(("text", "sizes"), [("64,32", [64, 32]), ("", []), (" 8 , 4,", [8, 4])])
def test_layer_sizes_are_written_with_commas(text: str, sizes: list[int]) -> None:
    assert check_widths(text) is None
    assert widths(text) == sizes


@pytest.mark.parametrize("text", ["a", "4,-1", "0", "3.5"])
def test_other_texts_are_no_layer_sizes(text: str) -> None:
    assert check_widths(text) == "sizes of 1 or more, such as 64,32"


def test_batch_norm_takes_a_batch_of_a_single_row_as_it_is() -> None:
    model = NFM(K, dropout=0.0).double().train()
    rows, user_side, item_side = rows_and_batch(1 + K)
    batch = Attributes(user_side.ids[:1], user_side.x[:1]), Attributes(item_side.ids[:1, :1], item_side.x[:1, :1])
    assert model.scores(rows, *batch).isfinite().all()
    norm = Normed(2).train()
    values = torch.tensor([[[3.0, -1.0]]])
    torch.testing.assert_close(norm(values), values, rtol=1e-4, atol=1e-4)  # the running mean is 0, the variance 1
    several = torch.tensor([[[1.0, 5.0]], [[3.0, 9.0]]])
    torch.testing.assert_close(norm(several).flatten(), torch.tensor([-1.0, -1.0, 1.0, 1.0]), rtol=1e-3, atol=1e-3)


def test_layers_come_in_the_order_linear_norm_activation_dropout() -> None:
    layers = mlp(5, [4, 2], dropout=0.1, norm=True, activation=nn.Tanh)
    assert [type(layer) for layer in layers] == [nn.Linear, Normed, nn.Tanh, nn.Dropout] * 2
    assert [(layer.in_features, layer.out_features) for layer in layers if isinstance(layer, nn.Linear)] == [(5, 4), (4, 2)]
    assert [type(layer) for layer in mlp(5, [4])] == [nn.Linear, nn.ReLU]


def test_sums_over_attributes_are_their_loops() -> None:
    rows, _, item_side = rows_and_batch(1 + K)
    factors, total = scaled(rows[:, 1:], item_side), linear_term(rows[:, :1], item_side)
    assert item_side.fields is not None
    places = torch.tensor([0, 0, 0, 1])  # of the fields user, city, item and tags among those of the items
    pooled = by_field(factors, item_side.fields, places, 2)
    for b, g in ((0, 0), (1, 2)):
        attributes = list(zip(item_side.ids[b, g].tolist(), item_side.x[b, g].tolist(), strict=True))
        torch.testing.assert_close(total[b, g], sum(rows[i, 0] * x for i, x in attributes))
        torch.testing.assert_close(pooled[b, g, 0], attributes[0][1] * rows[attributes[0][0], 1:])
        torch.testing.assert_close(pooled[b, g, 1], sum(rows[i, 1:] * x for i, x in attributes[1:]))


def test_rows_start_at_the_scale_that_is_set() -> None:
    class Rows(FactorModel):
        def scores(self, rows: torch.Tensor, user_side: Attributes, item_side: Attributes) -> torch.Tensor:
            raise NotImplementedError

    model = Rows(3, 7, 0.5)
    rows = model.initial_rows(2_000, torch.Generator().manual_seed(0))
    assert rows.shape == (2_000, model.row_width) == (2_000, 7)
    assert float(rows.std()) == pytest.approx(0.5, rel=0.05)
