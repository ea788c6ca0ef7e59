from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, make_split
from gmlfm.data.splits import Split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.candidates import Candidates, Pairs, evaluation_candidates
from gmlfm.evaluation.protocols import evaluate_held_out
from tests.data.arbitrary import plain, random_plain
from tests.evaluation.markets import sold_once


def test_candidates_are_distinct_and_none_of_the_users_positives() -> None:
    data = random_plain(30, 150, 900, repeats="merge")
    split = make_split(data)
    drawn, candidates_hash = evaluation_candidates(data, split.test, n=60)
    positives = set(zip(data.user_numbers.tolist(), data.item_numbers.tolist(), strict=True))
    for row, items in zip(split.test, drawn, strict=True):
        assert len(set(items.tolist())) == 60
        assert all((int(data.user_numbers[row]), item) not in positives for item in items.tolist())
    assert evaluation_candidates(data, split.test, n=60)[1] == candidates_hash
    assert evaluation_candidates(data, split.test, n=60, seed=1)[1] != candidates_hash


def test_the_lists_stay_the_same_from_version_to_version() -> None:
    """Runs of different versions are compared by this hash."""
    rng = np.random.default_rng(0)
    users, items, times = (rng.integers(n, size=900) for n in (30, 150, 1000))
    table = pl.DataFrame({"user": [f"u{user}" for user in users], "item": [f"i{item}" for item in items], "time": times})
    schema = {"interactions": {"user": "user", "item": "item", "time": "time"}, "items": {"id": "item"}}
    catalogue = pl.DataFrame({"item": [f"i{item}" for item in range(150)]})
    data = Dataset.from_tables(table, items=catalogue, schema=schema)
    split = make_split(data)
    assert evaluation_candidates(data, split.test, n=60)[1] == "2074e4d67dc8e85a"
    for protocol in ("sampled", "paper"):
        assert Candidates.of_part(data, split, "test", protocol).sampled(n=60)[1] == "2074e4d67dc8e85a"


def test_candidates_are_of_the_items_named_and_avoid_positives_from_elsewhere() -> None:
    data = plain([0, 0, 1], [0, 1, 2], repeats="merge")
    more = Pairs(np.array([0], np.int32), data.item_numbers[2:])
    drawn, _ = evaluation_candidates(data, np.array([2]), n=2)
    assert sorted(drawn[0]) == sorted(data.item_numbers[:2])
    with pytest.raises(DataError, match=r"user 'u0' leaves 0 of 3 items, but 1 are to be sampled; .* use full"):
        Candidates.ordinary(data, np.array([0]), more=more).sampled(n=1)
    with pytest.raises(DataError, match="a tested item is not among the candidates"):
        Candidates.ordinary(data, np.array([2]), data.item_numbers[:1]).sampled(n=1)


def candidate_sets(candidates: Candidates) -> list[set[int]]:
    """All the candidates of each row, the target not included: as many are drawn as there are items."""
    drawn, _ = replace(candidates, fills_up=True).sampled(n=len(candidates.data.items))
    return [set(items[items >= 0].tolist()) for items in drawn]


def positives_of(data: Dataset, user: int, rows: Any) -> set[int]:
    return set(data.item_numbers[rows][data.user_numbers[rows] == user].tolist())


def test_validation_ignores_test_rows_and_test_knows_all() -> None:
    data = random_plain(20, 120, 400, repeats="merge")
    split = make_split(data, "random", seed=0)
    every_row, not_tested = np.arange(data.n_interactions), np.concatenate([split.train, split.validation])
    for part, known in (("validation", not_tested), ("test", every_row)):
        candidates = Candidates.of_part(data, split, part)
        for user, chosen in zip(candidates.users, candidate_sets(candidates), strict=True):
            assert chosen == set(data.seen_items.tolist()) - positives_of(data, int(user), known)
    swapped = replace(split, test=split.test[::-1])
    assert (
        Candidates.of_part(data, swapped, "validation").sampled(n=20)[1]
        == (Candidates.of_part(data, split, "validation").sampled(n=20)[1])
    )


@pytest.mark.parametrize("name", ["leave-one-out", "random", "global-time"])
def test_what_the_user_had_is_a_candidate_where_repeats_are_kept(name: str) -> None:
    data = random_plain(20, 120, 400)
    split = make_split(data, name)
    for part, rows in (("validation", split.validation), ("test", split.test)):
        for protocol in ("full", "paper"):
            candidates = Candidates.of_part(data, split, part, protocol)
            for user, chosen in zip(candidates.users, candidate_sets(candidates), strict=True):
                assert chosen == set(data.seen_items.tolist()) - positives_of(data, int(user), rows)


