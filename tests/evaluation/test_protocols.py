from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset, make_split
from gmlfm.data.splits import Split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation import full
from gmlfm.evaluation.candidates import Pairs, evaluation_candidates
from gmlfm.evaluation.metrics import Places, places, ranking_metrics
from gmlfm.evaluation.protocols import (
    Evaluation,
    PositivesByUser,
    evaluate_held_out,
    evaluate_labels,
    evaluate_ranking,
    protocol_for,
    rank_sampled,
)
from tests.data.arbitrary import plain, random_plain


class FixedRanker:
    """Scores from a matrix (users, items)."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = np.asarray(matrix, np.float32)

    def score_pairs(self, users: Any, items: Any, rows: Any = None) -> Any:
        return self._matrix[users[:, None], items]

    def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
        return self._matrix[np.ix_(users, items)]

    def score_pairs_for(self, *_: Any) -> Any:
        raise NotImplementedError

    score_all_for = score_pairs_for


def ranker_of(data: Dataset, seed: int = 0) -> FixedRanker:
    """Whole numbers, so that many scores tie."""
    return FixedRanker(np.random.default_rng(seed).integers(0, 6, (len(data.users), len(data.items))))


@pytest.mark.parametrize("scores_per_block", [1, 100, 8_000_000])
def test_full_ranks_among_all_items_but_the_users_other_positives(
    scores_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow twin: a sorted list for each row, ties by item for the lists, and as expectations for the places."""
    monkeypatch.setattr(full, "_SCORES_PER_BLOCK", scores_per_block)
    data = random_plain(12, 40, 150, repeats="merge")
    rows, ranker = make_split(data).test, ranker_of(data)
    evaluation = evaluate_ranking(ranker, data, rows, cutoffs=(3, 7))
    lists = []
    for index, row in enumerate(rows):
        user, target = int(data.user_numbers[row]), int(data.item_numbers[row])
        excluded = set(data.item_numbers[data.user_numbers == user].tolist()) - {target}
        candidates = [item for item in data.seen_items.tolist() if item not in excluded]
        scores = {item: float(ranker._matrix[user, item]) for item in candidates}
        others = np.array([[score for item, score in scores.items() if item != target]], np.float32)
        expected = ranking_metrics(places(np.array([scores[target]], np.float32), others), (3, 7))
        assert {name: values[index] for name, values in evaluation.queries.items()} == {
            name: values[0] for name, values in expected.items()
        }
        lists.append(sorted(candidates, key=lambda item: (-scores[item], item)))
    popularity = np.bincount(data.item_numbers)
    for n in (3, 7):
        recommended = [item for ranked in lists for item in ranked[:n]]
        assert evaluation.metrics[f"coverage@{n}"] == len(set(recommended)) / len(data.seen_items)
        shares = (popularity[recommended] + 1) / (len(data.seen_users) + 1)
        assert evaluation.metrics[f"novelty@{n}"] == pytest.approx(-np.log2(shares).mean())
    assert evaluation.metrics["ndcg@7"] == pytest.approx(evaluation.queries["ndcg@7"].mean())


def test_full_takes_candidates_and_positives_from_elsewhere() -> None:
    data = plain([0, 0, 1, 2], [0, 1, 2, 3], repeats="merge")
    row, ranker = np.array([0]), FixedRanker([[1, 9, 5, 5]] * 3)
    assert evaluate_ranking(ranker, data, row).queries["mrr"][0] == pytest.approx(1 / 3)
    assert evaluate_ranking(ranker, data, row, candidates=np.array([0, 2], np.int32)).queries["mrr"][0] == 0.5
    more = Pairs(np.array([0], np.int32), np.array([3], np.int32))
    assert evaluate_ranking(ranker, data, row, more=more).queries["mrr"][0] == 0.5
    with pytest.raises(DataError, match="a tested item is not among the candidates"):
        evaluate_ranking(ranker, data, row, candidates=np.array([2], np.int32))


