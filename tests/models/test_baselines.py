"""Each model against a slow loop over its own equation, in float64, gradients included where a form is rearranged."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm.data.attributes import FieldCode
from gmlfm.errors import OptionError
from gmlfm.models.afm import AFM
from gmlfm.models.base import Attributes, GradientModel, Layout, PairwiseModel, Positives
from gmlfm.models.deepfm import DeepFM
from gmlfm.models.fm import FM
from gmlfm.models.mf import MF
from gmlfm.models.ncf import NCF
from gmlfm.models.nfm import NFM
from gmlfm.models.ngcf import NGCF
from gmlfm.models.simple import EASE, ItemKNN, Popularity
from gmlfm.models.transfm import TransFM
from gmlfm.models.xdeepfm import XDeepFM

K, B, G = 3, 2, 3
# user id, user field, item id, item set: two fields a side, the set with up to two members and padding
LAYOUT = Layout(
    (
        FieldCode("user", "user", "id", 1, 4),
        FieldCode("user", "city", "category", 7, 2),
        FieldCode("item", "item", "id", 11, 5),
        FieldCode("item", "tags", "set", 18, 3),
    )
)


def rows_and_batch(width: int, seed: int = 0) -> tuple[Tensor, Attributes, Attributes]:
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(LAYOUT.n_rows, width)))
    rows[0] = 0.0
    user_side = np.stack([rng.integers(3, 7, B), rng.integers(9, 11, B)], axis=1)
    item_side = np.stack([rng.integers(13, 18, (B, G)), rng.integers(20, 23, (B, G)), np.zeros((B, G))], axis=2).astype(int)
    item_side[0, :, 2] = 18  # some sets have a second member, the unknown one; the others are padded
    x_user, x_item = rng.uniform(0.5, 1.5, user_side.shape), rng.uniform(0.5, 1.5, item_side.shape) * (item_side > 0)
    fields = LAYOUT.field_of_row()

    def attributes(ids: Any, x: Any) -> Attributes:
        return Attributes(torch.from_numpy(ids), torch.from_numpy(x), torch.from_numpy(fields[ids].astype(np.int64)))

    return rows, attributes(user_side, x_user), attributes(item_side, x_item)


def whole_row(user_side: Attributes, item_side: Attributes, b: int, g: int) -> list[tuple[int, float, int]]:
    """(row, x, field) of every attribute that is there."""
    assert user_side.fields is not None
    assert item_side.fields is not None
    both = [
        *zip(user_side.ids[b].tolist(), user_side.x[b].tolist(), user_side.fields[b].tolist(), strict=True),
        *zip(item_side.ids[b, g].tolist(), item_side.x[b, g].tolist(), item_side.fields[b, g].tolist(), strict=True),
    ]
    return [one for one in both if one[1] != 0]


def check(model: GradientModel, slow: Any, width: int) -> None:
    model.double().eval()
    rows, user_side, item_side = rows_and_batch(width)
    found = model.scores(model.transform_rows(rows), user_side, item_side)
    assert found.shape == (B, G)
    for b in range(B):
        for g in range(G):
            expected = slow(rows, whole_row(user_side, item_side, b, g))
            torch.testing.assert_close(found[b, g], expected.reshape(()), rtol=1e-9, atol=1e-9)
    if isinstance(model, PairwiseModel):
        user = model.side_vectors(model.transform_rows(rows), user_side, is_user=True)
        flat = Attributes(*(one.flatten(0, 1) for one in (item_side.ids, item_side.x)))
        item = model.side_vectors(model.transform_rows(rows), flat, is_user=False)
        whole = (
            user.self_terms.unsqueeze(1)
            + item.self_terms.view(B, G)
            + torch.einsum("bd,bgd->bg", user.vector, item.vector.view(B, G, -1))
        )
        torch.testing.assert_close(whole, found, rtol=1e-9, atol=1e-9)


def linear(rows: Tensor, row: list[tuple[int, float, int]]) -> Tensor:
    return sum((rows[i, 0] * x for i, x, _ in row), torch.zeros((), dtype=torch.float64))


def by_fields(rows: Tensor, row: list[tuple[int, float, int]]) -> list[Tensor]:
    found = [torch.zeros(K, dtype=torch.float64) for _ in LAYOUT.fields]
    for i, x, field in row:
        found[field] = found[field] + x * rows[i, 1:]
    return found


def test_mf_is_its_equation() -> None:
    model = MF(K)
    with torch.no_grad():
        model.bias.fill_(0.5)
    check(
        model,
        lambda rows, row: 0.5 + rows[row[0][0], 0] + rows[_item(row), 0] + rows[row[0][0], 1:] @ rows[_item(row), 1:],
        1 + K,
    )


def _item(row: list[tuple[int, float, int]]) -> int:
    return next(i for i, _, field in row if field == 2)


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
    check(model, lambda rows, row: rows[row[0][0], 1:] @ rows[_item(row), 1:], 1 + K)
    assert MF(K).penalty(rows, user_side, item_side) is None


def test_fm_is_its_double_sum() -> None:
    model = FM(K)

    def slow(rows: Tensor, row: Any) -> Tensor:
        pairs = (rows[i, 1:] @ rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2))
        return linear(rows, row) + sum(pairs)

    check(model, slow, 1 + K)


def test_nfm_pools_all_pairs_before_its_layers() -> None:
    model = NFM(K, hidden="4,2", dropout=0.5)
    model.pooled[0].running_mean.uniform_(-1, 1)
    model.pooled[0].running_var.uniform_(0.5, 2)

    def slow(rows: Tensor, row: Any) -> Tensor:
        pooled = sum(rows[i, 1:] * rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2))
        norm = model.pooled[0]
        normed = (pooled - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        return linear(rows, row) + model.head(model.deep(normed.unsqueeze(0)))

    check(model, slow, 1 + K)


def test_batch_norm_takes_one_row_as_it_is() -> None:
    model = NFM(K, dropout=0.0).double().train()
    rows, user_side, item_side = rows_and_batch(1 + K)
    one = [Attributes(user_side.ids[:1], user_side.x[:1]), Attributes(item_side.ids[:1, :1], item_side.x[:1, :1])]
    assert model.scores(rows, *one).isfinite().all()


def test_afm_weighs_each_pair_by_its_softmax() -> None:
    model = AFM(K, attention=4)
    with torch.no_grad():
        model.head.uniform_(-1, 1)

    def slow(rows: Tensor, row: Any) -> Tensor:
        products = [rows[i, 1:] * rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2)]
        logits = torch.stack([model.importance(torch.relu(model.attend(one))) for one in products]).squeeze(1)
        weights = logits.exp() / logits.exp().sum()
        return linear(rows, row) + model.head @ sum(w * one for w, one in zip(weights, products, strict=True))

    check(model, slow, 1 + K)
    model = AFM(K, attention=4, attention_l2=2.0)
    rows, user_side, item_side = rows_and_batch(1 + K)
    found = model.penalty(rows, user_side, item_side)
    assert found is not None
    assert float(found.detach()) == pytest.approx(2.0 * float(model.attend.weight.detach().square().sum()))


def test_afm_without_any_pair_is_linear() -> None:
    model = AFM(K).double().eval()
    rows = torch.randn(3, 1 + K, dtype=torch.float64)
    user_side = Attributes(torch.tensor([[1]]), torch.ones(1, 1, dtype=torch.float64))
    item_side = Attributes(torch.tensor([[[0]]]), torch.zeros(1, 1, 1, dtype=torch.float64))
    torch.testing.assert_close(model.scores(rows, user_side, item_side)[0, 0], rows[1, 0])


def test_transfm_is_its_double_loop_with_the_user_first() -> None:
    def slow(rows: Tensor, row: Any) -> Tensor:
        pairs = (
            (rows[i, 1 : 1 + K] + rows[i, 1 + K :] - rows[j, 1 : 1 + K]).square().sum() * x * y
            for (i, x, _), (j, y, _) in combinations(row, 2)
        )
        return linear(rows, row) + sum(pairs)

    check(TransFM(K), slow, 1 + 2 * K)


def test_deepfm_joins_a_machine_and_layers_over_fields() -> None:
    model = DeepFM(LAYOUT, K, hidden="4,2", dropout=0.5)

    def slow(rows: Tensor, row: Any) -> Tensor:
        pairs = sum(rows[i, 1:] @ rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2))
        fields = by_fields(rows, row)
        first = model.deep.user(torch.cat(fields[:2])) + model.deep.item(torch.cat(fields[2:]))
        return linear(rows, row) + pairs + model.deep.rest(first)

    check(model, slow, 1 + K)


@pytest.mark.parametrize("activation", ["identity", "relu"])
@pytest.mark.parametrize("split_half", [True, False])
def test_xdeepfm_crosses_maps_with_fields(split_half: bool, activation: str) -> None:
    model = XDeepFM(LAYOUT, K, cin="4,3", split_half=split_half, cin_activation=activation, hidden="4", dropout=0.0)

    def slow(rows: Tensor, row: Any) -> Tensor:
        fields = by_fields(rows, row)
        outputs, hidden = [], fields
        for number, layer in enumerate(model.cin.layers):
            maps = []
            for h in range(layer.out_features):
                weights = layer.weight[h].view(len(hidden), len(fields))
                crossed = sum(weights[a, b] * hidden[a] * fields[b] for a in range(len(hidden)) for b in range(len(fields)))
                maps.append(torch.relu(crossed) if activation == "relu" else crossed)
            last = number == len(model.cin.layers) - 1
            half = len(maps) // 2 if split_half and not last else 0
            outputs += [one.sum() for one in maps[half:]]
            hidden = maps[:half] if half else maps
        first = model.deep.user(torch.cat(fields[:2])) + model.deep.item(torch.cat(fields[2:]))
        return linear(rows, row) + model.head(torch.stack(outputs)) + model.deep.rest(first)

    check(model, slow, 1 + K)


def test_ncf_is_the_mean_of_its_two_parts_which_can_be_trained_apart() -> None:
    model = NCF(K, hidden="4,2", pretrain=2)
    with torch.no_grad():
        model.product_head.uniform_(-1, 1)

    def parts(rows: Tensor, row: Any) -> tuple[Tensor, Tensor]:
        user, item = rows[row[0][0]], rows[_item(row)]
        deep = model.deep_head(model.deep(torch.cat([user[K:], item[K:]]).unsqueeze(0)))
        return model.product_head @ (user[:K] * item[:K]), deep.squeeze()

    check(model, lambda rows, row: sum(parts(rows, row)) / 2, 2 * K)
    rows, user_side, item_side = rows_and_batch(2 * K)
    model.begin_epoch(1)
    product, deep = model.score_sets(rows, user_side, item_side)
    expected = parts(rows, whole_row(user_side, item_side, 1, 2))
    torch.testing.assert_close(product[1, 2], expected[0])
    torch.testing.assert_close(deep[1, 2], expected[1])
    model.begin_epoch(2)
    assert len(model.score_sets(rows, user_side, item_side)) == 1


def ngcf_slow(model: NGCF, rows: Tensor, edges: list[tuple[int, int]]) -> dict[int, Tensor]:
    """row -> joined vector, node by node."""
    around: dict[int, set[int]] = {}
    for user, item in edges:
        around.setdefault(user, set()).add(item)
        around.setdefault(item, set()).add(user)
    nodes = [*range(1, 7), *range(11, 18)]
    layers = [{node: rows[node] for node in nodes}]
    for own, mixed in zip(model.own_layers, model.mixed, strict=True):
        now, before = {}, layers[-1]
        for node in nodes:
            neighbours = around.get(node, set())
            shares = {other: 1 / np.sqrt(len(neighbours) * len(around[other])) for other in neighbours}
            message = sum((share * before[other] for other, share in shares.items()), torch.zeros_like(before[node]))
            total = own(before[node] + message) + mixed(message * before[node])
            now[node] = torch.where(total > 0, total, 0.2 * total)
        layers.append(now)
    return {node: torch.cat([layers[0][node], *(one[node] / one[node].norm() for one in layers[1:])]) for node in nodes}


def test_ngcf_propagates_over_the_graph_of_positives() -> None:
    model = NGCF(LAYOUT, K, layers=2, dropout=0.4)
    edges = [(3, 13), (3, 14), (4, 14), (5, 15), (3, 13), (1, 16)]  # one twice, one of the unknown user
    users, items = np.array(edges).T
    model.set_graph(users, items)
    model.double().eval()
    rows, user_side, item_side = rows_and_batch(K)
    found = model.transform_rows(rows)
    expected = ngcf_slow(model, rows, edges[:4])
    for node, vector in expected.items():
        torch.testing.assert_close(found[node], vector)
    check(model, lambda rows, row: expected[row[0][0]] @ expected[_item(row)], K)
    leaf = rows.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda given: model.scores(model.transform_rows(given), user_side, item_side), (leaf,))


def test_ngcf_drops_messages_and_edges_in_training_alone() -> None:
    model = NGCF(LAYOUT, K, layers=1, dropout=0.0, node_dropout=0.5).double()
    model.set_graph(np.array([3, 3, 4, 5] * 3), np.array([13, 14, 14, 15, 16, 13, 15, 16, 17, 17, 13, 14]))
    rows = rows_and_batch(K)[0]
    model.train()
    torch.manual_seed(0)
    one, two = model.transform_rows(rows), model.transform_rows(rows)
    assert not torch.equal(one, two)
    model.eval()
    assert torch.equal(model.transform_rows(rows), model.transform_rows(rows))


HISTORY = np.array([[1, 1, 0, 0, 1], [0, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], float)


def positives(history: np.ndarray = HISTORY) -> Positives:
    users, items = np.nonzero(history)
    twice = np.r_[users, users[:1]], np.r_[items, items[:1]]  # a repeated positive counts once
    return Positives(twice[0].astype(np.int32), twice[1].astype(np.int32), *history.shape)


def score_all(model: Any, n_users: int = 4) -> np.ndarray:
    return np.asarray(model.score_all(np.arange(n_users, dtype=np.int32), np.arange(5, dtype=np.int32)))


def test_item_knn_is_its_loop() -> None:
    model = ItemKNN(neighbours=2, shrink=1.5)
    model.fit(positives())
    norms = np.sqrt(HISTORY.sum(0))
    similar = np.zeros((5, 5))
    for i in range(5):
        scores = [(HISTORY[:, i] @ HISTORY[:, j] / (norms[i] * norms[j] + 1.5) if i != j else 0.0) for j in range(5)]
        for j in sorted(range(5), key=lambda j: (-scores[j], j))[:2]:
            similar[i, j] = scores[j]
    expected = HISTORY @ similar.T
    np.testing.assert_allclose(score_all(model)[:3], expected[:3], rtol=1e-6)


@pytest.mark.parametrize("history", [HISTORY, np.vstack([HISTORY, HISTORY[::-1], HISTORY])])
def test_ease_is_its_closed_form_from_either_side(history: np.ndarray) -> None:
    """With fewer users than items and the other way."""
    model = EASE(l2=2.0)
    model.fit(positives(history))
    inverse = np.linalg.inv(history.T @ history + 2.0 * np.eye(5))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    known = history.sum(1) > 0
    np.testing.assert_allclose(score_all(model, len(history))[known], (history @ weights)[known], rtol=1e-5, atol=1e-6)
    for i in range(5):  # the definition itself: each column is a ridge regression without the item
        others = [j for j in range(5) if j != i]
        ridge = np.linalg.solve(
            history[:, others].T @ history[:, others] + 2.0 * np.eye(4), history[:, others].T @ history[:, i]
        )
        np.testing.assert_allclose(weights[others, i], ridge, atol=1e-9)


@pytest.mark.parametrize("make", [ItemKNN, EASE])
def test_somebody_without_history_gets_what_is_popular_and_a_newcomer_her_historys_scores(make: Any) -> None:
    model = make()
    model.fit(positives())
    items = np.arange(5, dtype=np.int32)
    popular = np.argsort(-HISTORY.sum(0), kind="stable")
    assert np.array_equal(np.argsort(-score_all(model)[3], kind="stable"), popular)
    user_side: Any = [None]
    newcomer = model.score_all_for(user_side, items, None, np.flatnonzero(HISTORY[1]).astype(np.int32))
    np.testing.assert_allclose(newcomer[0], score_all(model)[1])
    stranger = model.score_all_for(user_side, items)
    assert np.array_equal(np.argsort(-stranger[0], kind="stable"), popular)


def test_ease_refuses_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.models.simple.free_memory", lambda: 100)
    with pytest.raises(Exception, match=r"ease inverts a matrix of 4 x 4 .* Use item-knn"):
        EASE().fit(positives())


def test_popularity_counts() -> None:
    model = Popularity()
    model.fit(positives())
    np.testing.assert_array_equal(score_all(model)[0], HISTORY.sum(0) + np.array([1, 0, 0, 0, 0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NFM(hidden="a,b"), "hidden is 'a,b'; expected whole numbers such as 64,32"),
        (lambda: NFM(hidden="0"), "sizes of 1 or more"),
        (lambda: NFM(dropout=1.0), "dropout is 1.0"),
        (lambda: FM(k=0), "k is 0"),
        (lambda: AFM(attention_l2=-1), "attention_l2 is -1"),
        (lambda: AFM(attention=0), "attention is 0"),
        (lambda: MF(lambda_user=-1), "lambda_user is -1"),
        (lambda: NCF(pretrain=-1), "pretrain is -1"),
        (lambda: NGCF(LAYOUT, layers=9), "layers is 9"),
        (lambda: XDeepFM(LAYOUT, cin="3,3"), "of even sizes"),
        (lambda: XDeepFM(LAYOUT, cin=""), "one layer or more"),
        (lambda: ItemKNN(neighbours=0), "neighbours is 0"),
        (lambda: ItemKNN(shrink=-1), "shrink is -1"),
        (lambda: EASE(l2=0), "l2 is 0"),
    ],
)
def test_values_out_of_range_are_refused(call: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        call()