def test_the_published_protocol_has_no_pools_and_excludes_the_positives_of_all_parts() -> None:
    data = sold_once(20, 300)
    for name in ("leave-one-out", "newcomers"):
        split = make_split(data, name)
        for part in ("validation", "test"):
            candidates = Candidates.of_part(data, split, part, "paper")
            for user, chosen in zip(candidates.users, candidate_sets(candidates), strict=True):
                assert chosen == set(data.seen_items.tolist()) - positives_of(data, int(user), np.arange(data.n_interactions))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", ["leave-one-out", "random", "global-time", "newcomers"])
@pytest.mark.parametrize("part", ["validation", "test"])
def test_single_units_are_ranked_among_those_without_a_row_before_or_those_to_be_had(
    name: str, part: str, listed: bool
) -> None:
    data = sold_once(200, n_exempt=150, listed=listed)
    split = make_split(data, name)
    candidates = Candidates.of_part(data, split, part)
    before = [split.train, split.unused, *([split.validation] if part == "test" else [])]
    sold_before = set(data.item_numbers[np.concatenate(before)].tolist())
    known = np.concatenate([*before, split.validation, *([split.test] if part == "test" else [])])
    single, seen = data.single_unit_items, set(data.seen_items.tolist())
    trained, validated = (set(data.item_numbers[rows].tolist()) for rows in (split.train, split.validation))
    availability = data.availability
    n_single = 0
    for row, user, target, chosen in zip(
        candidates.rows, candidates.users, candidates.targets, candidate_sets(candidates), strict=True
    ):
        n_single += single[target]
        if listed and name == "global-time":
            assert availability is not None
            time = availability.row_times[row]
            allowed = set(np.flatnonzero((availability.start <= time) & (time <= availability.end)).tolist())
            kind = set(np.flatnonzero(single == single[target]).tolist())
            kind &= set(range(len(data.items))) if single[target] else seen
        elif single[target]:
            allowed, kind = seen - sold_before, set(np.flatnonzero(single).tolist())
        else:
            allowed, kind = seen, set(np.flatnonzero(~single).tolist())
            if name == "newcomers":
                later = validated - trained if part == "test" else set()
                for members in (trained, later, seen - trained - later):
                    if int(target) in members:
                        kind &= members
        assert chosen == (allowed & kind) - positives_of(data, int(user), known)
    assert n_single > 20


def test_never_sold_listings_are_candidates_where_there_are_listing_times() -> None:
    data = sold_once(listed=True)
    chosen = candidate_sets(Candidates.of_part(data, make_split(data, "global-time"), "test"))
    assert set(range(len(data.items))) - set(data.seen_items.tolist()) & set.union(*chosen)


def test_rows_with_few_candidates_are_left_out_and_counted() -> None:
    data = sold_once(20, 1500, n_exempt=60)
    split = make_split(data, "random", seed=0)
    is_single = data.single_unit_items[data.item_numbers[split.test]]
    candidates = Candidates.of_part(data, split, "test")
    assert candidates.rows.tolist() == split.test[is_single].tolist()
    assert candidates.places.tolist() == np.flatnonzero(is_single).tolist()
    n_short = int((~is_single).sum())
    assert candidates.notes == (
        f"{n_short:,} of {len(split.test):,} rows are left out: fewer than 100 candidates of their kind.",
    )
    assert (candidates.sampler.counts(candidates.users, candidates.targets) >= 100).all()


def test_where_every_row_has_few_candidates_all_are_kept() -> None:
    data = sold_once(20, 300)
    split = make_split(data, "random", seed=0)
    candidates = Candidates.of_part(data, split, "test")
    assert candidates.rows.tolist() == split.test.tolist()
    assert candidates.notes[0].startswith("every tested row has fewer than 100 candidates of its kind; all are kept")
    drawn, _ = candidates.sampled()
    counts = candidates.sampler.counts(candidates.users, candidates.targets)
    assert ((drawn >= 0).sum(axis=1) == counts - 1).all()


def test_lists_from_outside_are_taken_as_they_are() -> None:
    data = random_plain(20, 120, 400)
    split = make_split(data)
    lists = np.full((len(split.test), 4), -1, np.int32)
    lists[:, 0] = data.item_numbers[split.test]
    lists[::2, 1:3] = [5, 7]
    brought: Split = replace(split, test_candidates=lists)
    drawn, _ = Candidates.of_part(data, brought, "test", "sampled").sampled()
    expected = lists.copy()
    expected[lists == data.item_numbers[split.test][:, None]] = -1
    assert drawn.tolist() == expected.tolist()
    assert Candidates.of_part(data, brought, "test", "full").notes == (
        "the split brings candidate lists, among which the protocol sampled ranks.",
    )
    assert Candidates.of_part(data, brought, "validation", "sampled").lists is None


