from __future__ import annotations

import math

import pytest
import torch

from gmlfm.errors import OptionError
from gmlfm.models.fm import FM
from gmlfm.training.objectives import GROUPED, OBJECTIVES, bpr, objective_named, register_loss, squared

SCORES = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, 0.3]], dtype=torch.float64)
LABELS = torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, -1.0]], dtype=torch.float64)


def slow(name: str, weights: list[float]) -> float:
    total, count = 0.0, 0.0
    for row, weight in zip(SCORES.tolist(), weights, strict=True):
        if name == "squared":
            losses = [(score - label) ** 2 for score, label in zip(row, (1, -1, -1), strict=True)]
        elif name == "logistic":
            losses = [math.log(1 + math.exp(-label * score)) for score, label in zip(row, (1, -1, -1), strict=True)]
        elif name == "bpr":
            losses = [-math.log(1 / (1 + math.exp(-(row[0] - other)))) for other in row[1:]]
        else:
            losses = [-math.log(math.exp(row[0]) / sum(math.exp(score) for score in row))]
        total += weight * sum(losses)
        count += weight * len(losses)
    return total / count


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("weights", [None, [1.0, 3.0]])
def test_each_objective_is_its_loop(name: str, weights: list[float] | None) -> None:
    group_weights = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    loss = OBJECTIVES[name](SCORES, LABELS, group_weights)
    assert float(loss) == pytest.approx(slow(name, weights or [1.0, 1.0]), rel=1e-12)
    leaf = SCORES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: OBJECTIVES[name](scores, LABELS, group_weights), (leaf,))


def test_a_registered_loss_is_known_by_its_name_and_no_name_is_registered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.training.objectives.OBJECTIVES", dict(OBJECTIVES))
    monkeypatch.setattr("gmlfm.training.objectives.GROUPED", grouped := set(GROUPED))
    register_loss("mine")(squared)
    register_loss("my-bpr", compares_groups=True)(bpr)
    assert objective_named("mine", FM(2)) is squared
    assert grouped == {"bpr", "softmax", "my-bpr"}
    with pytest.raises(OptionError, match=r"a loss 'mine' is registered already; .* @register_loss\('my-mine'\)"):
        register_loss("mine")(bpr)


def test_a_model_may_bring_losses_of_its_own() -> None:
    class Model(FM):
        losses = {"mine": squared, "squared": bpr}  # noqa: RUF012 - as a user writes it

    assert objective_named("mine", Model(2)) is squared
    assert objective_named("squared", Model(2)) is bpr
    assert objective_named("softmax", Model(2)) is OBJECTIVES["softmax"]
    with pytest.raises(OptionError, match="loss is 'mien'; did you mean 'mine'"):
        objective_named("mien", Model(2))