def test_a_cutoff_beyond_the_catalogue_takes_all_of_it() -> None:
    data = plain([0, 0, 1, 2], [0, 1, 2, 3], repeats="merge")
    evaluation = evaluate_ranking(FixedRanker(np.zeros((3, 4))), data, np.array([0]), cutoffs=(1, 50))
    assert (evaluation.queries["hr@1"][0], evaluation.queries["hr@50"][0]) == (pytest.approx(1 / 3), pytest.approx(1.0))
    assert (evaluation.metrics["coverage@1"], evaluation.metrics["coverage@50"]) == (0.25, 0.75)


def test_sampled_ranks_among_the_drawn_candidates_and_paper_counts_ties_as_hits() -> None:
    data = random_plain(20, 200, 300)
    rows, ranker = make_split(data).test, ranker_of(data)
    drawn, candidates_hash = evaluation_candidates(data, rows, seed=4)
    items = np.concatenate([data.item_numbers[rows][:, None], drawn], axis=1)
    scores = ranker.score_pairs(data.user_numbers[rows], items)
    for protocol in ("sampled", "paper"):
        evaluation = evaluate_ranking(ranker, data, rows, protocol, seed=4, cutoffs=(5, 20))
        expected = rank_sampled(scores, protocol, (5, 20))
        assert evaluation.candidates_hash == candidates_hash
        assert (
            evaluation.queries.keys() == expected.keys() == ranking_metrics(places(scores[:, 0], scores[:, 1:]), (5, 20)).keys()
        )
        assert all(np.array_equal(evaluation.queries[name], expected[name]) for name in expected)
    constant = evaluate_ranking(FixedRanker(np.zeros((len(data.users), len(data.items)))), data, rows, "sampled")
    assert constant.metrics["hr@10"] == pytest.approx(0.1)


@given(st.integers(0, 1_000))
def test_sampled_ranks_average_over_ties_or_count_them_as_the_paper_does(seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 4, (5, 12)).astype(np.float32)
    better, tied = (scores[:, 1:] > scores[:, :1]).sum(1), (scores[:, 1:] == scores[:, :1]).sum(1)
    inside = np.clip(3 - better, 0, tied + 1) / (tied + 1)
    np.testing.assert_allclose(rank_sampled(scores, "sampled", (3,))["hr@3"], inside)
    np.testing.assert_array_equal(rank_sampled(scores, "paper", (3,))["hr@3"], better < 3)


def test_wrong_arguments_are_refused_before_anything_is_scored() -> None:
    data = random_plain(4, 10, 30)
    rows = np.array([0, 1])
    unused: Any = None
    with pytest.raises(OptionError, match="did you mean 'sampled'"):
        evaluate_ranking(unused, data, rows, "sampeld")
    with pytest.raises(OptionError, match="seed is -1; expected a whole number of 0 or more"):
        evaluate_ranking(unused, data, rows, seed=-1)
    with pytest.raises(OptionError, match=r"cutoffs is \(5, 5\); expected whole numbers"):
        evaluate_ranking(unused, data, rows, cutoffs=(5, 5))
    with pytest.raises(OptionError, match="cutoffs is 10; expected whole numbers"):
        evaluate_held_out(unused, data, make_split(data), "test", cutoffs=10)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="there are no rows to test"):
        evaluate_ranking(unused, data, rows[:0])


def grouped_split(data: Dataset, train: Any, **parts: Any) -> Split:
    """Groups of known and of new items, as the split `newcomers` has them."""
    empty = np.empty(0, np.int64)
    rows = {"validation": empty, "test": empty, **parts}
    return Split(
        "newcomers", train, unused=empty, options={}, data_hash=data.content_hash, group_names=("warm-warm", "warm-new"), **rows
    )


