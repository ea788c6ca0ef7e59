from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.gradient import Attributes

VARIANTS: list[dict[str, Any]] = [
    {"transform": "dnn"},
    {"transform": "mahalanobis"},
    {"transform": "identity"},
    {"transform": "dnn", "layers": 0},
    {"transform": "dnn", "layers": 2},
    {"transform": "dnn", "layers": 3},
    {"transform": "identity", "weight": False},  # without weight and M
    {"transform": "mahalanobis", "weight": False},  # with M only
    {"transform": "dnn", "unit": True, "start": "orthogonal", "h_start": "half"},
    *({"transform": "dnn", "distance": name} for name in ("manhattan", "euclidean", "chebyshev", "cosine")),
    {"transform": "dnn", "distance": "minkowski", "p": 3.0},
    {"transform": "dnn", "form": "factored"},
    {"transform": "dnn", "form": "pairs"},
]


def random_model(k: int = 4, seed: int = 0, **options: Any) -> tuple[GMLFM, Tensor]:
    torch.manual_seed(seed)
    model = GMLFM(k, **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.7)
    return model, torch.randn(12, 1 + k, dtype=torch.float64)


def definition(model: GMLFM, rows: Tensor, ids: Tensor, x: Tensor) -> Tensor:
    """The printed function, pair by pair."""
    w, v = rows[:, 0], rows[:, 1:]
    z = model.transform(v)
    total = model.bias + (w[ids] * x).sum()
    for a in range(len(ids)):
        for b in range(a + 1, len(ids)):
            i, j = ids[a], ids[b]
            weight = torch.ones((), dtype=rows.dtype) if model.h is None else (model.h * v[i] * v[j]).sum()
            total = total + weight * model.measure(z[i : i + 1], z[j : j + 1])[0, 0] * x[a] * x[b]
    return total


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@given(n_user=st.integers(1, 4), n_item=st.integers(1, 4), seed=st.integers(0, 1000))
def test_every_row_of_the_ablation_is_its_definition_by_sides_and_whole(
    options: dict[str, Any], n_user: int, n_item: int, seed: int
) -> None:
    model, rows = random_model(seed=seed, **options)
    generator = torch.Generator().manual_seed(seed)
    user = Attributes(
        torch.randint(0, 12, (2, n_user), generator=generator), torch.randn(2, n_user, generator=generator).double()
    )
    item = Attributes(
        torch.randint(0, 12, (2, 3, n_item), generator=generator), torch.randn(2, 3, n_item, generator=generator).double()
    )
    scores = model.scores(model.transform_rows(rows), user, item)
    for b in range(2):
        for g in range(3):
            ids, x = torch.cat([user.ids[b], item.ids[b, g]]), torch.cat([user.x[b], item.x[b, g]])
            expected = definition(model, rows, ids, x)
            torch.testing.assert_close(scores[b, g], expected, rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(model(rows, Attributes(ids, x)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("options", [variant for variant in VARIANTS if GMLFM(2, **variant).decomposes], ids=str)
def test_one_inner_product_of_precomputed_sides_is_the_score(options: dict[str, Any]) -> None:
    model, rows = random_model(**options)
    users = Attributes(torch.randint(0, 12, (3, 4)), torch.randn(3, 4).double())
    items = Attributes(torch.randint(0, 12, (5, 2)), torch.randn(5, 2).double())
    user_side, item_side = (
        model.side_vectors(model.transform_rows(rows), users, is_user=True),
        model.side_vectors(model.transform_rows(rows), items, is_user=False),
    )
    by_sides = user_side.self_terms[:, None] + item_side.self_terms[None] + user_side.vector @ item_side.vector.T
    grouped = Attributes(items.ids.expand(3, 5, 2), items.x.expand(3, 5, 2))
    torch.testing.assert_close(by_sides, model.scores(model.transform_rows(rows), users, grouped), rtol=1e-8, atol=1e-8)


def test_gradients_by_sides_are_those_of_the_definition() -> None:
    model, rows = random_model(transform="dnn", layers=2)
    user, item = (
        Attributes(torch.tensor([[0, 1]]), torch.ones(1, 2).double()),
        Attributes(torch.tensor([[[2, 1]]]), torch.ones(1, 1, 2).double()),
    )
    leaf, slow_leaf = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    model.scores(model.transform_rows(leaf), user, item).sum().backward()
    fast = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    definition(model, slow_leaf, torch.tensor([0, 1, 2, 1]), torch.ones(4).double()).backward()
    torch.testing.assert_close(leaf.grad, slow_leaf.grad)
    for left, right in zip(
        fast, [parameter.grad for parameter in model.parameters() if parameter.grad is not None], strict=True
    ):
        torch.testing.assert_close(left, right)


@torch.no_grad()
def test_constant_norms_on_one_hot_rows_recover_the_plain_fm() -> None:
    """w_ij = 1 and |v_i| = 1: the score is -2 times an FM's second order, plus a constant."""
    model, rows = random_model(transform="identity", weight=False)
    v = torch.nn.functional.normalize(rows[:, 1:], dim=-1)
    rows = torch.cat([rows[:, :1], v], dim=1)
    gaps = set()
    for ids in (torch.tensor([0, 3, 7]), torch.tensor([1, 4, 9]), torch.tensor([2, 5, 11])):
        x = torch.ones(3, dtype=torch.float64)
        linear = model.bias + rows[ids, 0].sum()
        products = sum(v[i] @ v[j] for a, i in enumerate(ids) for j in ids[a + 1 :])
        gaps.add(round(float(model(rows, Attributes(ids, x)) - linear + 2 * products), 9))
    assert gaps == {6.0}  # 2 for each of the three pairs
    # The limit of the claim: with other values of x the rest is no constant any more.
    ids, x = torch.tensor([0, 3, 7]), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    products = sum(v[ids[a]] @ v[ids[b]] * x[a] * x[b] for a in range(3) for b in range(a + 1, 3))
    rest = model(rows, Attributes(ids, x)) - model.bias - (rows[ids, 0] * x).sum() + 2 * products
    assert abs(float(rest) - 6.0) > 0.1


@torch.no_grad()
def test_our_form_starts_near_a_plain_fm() -> None:
    """Unit length and an orthogonal start make every distance about 2; with h = 1/2 the sum is FM's."""
    model = GMLFM(64, unit=True, start="orthogonal", h_start="half")
    rows = model.initial_rows(200, torch.Generator().manual_seed(0))
    v = rows[:, 1:]
    distances = model.measure(model.transform(v), model.transform(v))
    off = distances[~torch.eye(200, dtype=torch.bool)]
    assert abs(float(off.mean()) - 2.0) < 0.02
    assert float(off.std()) < 0.3
    assert float(off.max()) <= 4.0


def test_padding_changes_nothing() -> None:
    model, rows = random_model()
    short = model(rows, Attributes(torch.tensor([1, 2]), torch.ones(2).double()))
    padded = model(rows, Attributes(torch.tensor([1, 2, 0, 0]), torch.tensor([1.0, 1.0, 0.0, 0.0]).double()))
    torch.testing.assert_close(short, padded)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k is 0; expected 1 to 10,000"),
        ({"form": "fast"}, "form is 'fast'; known: auto, pairs, factored"),
        ({"transform": "cnn"}, "transform is 'cnn'"),
        ({"h_start": "x"}, "h_start is 'x'; known: normal, half"),
        ({"layers": 4}, "layers is 4; expected 0 to 3"),
        ({"activation": "tan"}, "activation is 'tan'; expected tanh, relu, sigmoid, identity"),
        ({"distance": "euclid"}, "distance is 'euclid'; expected squared, euclidean"),
        ({"p": 0.5}, "p is 0.5; expected 1 or more"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        GMLFM(**options)
