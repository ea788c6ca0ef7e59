from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.base import UserSide
from gmlfm.models.ngcf import NGCF
from tests.models.slow_loops import LAYOUT, K, attribute_inputs, check, item_row, rows_and_batch, user_row


def propagated(model: NGCF, rows: Tensor, edges: list[tuple[int, int]]) -> dict[int, Tensor]:
    """row -> joined vector, node by node."""
    around: dict[int, set[int]] = {}
    for user, item in edges:
        around.setdefault(user, set()).add(item)
        around.setdefault(item, set()).add(user)
    nodes = [*range(1, 7), *range(11, 18)]
    layers = [{node: rows[node] for node in nodes}]
    for own_layer, mixed in zip(model.own_layers, model.mixed, strict=True):
        layer, before = {}, layers[-1]
        for node in nodes:
            neighbours = around.get(node, set())
            shares = {other: 1 / np.sqrt(len(neighbours) * len(around[other])) for other in neighbours}
            message = sum((share * before[other] for other, share in shares.items()), torch.zeros_like(before[node]))
            total = own_layer(before[node] + message) + mixed(message * before[node])
            layer[node] = torch.where(total > 0, total, 0.2 * total)
        layers.append(layer)
    return {node: torch.cat([layers[0][node], *(layer[node] / layer[node].norm() for layer in layers[1:])]) for node in nodes}


def test_it_propagates_over_the_graph_of_positives() -> None:
    model = NGCF(LAYOUT, K, layers=2, dropout=0.4)
    edges = [(3, 13), (3, 14), (4, 14), (5, 15), (3, 13), (1, 16)]  # one twice, one of the unknown user
    users, items = np.array(edges).T
    model.set_graph(users, items)
    model.double().eval()
    rows, user_side, item_side = rows_and_batch(K)
    transformed = model.transform_rows(rows)
    expected = propagated(model, rows, edges[:4])
    for node, vector in expected.items():
        torch.testing.assert_close(transformed[node], vector)
    check(model, lambda rows, row: expected[user_row(row)] @ expected[item_row(row)], K)
    leaf = rows.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda table: model.scores(model.transform_rows(table), user_side, item_side), (leaf,))


def test_it_drops_messages_and_edges_in_training_alone() -> None:
    model = NGCF(LAYOUT, K, layers=1, dropout=0.0, node_dropout=0.5).double()
    model.set_graph(np.array([3, 3, 4, 5] * 3), np.array([13, 14, 14, 15, 16, 13, 15, 16, 17, 17, 13, 14]))
    rows = rows_and_batch(K)[0]
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.equal(model.transform_rows(rows), model.transform_rows(rows))
    model.eval()
    assert torch.equal(model.transform_rows(rows), model.transform_rows(rows))


def test_a_saved_graph_is_loaded_with_the_weights() -> None:
    model, other = (NGCF(LAYOUT, K, layers=1).double().eval() for _ in range(2))
    model.set_graph(np.array([3, 3, 4]), np.array([13, 14, 14]))
    rows = rows_and_batch(K)[0]
    model.table = rows
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.edges, model.edges)
    torch.testing.assert_close(other.transform_rows(rows), model.transform_rows(rows))


def test_a_forgotten_user_leaves_the_graph_of_a_copy_alone() -> None:
    model = NGCF(LAYOUT, K, layers=1).eval()
    model.set_graph(np.array([3, 3, 4]), np.array([13, 14, 14]))
    model.table = rows_and_batch(K)[0].float()
    model.attach(attribute_inputs())
    users, items = UserSide(np.arange(4, dtype=np.int32), attribute_inputs().encoded.user), np.arange(5, dtype=np.int32)
    scores = model.score_all(users, items)  # by now the graph is a sparse matrix
    without = model.without_user(0, (3, 9), attribute_inputs())
    assert isinstance(without, NGCF)
    assert without.edges.tolist() == [[3], [9]]  # row 4 is the fourth node; row 14 follows the six users as the fourth item
    assert model.edges.shape == (2, 3)
    assert not np.allclose(without.score_all(users, items)[1], scores[1])
    np.testing.assert_array_equal(model.score_all(users, items), scores)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="layers is 9; expected 0 to 4"):
        NGCF(LAYOUT, layers=9)