def test_items_that_training_never_met_are_ranked_among_such_items() -> None:
    """A scorer that only tells met from unmet items must gain nothing by it."""
    data = random_plain(60, 1200, 1500)
    new_items = data.seen_items[:300]
    is_new = np.isin(data.item_numbers, new_items)
    test = np.concatenate([np.flatnonzero(is_new)[:40], np.flatnonzero(~is_new)[:40]])
    train = np.setdiff1d(np.flatnonzero(~is_new), test)
    is_met = np.bincount(data.item_numbers[train], minlength=len(data.items)) > 0
    groups = (~is_met[data.item_numbers[test]]).astype(np.int8)
    split = grouped_split(data, train, test=test, test_groups=groups)
    ranker = FixedRanker(np.tile(~is_met, (len(data.users), 1)))
    for protocol in ("full", "sampled"):
        evaluation = evaluate_held_out(ranker, data, split, "test", protocol, cutoffs=(1, 10))
        for group, n_items in (("warm-warm", is_met.sum()), ("warm-new", (~is_met).sum())):
            chance = 10 / 100 if protocol == "sampled" else 10 / n_items
            assert evaluation.groups[group]["hr@10"] == pytest.approx(chance, rel=0.1)
        assert evaluation.groups["warm-new"]["rows"] == groups.sum()
        assert evaluation.queries["hr@1"].shape == (80,)
        assert evaluation.notes == ()
        assert ("coverage@10" in evaluation.metrics) == (protocol == "full")


def test_rows_with_too_few_candidates_are_left_out_and_groups_follow() -> None:
    data = random_plain(30, 200, 330)
    rows = np.arange(10)
    train = np.arange(10, 330)
    is_met = np.isin(data.item_numbers[rows], data.item_numbers[train])
    split = grouped_split(data, train, validation=rows, validation_groups=(~is_met).astype(np.int8))
    ranker = ranker_of(data)
    met_items = np.unique(data.item_numbers[train])
    for protocol in ("full", "sampled"):
        evaluation = evaluate_held_out(ranker, data, split, "validation", protocol)
        assert evaluation.notes == (f"{(~is_met).sum()} of 10 rows are left out: fewer than 100 candidates of their kind.",)
        assert evaluation.rows.tolist() == rows[is_met].tolist()
        assert {name: group["rows"] for name, group in evaluation.groups.items()} == {"warm-warm": is_met.sum()}
    expected = evaluate_ranking(ranker, data, rows[is_met], candidates=met_items)
    assert evaluate_held_out(ranker, data, split, "validation").queries["mrr"].tolist() == expected.queries["mrr"].tolist()


def test_a_split_without_groups_is_evaluated_as_its_rows() -> None:
    data = random_plain(12, 40, 150)
    split, ranker = make_split(data), ranker_of(data)
    evaluation = evaluate_held_out(ranker, data, split, "test", cutoffs=(2,))
    assert evaluation.metrics == evaluate_ranking(ranker, data, split.test, cutoffs=(2,)).metrics
    assert evaluation.balanced() == evaluation.metrics


def test_lists_from_outside_are_ranked_in_the_sampled_protocols() -> None:
    data = random_plain(12, 40, 150)
    split, ranker = make_split(data), ranker_of(data)
    lists = np.tile(np.array([3, 8, -1, 11], np.int32), (len(split.test), 1))
    lists[:, 1] = data.item_numbers[split.test]  # a list may name its target
    brought = replace(split, test_candidates=lists)
    for protocol in ("sampled", "paper"):
        evaluation = evaluate_held_out(ranker, data, brought, "test", protocol, cutoffs=(1,))
        for index, row in enumerate(split.test):
            user, target = int(data.user_numbers[row]), int(data.item_numbers[row])
            others = [ranker._matrix[user, item] for item in (3, 11) if item != target]
            ranks = places(ranker._matrix[user, [target]], np.array([others], np.float32))
            expected = ranking_metrics(ranks if protocol == "sampled" else Places(ranks.better, 0 * ranks.tied), (1,))
            assert evaluation.queries["mrr"][index] == expected["mrr"][0]
    assert protocol_for(data) == protocol_for(data, brought) == "full"
    assert protocol_for(data, replace(split, validation_candidates=lists)) == "sampled"


