"""The settings of training itself, and what a loss needs of a task."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gmlfm.errors import OptionError
from gmlfm.models.settings import convert_all, declared_settings
from gmlfm.training.objectives import GROUPED
from gmlfm.training.options import TrainingOptions


def test_a_cosine_is_trained_to_its_end_unless_patience_is_given() -> None:
    assert TrainingOptions(schedule="cosine", epochs=20).patience_for(500) == 20
    assert TrainingOptions(schedule="cosine", epochs=20, patience=3).patience_for(500) == 3
    assert [TrainingOptions(epochs=20).patience_for(steps) for steps in (500, 80, 1)] == [3, 5, 10]


def test_small_data_are_held_back_as_much_in_an_epoch_as_large() -> None:
    assert [TrainingOptions().decay_for(steps, has_history=True) for steps in (720, 100, 72, 1, 0)] == [
        0.1,
        0.72,
        1.0,
        1.0,
        1.0,
    ]
    assert TrainingOptions().decay_for(720, has_history=False) == 0.0
    assert [TrainingOptions(weight_decay=0.3).decay_for(720, has_history=on) for on in (True, False)] == [0.3, 0.3]
    assert TrainingOptions(weight_decay=0.0).decay_for(720, has_history=True) == 0.0


@pytest.mark.parametrize(
    ("loss", "task", "n_negatives", "message"),
    [
        ("bpr", "rating", 0, "the loss 'bpr' ranks a positive above negatives, which is the task topn; use squared."),
        ("softmax", "implicit", 0, "which is the task topn; use squared."),
        ("logistic", "rating", 0, "the loss 'logistic' separates +1 from -1; for the labels of the task rating use squared."),
        ("softmax", "topn", 0, "the loss 'softmax' compares a positive with negatives; set negatives to 1 or more."),
        ("squared", "rating", 0, None),
        ("logistic", "implicit", 0, None),
        ("bpr", "topn", 1, None),
    ],
)
def test_a_loss_needs_its_task(loss: str, task: str, n_negatives: int, message: str | None) -> None:
    options = TrainingOptions(loss=loss)
    if message is None:
        options.check_task(task, n_negatives, GROUPED)
        return
    with pytest.raises(OptionError) as caught:
        options.check_task(task, n_negatives, GROUPED)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": 0}, "lr is 0; expected above 0, below 3e+38."),
        ({"lr": math.nan}, "lr is nan; expected above 0, below 3e+38."),
        ({"lr": "fast"}, "lr is 'fast'; expected a number."),
        ({"weight_decay": 100.0}, "weight_decay is 100; expected 0 or more, below 100."),
        ({"epochs": -1}, "epochs is -1; expected 0 or more."),
        ({"epochs": 2.5}, "epochs is 2.5; expected a whole number."),
        ({"patience": 0}, "patience is 0; expected 1 or more."),
        ({"threads": 0}, "threads is 0; expected 1 to 1,024."),
        ({"seed": -1}, "seed is -1; expected 0 to 2,147,483,647."),
        ({"seed": 2**31}, "seed is 2147483648; expected 0 to 2,147,483,647."),
    ],
)
def test_ranges(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        convert_all(declared_settings(TrainingOptions), values)
    assert message in str(caught.value)


def test_patience_is_longer_where_an_epoch_has_few_steps() -> None:
    assert [TrainingOptions().patience_for(steps) for steps in (0, 8, 40, 80, 133, 134, 1_220)] == [10, 10, 10, 5, 4, 3, 3]
    assert TrainingOptions(patience=2).patience_for(8) == 2
