from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
import torch
from torch import Tensor

from gmlfm.data.attributes import ROLES
from gmlfm.errors import OptionError
from gmlfm.kernels.spec import GatedSpec, SumsSpec
from gmlfm.models.fm import FM
from gmlfm.models.gated import GatedGMLFM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.gradient import Attributes
from gmlfm.training.engines.resting import draw_back
from tests.models.slow_loops import K, Row, check, linear, rows_and_batch


def random_model(k: int = K, **options: Any) -> GatedGMLFM:
    torch.manual_seed(3)
    model = GatedGMLFM(k, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.7)
    return model


def cosine(left: Tensor, right: Tensor) -> Tensor:
    return left @ right / (left.norm() * right.norm())


@pytest.mark.parametrize("rank", [1, 2, K])
def test_it_is_its_double_sum(rank: int) -> None:
    model = random_model(rank=rank)

    def slow(rows: Tensor, row: Row) -> Tensor:
        total = linear(rows, row) + model.bias
        for (i, x, _), (j, y, _) in combinations(row, 2):
            left, right = rows[i, 1:], rows[j, 1:]
            near = cosine(model.matrix @ left, model.matrix @ right)
            total = total + (model.h * left * right).sum() * (1 + model.gates[0] * near) * x * y
        return total

    check(model, slow, 1 + K)


def test_without_a_metric_it_is_an_fm_with_weights() -> None:
    model = random_model(rank=0, weights=True)

    def slow(rows: Tensor, row: Row) -> Tensor:
        pairs = ((model.h * rows[i, 1:] * rows[j, 1:]).sum() * x * y for (i, x, _), (j, y, _) in combinations(row, 2))
        return linear(rows, row) + model.bias + sum(pairs)

    check(model, slow, 1 + K)
    assert model.pair_parts(*[model.transform_rows(torch.randn(2, 1 + K).double())] * 2)[1] is None


def test_with_lengths_two_attributes_make_half_a_squared_distance() -> None:
    model = random_model(rank=0, lengths=True)
    with torch.no_grad():
        model.h.fill_(1.0)

    def slow(rows: Tensor, row: Row) -> Tensor:
        pairs = (rows[i, 1:] @ rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2))
        return linear(rows, row) + sum(0.5 * rows[i, 1:].square().sum() * x for i, x, _ in row) + model.bias + sum(pairs)

    check(model, slow, 1 + K)
    rows = torch.randn(2, 1 + K).double()
    (user, item), sides = rows, [Attributes(torch.tensor([[place]]), torch.ones(1, 1).double()) for place in (0, 1)]
    scored = model.scores(
        model.transform_rows(rows), sides[0], replace(sides[1], ids=sides[1].ids[:, None], x=sides[1].x[:, None])
    )
    distance = 0.5 * (user[1:] + item[1:]).square().sum()
    torch.testing.assert_close(scored.squeeze(), model.bias + user[0] + item[0] + distance)
    assert model.kernel_spec() is None


def scores_of(model: Any, rows: Tensor) -> Tensor:
    _, user_side, item_side = rows_and_batch(1 + K)
    model.double().eval()
    scores: Tensor = model.scores(model.transform_rows(rows), user_side, item_side)
    return scores


def test_it_starts_as_an_fm() -> None:
    rows = rows_and_batch(1 + K)[0]
    torch.testing.assert_close(scores_of(GatedGMLFM(K, rank=2), rows), scores_of(FM(K), rows))


def test_it_contains_gml_fm_with_z_at_unit_length() -> None:
    """Of unit vectors D = 2 - 2 cos, so h (v_i * v_j) D is 2 h (v_i * v_j) (1 - cos): within the sides, too."""
    torch.manual_seed(0)
    printed, ours = GMLFM(K, transform="mahalanobis", unit=True), GatedGMLFM(K, rank=K)
    with torch.no_grad():
        assert printed.h is not None
        printed.h.normal_()
        printed.bias.fill_(0.3)
        ours.bias.copy_(printed.bias)
        ours.h.copy_(2.0 * printed.h)
        ours.matrix.copy_(printed.transform.matrix)  # type: ignore[arg-type]
        ours.gates.fill_(-1.0)
    rows = rows_and_batch(1 + K)[0]
    torch.testing.assert_close(scores_of(ours, rows), scores_of(printed, rows))