def test_some_rows_are_taken_with_all_that_belongs_to_them() -> None:
    data = sold_once(listed=True)
    candidates = Candidates.of_part(data, make_split(data, "global-time"), "test")
    places = np.array([5, 0, 9])
    some = candidates.take(places)
    assert some.rows.tolist() == candidates.rows[places].tolist()
    assert candidate_sets(some) == [candidate_sets(candidates)[place] for place in places]


def test_a_sample_of_users_has_all_of_their_rows() -> None:
    data = random_plain(20, 120, 400)
    candidates = Candidates.of_part(data, make_split(data, "random", seed=0), "test")
    n_users = len(np.unique(candidates.users))
    some = candidates.of_some_users(5, seed=1)
    assert len(np.unique(some.users)) == 5
    assert some.rows.tolist() == candidates.rows[np.isin(candidates.users, some.users)].tolist()
    assert some.notes == (f"a sample of 5 of {n_users} tested users, seed 1.",)
    assert candidates.of_some_users(5, seed=1).rows.tolist() == some.rows.tolist()
    assert candidates.of_some_users(5, seed=2).rows.tolist() != some.rows.tolist()
    assert candidates.of_some_users(n_users) is candidates
    with pytest.raises(OptionError, match="users is 0; expected a whole number of 1 or more"):
        candidates.of_some_users(0)


def test_a_part_has_a_name() -> None:
    data = random_plain(20, 120, 400)
    with pytest.raises(OptionError, match="part is 'train'; expected test or validation"):
        Candidates.of_part(data, make_split(data), "train")


class ByTrainingRows:
    """Knows only which items have training rows. sign: whether it puts those first or last."""

    def __init__(self, data: Dataset, rows: Any, sign: float) -> None:
        self._scores = sign * (np.bincount(data.item_numbers[rows], minlength=len(data.items)) > 0).astype(np.float32)

    def score_pairs(self, users: Any, items: Any, rows: Any = None) -> Any:
        return self._scores[items]

    def score_all(self, users: Any, items: Any, rows: Any = None) -> Any:
        return np.tile(self._scores[items], (len(users), 1))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", ["leave-one-out", "random", "global-time", "newcomers"])
def test_who_knows_only_which_items_have_training_rows_is_at_chance(name: str, listed: bool) -> None:
    """Where items sell once. Every candidate ties with the target then, so chance is exact: 10 of all candidates."""
    data = sold_once(120, 4000, 600, listed=listed)
    split = make_split(data, name, seed=0)
    for part in ("validation", "test"):
        candidates = Candidates.of_part(data, split, part)
        counts = candidates.sampler.counts(candidates.users, candidates.targets, candidates.times)
        learned = [split.train] if part == "validation" else [split.train, np.concatenate([split.train, split.validation])]
        for rows in learned:
            for sign in (1.0, -1.0):
                ranker = ByTrainingRows(data, rows, sign)
                sampled = evaluate_held_out(ranker, data, split, part, "sampled")
                assert sampled.metrics["hr@10"] == pytest.approx(0.10)
                full = evaluate_held_out(ranker, data, split, part, "full")
                assert full.metrics["hr@10"] == pytest.approx((10 / counts).mean())
                assert len(full.rows) == len(sampled.rows) > 0.5 * len(split.test if part == "test" else split.validation)


@pytest.mark.parametrize("protocol", ["sampled", "full"])
def test_who_knows_only_which_items_have_training_rows_is_at_chance_among_newcomers(protocol: str) -> None:
    """Ordinary data, the split newcomers: the same before and after a refit."""
    data = random_plain(200, 2500, 6000)
    split = make_split(data, "newcomers", seed=0)
    for rows in (split.train, np.concatenate([split.train, split.validation])):
        evaluation = evaluate_held_out(ByTrainingRows(data, rows, -1.0), data, split, "test", protocol)
        counts = Candidates.of_part(data, split, "test").sampler.counts(
            data.user_numbers[evaluation.rows], data.item_numbers[evaluation.rows]
        )
        chance = 0.10 if protocol == "sampled" else (10 / counts).mean()
        assert evaluation.metrics["hr@10"] == pytest.approx(chance)
        assert {"warm-warm", "warm-new"} <= set(evaluation.groups)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize("protocol", ["full", "paper"])
def test_rows_that_are_ranked_like_a_part_have_its_candidates(listed: bool, part: str, protocol: str) -> None:
    data = sold_once(listed=listed)
    split = make_split(data, "global-time")
    of_part = Candidates.of_part(data, split, part, protocol)
    like_part = Candidates.like_part(data, split, part, protocol, of_part.rows[::2])
    assert like_part.rows.tolist() == of_part.rows[::2].tolist()
    assert candidate_sets(like_part) == candidate_sets(of_part)[::2]
