from __future__ import annotations

import numpy as np
import pytest
import torch

from gmlfm.models.mamo_network import (
    attention,
    checked_weights,
    initial_weights,
    layer_shapes,
    leaf,
    recalled,
    rewritten,
    through_layers,
)


def test_attention_is_a_softmax_of_cosines_and_reading_a_weighted_sum() -> None:
    generator = np.random.default_rng(1)
    p, keys, memory = generator.normal(size=5), generator.normal(size=(3, 5)), generator.normal(size=(3, 2, 4))
    cosines = [sum(p * key) / (sum(p * p) ** 0.5 * sum(key * key) ** 0.5) for key in keys]
    expected = np.exp(cosines) / sum(np.exp(cosines))
    attended = attention(torch.from_numpy(p), torch.from_numpy(keys))
    assert attended is not None
    assert attended.numpy() == pytest.approx(expected)
    summed = np.zeros((2, 4))
    for slot in range(3):
        summed += expected[slot] * memory[slot]
    assert recalled(torch.from_numpy(memory), attended).numpy() == pytest.approx(summed)
    assert attention(torch.from_numpy(p), None) is None


def test_writing_blends_each_slot_by_its_attention() -> None:
    generator = np.random.default_rng(2)
    a, value, memory = generator.random(3), generator.normal(size=(2, 4)), generator.normal(size=(3, 2, 4))
    expected = np.empty((3, 2, 4))
    for slot in range(3):
        for row in range(2):
            for column in range(4):
                expected[slot, row, column] = 0.3 * a[slot] * value[row, column] + 0.7 * memory[slot, row, column]
    written = rewritten(torch.from_numpy(memory), torch.from_numpy(a), torch.from_numpy(value), 0.3)
    assert written.numpy() == pytest.approx(expected)


def test_layers_are_linear_maps_with_relu() -> None:
    shapes = layer_shapes("user", 2, 3, 4)
    assert shapes == {"user.0.weight": (4, 3), "user.0.bias": (4,), "user.1.weight": (4, 4), "user.1.bias": (4,)}
    weights = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    x = torch.randn(5, 3, dtype=torch.float64)
    expected = []
    for row in x.numpy():
        hidden = np.maximum(weights["user.0.weight"].numpy() @ row + weights["user.0.bias"].numpy(), 0)
        expected.append(np.maximum(weights["user.1.weight"].numpy() @ hidden + weights["user.1.bias"].numpy(), 0))
    assert through_layers(weights, "user", 2, x).numpy() == pytest.approx(np.array(expected))


def test_initial_weights_keep_lengths_and_know_the_labels() -> None:
    k, n_fields, n_slots = 50, 2, 4
    shapes = {
        "embedding": (400, k),
        **layer_shapes("user", 1, k, k),
        "head.out.weight": (200, k),
        "head.out.bias": (200,),
        "task": (k, 2 * k),
        "memory.task": (n_slots, k, 2 * k),
        "memory.keys": (n_slots, 500),
        "memory.bias.user.0.weight": (n_slots, k, k),
    }
    labels = np.array([1.0, 3.0, 5.0, 3.0], np.float32)
    weights, twin, other = (
        initial_weights(shapes, k, n_fields, n_slots, np.unique(labels), labels, seed) for seed in (3, 3, 4)
    )
    assert {name: tuple(weights[name].shape) for name in shapes} == shapes
    deviations = {
        "embedding": 1 / np.sqrt(k * n_fields),
        "user.0.weight": np.sqrt(2 / k),
        "head.out.weight": 1 / np.sqrt(k),
        "task": 1 / np.sqrt(2 * k),
        "memory.task": np.sqrt(n_slots / (2 * k)),
        "memory.keys": 1.0,
    }
    for name, deviation in deviations.items():
        assert float(weights[name].std()) == pytest.approx(deviation, rel=0.1)
        assert torch.equal(weights[name], twin[name])
        assert not torch.equal(weights[name], other[name])
    for name in ("user.0.bias", "head.out.bias", "memory.bias.user.0.weight"):
        assert not weights[name].any()
    assert float(weights["label.mean"]) == 3.0
    assert float(weights["label.spread"]) == pytest.approx(np.sqrt(2.0))
    assert weights["label.levels"].tolist() == [1.0, 3.0, 5.0]


def test_loaded_weights_are_copies_of_the_expected_names_and_shapes() -> None:
    shapes = {"a": (2, 3), "b": ()}
    state = {"a": torch.ones(2, 3, dtype=torch.float64), "b": torch.tensor(2.0)}
    weights = checked_weights(state, shapes)
    assert weights["a"].dtype == torch.float32
    weights["b"].zero_()
    assert float(state["b"]) == 2.0
    with pytest.raises(ValueError, match="'c' is no weight of this model"):
        checked_weights({**state, "c": torch.zeros(1)}, shapes)
    with pytest.raises(ValueError, match=r"'a' has the shape \(2, 3\); expected \(3, 2\)"):
        checked_weights(state, {"a": (3, 2), "b": ()})
    with pytest.raises(KeyError, match="b"):
        checked_weights({"a": state["a"]}, shapes)


def test_a_leaf_gathers_gradients_of_its_own() -> None:
    weight = torch.ones(2, requires_grad=True)
    start = leaf(weight * 2)
    (gradient,) = torch.autograd.grad((start * 3).sum(), [start])
    assert gradient.tolist() == [3.0, 3.0]
    assert weight.grad is None
