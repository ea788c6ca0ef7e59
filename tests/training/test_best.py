from __future__ import annotations

import pytest
import torch

from gmlfm.training.best import BestWeights, are_finite


@pytest.mark.parametrize("largest", [2**28, 0])
def test_the_best_come_back_from_memory_and_from_disk(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.training.best._LARGEST_IN_MEMORY", largest)
    weights = {"table": torch.arange(12.0).view(4, 3), "dense.bias": torch.tensor(5.0), "dense.count": torch.tensor(7)}
    best = BestWeights()
    assert not best
    for change in (1, 2):
        weights["table"] += change
        best.keep(weights)
    expected = {name: tensor.clone() for name, tensor in weights.items()}
    for tensor in weights.values():
        tensor.zero_()
    assert best
    assert all(torch.equal(tensor, expected[name]) for name, tensor in best.tensors().items())
    best.put_into(weights)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights.items())
    loaded = BestWeights()
    loaded.load(best.tensors())
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.tensors().items())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["table", "dense.weight"])
def test_a_number_that_is_none_is_seen_wherever_it_is(bad: float, name: str) -> None:
    weights = {
        "table": torch.full((50, 3), 3e38),  # their sum is infinite, they are not
        "dense.weight": torch.ones(7, requires_grad=True),
        "dense.edges": torch.zeros(2, 4, dtype=torch.int32),
        "dense.empty": torch.zeros(0),
    }
    assert are_finite(weights)
    with torch.no_grad():
        weights[name].view(-1)[4] = bad
    assert not are_finite(weights)
