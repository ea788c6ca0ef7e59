"""What a search may cost, in numbers that are given."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gmlfm.errors import OptionError
from gmlfm.tuning.budget import LEAST_TRIALS, Budget, Cost, Finals

FIRST = Cost(10.0, epochs=5, best_epoch=4, rows_ratio=1.25, test_seconds=3.0, measuring_seconds=1.0)
OTHER = Cost(20.0, epochs=10, best_epoch=5)
AT_ONCE = Cost(2.0, rows_ratio=1.25, test_seconds=0.5, measuring_seconds=0.5)


def test_budgets() -> None:
    for values in ((None, None), (1, 1.0)):
        with pytest.raises(OptionError, match="either trials or seconds"):
            Budget(*values)
    for values in ((0, None), (None, 0.0), (None, float("nan"))):
        with pytest.raises(OptionError, match="must be above 0"):
            Budget(*values)


def test_trials_are_counted() -> None:
    assert [Budget(trials=2).allows([FIRST] * n, FIRST) for n in (0, 1, 2)] == [True, True, False]
    assert Budget(trials=2).seconds_left([FIRST], FIRST) is None


def test_a_search_alone_ends_where_no_further_figure_is_to_be_had() -> None:
    """Seconds without final trainings: an epoch of FIRST takes 2, so with 1.9 left a trial would be cut before its first."""
    assert Budget(seconds=5.0).allows([], None)
    assert Budget(seconds=13.1).allows([FIRST], FIRST)
    assert not Budget(seconds=12.9).allows([FIRST], FIRST)
    assert Budget(seconds=13.1).seconds_left([FIRST], FIRST) == pytest.approx(2.1)
    # What is fitted at once cannot be cut: there must be time for the whole of it.
    assert not Budget(seconds=4.4).allows([AT_ONCE], AT_ONCE)
    assert Budget(seconds=4.6).allows([AT_ONCE], AT_ONCE)


def test_the_final_trainings_are_the_best_trials_training_its_refit_and_the_test() -> None:
    assert Finals(3, True, "full").seconds(FIRST, [FIRST]) == 3 * (10.0 + 10.0 * 1.25 * 4 / 5 + 3.0)
    assert Finals(3, False, "full").seconds(FIRST, [FIRST]) == 3 * (10.0 + 3.0)
    # Only the first trial measures rows and tests; they are the same for all.
    assert Finals(1, True, "full").seconds(OTHER, [FIRST, OTHER]) == 20.0 + 20.0 * 1.25 * 5 / 10 + 3.0
    # What is fitted at once is fitted on the rows of the refit alone.
    assert Finals(2, True, "full").seconds(AT_ONCE, [AT_ONCE]) == 2 * (2.0 * 1.25 + 0.5)


def test_what_a_process_does_once_is_spent_but_not_expected_again() -> None:
    warm = replace(FIRST, seconds=34.0, warm_up=24.0)  # FIRST, and kernels that were compiled
    assert (warm.spent, warm.when_warm, warm.to_first_figure) == (35.0, 10.0, 2.0)
    finals = Finals(3, True, "full")
    assert finals.seconds(warm, [warm]) == finals.seconds(FIRST, [FIRST])
    budget = Budget(seconds=1.0, finals=finals)
    assert budget.needed([warm], warm, math.inf) == budget.needed([FIRST], FIRST, math.inf) + 24.0


def test_the_search_leaves_what_the_final_trainings_take() -> None:
    finals = Finals(2, False, "full")
    costs = [FIRST, OTHER, OTHER]
    spent, reserved = 51.0, 2 * (10.0 + 3.0)
    budget = Budget(seconds=100.0, finals=finals)
    assert budget.seconds_left(costs, FIRST) == 100.0 - spent - reserved
    assert budget.seconds_left([Cost(9.0)], None) == 91.0  # no trial came to an end, so nothing is known
    assert budget.allows(costs, FIRST)
    assert not Budget(seconds=spent + reserved + 1.9, finals=finals).allows(costs, FIRST)
    assert Budget(seconds=spent + reserved + 2.1, finals=finals).allows(costs, FIRST)


def test_the_least_trials_are_made_whatever_the_seconds() -> None:
    budget = Budget(seconds=0.001, finals=Finals(3, True, "full"))
    assert [budget.allows([FIRST] * n, FIRST) for n in range(5)] == [True] * LEAST_TRIALS + [False] * (5 - LEAST_TRIALS)
    assert [budget.is_least(n) for n in (0, LEAST_TRIALS - 1, LEAST_TRIALS)] == [True, True, False]
    # A search for itself has no such promise, and neither have trials that are counted.
    assert not Budget(seconds=0.001).is_least(0)
    assert not Budget(trials=5, finals=Finals(3, True, "full")).is_least(0)


def test_what_is_needed_is_the_least_trials_and_the_final_trainings() -> None:
    budget = Budget(seconds=1.0, finals=Finals(2, False, "full"))
    assert budget.needed([FIRST], FIRST, math.inf) == LEAST_TRIALS * 10.0 + 1.0 + 2 * 13.0
    assert budget.needed([FIRST], FIRST, 1) == 1 * 10.0 + 1.0 + 2 * 13.0  # a space of one point
