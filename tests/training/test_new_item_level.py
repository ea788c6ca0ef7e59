"""The level at which unknown items have the share of the first places that new items had of the choices."""

from __future__ import annotations

import pytest
import torch

from gmlfm.training.new_item_level import new_item_level
from gmlfm.training.sampling.new_items import NewItems


def share(teacher: torch.Tensor, student: torch.Tensor, level: float, n_new: int, places: int) -> float:
    both = torch.cat([teacher, student[:, :n_new] - student.mean() + level], dim=1)
    return float((both.topk(places, dim=1).indices >= teacher.shape[1]).float().mean())


@pytest.mark.parametrize("of_choices", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_new_items_get_their_share_on_any_scale(of_choices: float, scale: float) -> None:
    random = torch.Generator().manual_seed(0)
    teacher = scale * torch.randn(100, 200, generator=random)
    student = scale * (0.3 * torch.randn(100, 200, generator=random) - 5)
    nothing = torch.zeros(100, 200, dtype=torch.bool)
    level = new_item_level(teacher, student, nothing, 200, NewItems(of_choices, 0.2))
    assert share(teacher, student, level, 50, 10) == pytest.approx(of_choices, abs=0.005)
    # Of twice as many known items half are drawn: five places among these are ten among all.
    of_more = new_item_level(teacher, student, nothing, 400, NewItems(of_choices, 0.2))
    assert share(teacher, student, of_more, 50, 5) == pytest.approx(of_choices, abs=0.005)


def test_what_a_user_has_takes_no_place() -> None:
    teacher, student = torch.zeros(50, 100), torch.randn(50, 100, generator=torch.Generator().manual_seed(1))
    teacher[:, :20] = 100.0
    is_owned = teacher > 0
    level = new_item_level(teacher, student, is_owned, 100, NewItems(0.5, 0.5))
    assert abs(level) < 5
    student[:, :20] = 50.0  # nor is it, hidden, a new item that the user likes
    level = new_item_level(teacher, student, is_owned, 100, NewItems(0.5, 0.5))
    assert abs(level - float(student.mean())) < 5
    assert new_item_level(teacher, student, ~is_owned & False, 100, NewItems(0.5, 0.5)) > 50


def test_a_handful_of_new_items_is_not_shown_to_everybody() -> None:
    random = torch.Generator().manual_seed(2)
    teacher, student = torch.randn(200, 100, generator=random), torch.randn(200, 100, generator=random)
    nothing = torch.zeros(200, 100, dtype=torch.bool)
    level = new_item_level(teacher, student, nothing, 100, NewItems(0.9, 0.02))
    assert share(teacher, student, level, 2, 10) == pytest.approx(0.1, abs=0.01)
