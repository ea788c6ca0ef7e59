from __future__ import annotations

from gmlfm.tuning import Budget
from gmlfm.tuning.outlook import ComparisonOutlook, SearchOutlook
from tests.progress.clocks import FakeClock


def test_a_search_by_trials_tells_their_number_the_best_and_the_time_left() -> None:
    clock = FakeClock()
    outlook = SearchOutlook("fm", "ndcg@10", Budget(trials=20), clock)
    outlook.note(0, 0.0, None)
    assert outlook.words(clock()) == "tuning fm: trial 1 of 20"
    outlook.note(8, 160.0, 0.12634)
    assert outlook.words(clock()) == "tuning fm: trial 9 of 20, best ndcg@10 0.1263 so far, about 4 min left"
    clock.passes(60)
    assert outlook.words(clock()).endswith("about 3 min left")


def test_a_search_by_seconds_tells_how_many_are_spent() -> None:
    clock = FakeClock()
    outlook = SearchOutlook("fm", "rmse", Budget(seconds=300), clock)
    outlook.note(3, 100.0, 0.9)
    clock.passes(20)
    assert outlook.words(clock()) == "tuning fm: trial 4, 2 min of 5 min, best rmse 0.9000 so far"


def test_a_comparison_by_trials_names_method_and_seed_and_estimates_by_what_it_has_seen() -> None:
    clock = FakeClock()
    outlook = ComparisonOutlook(("fm", "popularity", "mf"), Budget(trials=4), 2, 2.0, clock)
    for model, n_points in (("fm", float("inf")), ("popularity", 1), ("mf", 100)):
        outlook.most_trials(model, n_points)
    assert outlook.words(clock()) == "comparing"
    outlook.begin("fm", "searching")
    assert outlook.words(clock()) == "fm, method 1 of 3: searching"
    outlook.searched("fm", 2, 60.0)
    # 30 s a trial: fm has 2 trials and 2 x 2 trainings left, popularity 1 and 4, mf 4 and 4.
    assert outlook.words(clock()) == f"fm, method 1 of 3: searching, about {19 * 30 // 60 + 1} min left"
    clock.passes(30)
    assert outlook.words(clock()).endswith("about 9 min left")
    outlook.searched("fm", 4, 120.0)
    outlook.begin("fm", "training with seed 1 (2 of 2) for the test")
    outlook.tested("fm", 10.0)
    outlook.searched("popularity", 1, 0.0)
    # fm: one more of 10 s; popularity: nothing that takes time; mf: 4 trials and 4 trainings at the mean of 30 and 0.
    assert outlook.words(clock()) == "fm, method 1 of 3: training with seed 1 (2 of 2) for the test, about 2 min left"
    outlook.close("mf")
    assert outlook.words(clock()).endswith("about 10 s left")


def test_a_comparison_by_seconds_has_what_is_left_of_its_shares() -> None:
    clock = FakeClock()
    outlook = ComparisonOutlook(("fm", "mf"), Budget(seconds=600), 3, 2.0, clock)
    outlook.begin("fm", "a first trial")
    assert outlook.words(clock()) == "fm, method 1 of 2: a first trial, about 20 min left"
    outlook.searched("fm", 5, 300.0)
    outlook.tested("fm", 120.0)
    assert outlook.words(clock()).endswith("about 13 min left")
    outlook.close("fm")  # before its share was spent
    outlook.begin("mf", "searching")
    assert outlook.words(clock()) == "mf, method 2 of 2: searching, about 10 min left"
    outlook.searched("mf", 5, 900.0)
    assert outlook.words(clock()).endswith("about 1 s left")