def test_groups_have_their_means_and_sizes() -> None:
    evaluation = Evaluation("full", {"hr@1": 0.5}, {"hr@1": np.array([1.0, 0.0, 1.0, 0.0])})
    grouped = evaluation.by_group(("a", "b", "empty"), np.array([0, 1, 1, 1], np.int8))
    assert grouped.groups == {"a": {"rows": 1.0, "hr@1": 1.0}, "b": {"rows": 3.0, "hr@1": pytest.approx(1 / 3)}}
    assert grouped.balanced() == {"hr@1": pytest.approx(2 / 3)}


def test_a_sample_of_users_has_the_values_that_all_have_and_errors() -> None:
    data = random_plain(40, 200, 600)
    split, ranker = make_split(data, "random", seed=0), ranker_of(data)
    everybody = evaluate_held_out(ranker, data, split, "test")
    some = evaluate_held_out(ranker, data, split, "test", users=10, seed=3)
    assert len(np.unique(some.users)) == 10
    is_chosen = np.isin(everybody.rows, some.rows)
    assert some.queries["mrr"].tolist() == everybody.queries["mrr"][is_chosen].tolist()
    assert "a sample of 10 of" in some.notes[0]
    assert some.users.tolist() == data.user_numbers[some.rows].tolist()
    assert set(some.errors) == set(some.queries)
    low, high = some.intervals["hr@10"]
    assert low < some.metrics["hr@10"] < high
    assert high - low == pytest.approx(2 * 1.96 * some.errors["hr@10"], rel=1e-3)
    assert some.errors["hr@10"] > everybody.errors["hr@10"]


def test_small_catalogues_choose_by_the_full_protocol() -> None:
    assert protocol_for(random_plain(5, 90, 200)) == "full"
    assert protocol_for(random_plain(50, 400, 500)) == "sampled"


def test_predictions_are_clipped_and_measured() -> None:
    predicted, labels = np.array([9.0, 2.0, -3.0], np.float32), np.array([5.0, 1.0, 1.0], np.float32)
    evaluation = evaluate_labels(predicted, labels, (1.0, 5.0), implicit=False)
    assert evaluation.metrics == {"rmse": pytest.approx((1 / 3) ** 0.5), "mae": pytest.approx(1 / 3)}
    grouped = evaluation.by_group(("a", "b"), np.array([0, 1, 1], np.int8)).groups
    assert grouped["b"] == {"rows": 2.0, "rmse": pytest.approx(0.5**0.5), "mae": pytest.approx(0.5)}
    implicit = evaluate_labels(
        np.array([2.0, 0.5, 1.0], np.float32), np.array([1.0, -1.0, -1.0], np.float32), (-1.0, 1.0), implicit=True
    )
    assert implicit.metrics["auc"] == 1.0
    errors = evaluate_labels(predicted, labels, (1.0, 5.0), implicit=False, users=np.array([0, 1, 2], np.int32)).errors
    error_of_squares = np.array([0.0, 1.0, 0.0]).std(ddof=1) / 3**0.5
    assert errors == {
        "rmse": pytest.approx(error_of_squares / (2 * (1 / 3) ** 0.5)),
        "mae": pytest.approx(error_of_squares),
    }
    assert set(implicit.metrics) == {"rmse", "mae", "auc", "log_loss"}
    with pytest.raises(DataError, match="NaN"):
        evaluate_labels(np.array([np.nan], np.float32), labels[:1], (1.0, 5.0), implicit=False)


def test_positives_by_user() -> None:
    data = plain([0, 1, 0], [0, 1, 2])
    more = Pairs(np.array([1], np.int32), data.item_numbers[2:])
    assert [sorted(PositivesByUser(data, more)(user)) for user in range(2)] == [
        sorted(data.item_numbers[[0, 2]]),
        sorted(data.item_numbers[[1, 2]]),
    ]
