from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gmlfm.kernels.role_sums import Windows, role_sums, role_sums_backward

ROLES = ("last", "recent", "past")


def windows_of(*rows: tuple[int, int], events: list[int], dropped: tuple[int, ...] = ()) -> Windows:
    is_kept = np.ones(len(events), bool)
    is_kept[list(dropped)] = False
    starts, stops = zip(*rows, strict=True)
    return Windows(np.array(events, np.int32), is_kept, np.array(starts), np.array(stops))


def sums_of(row: tuple[int, int], dropped: tuple[int, ...] = (), half_life: float = 1.0) -> list[list[float]]:
    """Of the items 0, 1, 2, 3, one after another, whose vectors are unit vectors: so the weights."""
    windows = windows_of(row, events=[0, 1, 2, 3], dropped=dropped)
    sums: list[list[float]] = role_sums(ROLES, half_life, windows, np.stack([np.eye(4)] * 3), summed=False)[:, 0].tolist()
    return sums


def test_weights_of_each_role_by_hand() -> None:
    last, recent, past = sums_of((1, 4))
    assert last == [0, 0, 0, 1]
    assert recent == pytest.approx([0, *(weight / math.sqrt(21) for weight in (1, 2, 4))])
    assert past == pytest.approx([0, *[1 / math.sqrt(3)] * 3])


def test_dropped_events_count_in_ages_and_not_in_lengths_and_never_concern_the_last() -> None:
    last, recent, past = sums_of((0, 4), dropped=(1, 3))
    assert last == [0, 0, 0, 1]
    assert recent == pytest.approx([1 / math.sqrt(17), 0, 4 / math.sqrt(17), 0])
    assert past == pytest.approx([math.sqrt(0.5), 0, math.sqrt(0.5), 0])


def test_nothing_before_or_nothing_kept_is_zero() -> None:
    assert sums_of((2, 2)) == [[0.0] * 4] * 3
    last, recent, past = sums_of((1, 3), dropped=(1, 2))
    assert last == [0, 0, 1, 0]
    assert recent == past == [0.0] * 4


def test_an_old_event_that_alone_is_kept_has_weight_1_however_old() -> None:
    windows = windows_of((0, 3000), events=[0] * 3000, dropped=tuple(range(1, 3000)))
    assert role_sums(("recent",), 0.5, windows, np.ones((1, 1, 1)), summed=True).tolist() == [[1.0]]


@pytest.mark.parametrize("summed", [False, True])
def test_gradient_is_that_of_autograd(summed: bool) -> None:
    rng = np.random.default_rng(3)
    events, dropped = rng.integers(0, 5, 12).tolist(), (1, 4, 5)
    windows = windows_of((0, 0), (0, 3), (0, 3), (2, 7), (4, 6), (10, 12), events=events, dropped=dropped)
    vectors = torch.tensor(rng.normal(size=(3, 5, 4)), requires_grad=True)
    sums = []
    for place, role in enumerate(ROLES):
        for start, stop in zip(windows.row_start, windows.row_stop, strict=True):
            window = torch.arange(int(start), int(stop))
            counts = torch.tensor(windows.is_kept[start:stop])
            ages = (stop - 1 - window).double()
            if role == "last":
                weights = (ages == 0).double()
            else:
                weights = (2.0 ** (-ages / 5.5) if role == "recent" else torch.ones(len(ages)).double()) * counts
            if weights.any():
                weights = weights / weights.norm()
            sums.append(weights @ vectors[place, torch.tensor(events)[window]])
    expected = torch.stack(sums).view(3, 6, 4)
    expected = expected.sum(0) if summed else expected
    actual = role_sums(ROLES, 5.5, windows, vectors.detach().numpy(), summed=summed)
    np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    gradient = torch.tensor(rng.normal(size=expected.shape))
    expected.backward(gradient)
    assert vectors.grad is not None
    backward = role_sums_backward(ROLES, 5.5, windows, 5, gradient.numpy(), summed=summed)
    np.testing.assert_allclose(backward, vectors.grad.numpy(), rtol=1e-12, atol=1e-12)