def test_a_role_has_a_gate_of_its_own() -> None:
    model = random_model(rank=2).double()
    earlier, scored = (model.transform_rows(torch.randn(n, 1 + K).double()) for n in (4, 3))
    weight, by_role = None, {}
    for role in ("last", "recent", "past"):
        weight, by_role[role] = model.earlier_pair_parts(earlier, scored, role)  # type: ignore[arg-type]
    near = (by_role["recent"] - 1) / model.gates[2]
    for number, role in enumerate(("last", "recent", "past")):
        torch.testing.assert_close(by_role[role], 1 + model.gates[1 + number] * near)
    assert float(near.detach().abs().max()) <= 1 + 1e-9
    assert weight is not None


def test_the_metric_is_that_of_l() -> None:
    model = random_model(rank=2)
    model.table = torch.randn(5, 1 + K)
    matrix, factors = model.metric()
    torch.testing.assert_close(matrix, (model.matrix.T @ model.matrix).detach())
    assert factors.shape == (5, K)


def test_an_fm_and_one_with_weights_and_a_gate_have_a_kernel() -> None:
    assert type(GatedGMLFM(4).kernel_spec()) is SumsSpec
    assert type(GatedGMLFM(4, rank=2, weights=True).kernel_spec()) is GatedSpec
    assert GatedGMLFM(4, weights=True).kernel_spec() is None
    assert GatedGMLFM(4, rank=2).kernel_spec() is None


def test_a_rank_above_k_and_a_negative_one_are_refused() -> None:
    with pytest.raises(OptionError, match="rank is -1; expected 0"):
        GatedGMLFM(4, rank=-1)
    with pytest.raises(OptionError, match="rank is 5, but k is 4"):
        GatedGMLFM(4, rank=5)


def test_earlier_items_make_pairs_by_their_own_rows_through_a_matrix_of_the_role() -> None:
    model = random_model().double()
    earlier, scored = torch.randn(4, 1 + K).double(), torch.randn(3, 1 + K).double()
    for number, role in enumerate(ROLES):
        matrix = 0.5 * torch.eye(K).double() + model.metrics[number] * 40.0 / K
        values = model.own_pair_values(earlier, scored, role)
        for a, b in product(range(4), range(3)):
            torch.testing.assert_close(values[a, b], earlier[a, 1:] @ matrix @ scored[b, 1:])
    assert not random_model(metrics=False).double().own_pair_values(earlier, scored, "last").any()


def test_an_item_adds_its_rows_in_the_role_and_its_own() -> None:
    model = random_model(weights=True).double()
    rows = torch.randn(5, 1 + K).double()
    attributes = Attributes(
        torch.tensor([[3, 4, 1, 2]]), torch.tensor([[1.0, 0.5, 1.0, 0.5]]).double()
    )  # in the role, then own
    vector = model.in_role(model.history_vectors(rows, attributes), "recent")[0]
    scored = torch.randn(1, 1 + K).double()
    expected = sum(
        x * ((model.h * rows[in_role, 1:] * scored[0, 1:]).sum() + model.own_pair_values(rows[own : own + 1], scored, "recent"))
        for in_role, own, x in ((3, 1, 1.0), (4, 2, 0.5))
    )
    torch.testing.assert_close((vector[1:] * scored[0, 1:]).sum().view(1, 1), expected)
    torch.testing.assert_close(vector[0], rows[3, 0] + 0.5 * rows[4, 0])


def test_the_matrices_are_drawn_back_by_the_number_of_rows_and_the_weights_by_the_rows_decay() -> None:
    model = random_model(rank=2, weights=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict(keep_vars=False).items()}
    draw_back(model, lr=0.01, weight_decay=0.1, n_rows=6_500)
    torch.testing.assert_close(model.metrics, before["metrics"] * (1 - 0.01 * 10.0))
    torch.testing.assert_close(model.h, 1 + (before["h"] - 1) * (1 - 0.01 * 22.0 * 0.01))
    torch.testing.assert_close(model.gates, before["gates"] * (1 - 0.01 * 22.0 * 0.01))
    after = model.metrics.clone()
    draw_back(model, lr=0.01, weight_decay=0.0, n_rows=6_500)
    assert model.metrics.equal(after)


@pytest.mark.parametrize("k", [3, 8, 64])
def test_a_row_is_transformed_alike_whichever_rows_stand_beside_it(k: int) -> None:
    """Up to rounding: in which order a matrix product adds up is its library's, and differs between processors."""
    model, rows = random_model(k, rank=2), torch.randn(50, 1 + k, generator=torch.Generator().manual_seed(0))
    whole = model.transform_rows(rows)
    for size in (2, 5, 40):
        for n in (0, 7):
            torch.testing.assert_close(model.transform_rows(rows[n : n + size]), whole[n : n + size], rtol=1e-5, atol=1e-6)
