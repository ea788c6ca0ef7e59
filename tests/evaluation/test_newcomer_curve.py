from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender, make_split
from gmlfm.data.splits import Split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.newcomer_curve import NewcomerRanker, checked_counts, curve_candidates, newcomer_targets
from tests.data.arbitrary import plain

N_ITEMS = 150
QUICK: dict[str, Any] = {"k": 4, "epochs": 2, "batch_size": 64, "threads": 1}
SPLIT = {"share": 0.2, "validation_share": 0.2}


def market(repeats: str = "merge", ties: str = "strict", n_times: int = 400, seed: int = 0) -> Dataset:
    """50 users with some 24 rows each, a third of them of ten items, so that pairs repeat."""
    rng = np.random.default_rng(seed)
    n = 1200
    items = np.where(rng.random(n) < 0.35, rng.integers(10, size=n), rng.integers(N_ITEMS, size=n))
    columns = {"u": rng.integers(50, size=n).astype(str), "i": items.astype(str), "t": rng.integers(n_times, size=n)}
    schema = {"interactions": {"user": "u", "item": "i", "time": "t", "repeats": repeats, "ties": ties}}
    return Dataset.from_tables(pl.DataFrame(columns), schema=schema)


def slow_events(data: Dataset) -> list[tuple[int, int, int, int, int]]:
    """(user, item, time, place in the file, row) of all events; row -1 for those that merging left out."""
    rows, others = data.interactions, data.history_rows
    events = [(int(u), int(i), int(t), row) for row, (u, i, t) in enumerate(rows.select("user", "item", "time").rows())]
    places = np.arange(len(events)) + np.searchsorted(others["before"].to_numpy(), np.arange(len(events)), side="right")
    listed = [(*event[:3], int(place), event[3]) for event, place in zip(events, places, strict=True)]
    if not others.height:
        return listed
    left_out = others.select("user", "item", "time", "before").rows()
    return listed + [(int(u), int(i), int(t), int(before) + n, -1) for n, (u, i, t, before) in enumerate(left_out)]


@pytest.mark.parametrize("repeats", ["merge", "keep"])
@pytest.mark.parametrize("ties", ["strict", "file"])
@pytest.mark.parametrize(("part", "n_before"), [("validation", 0), ("validation", 3), ("test", 6)])
def test_targets_are_the_first_rows_with_enough_before_them(repeats: str, ties: str, part: str, n_before: int) -> None:
    """Row by row in plain Python."""
    data = market(repeats, ties, n_times=60)
    split = make_split(data, "newcomers", **SPLIT)
    targets = newcomer_targets(data, split, part, split.train, n_before)
    users, items = data.user_numbers.tolist(), data.item_numbers.tolist()
    known, warm = {users[row] for row in split.train}, {items[row] for row in split.train}
    newcomers = {users[row] for row in (split.validation if part == "validation" else split.test)} - known
    expected = {}
    for user in newcomers:
        # Rows of one time that are no history of each other: those that merging left out come last.
        events = [e for e in slow_events(data) if e[0] == user and e[1] in warm]
        events.sort(key=lambda e: (e[2], e[4] < 0 and ties == "strict", e[3]))
        for _, item, time, place, row in events:
            if row < 0:
                continue
            before = [e for e in events if (e[2] < time if ties == "strict" else (e[2], e[3]) < (time, place))]
            if repeats == "merge":
                before = [e for e in before if e[1] != item]
            if len(before) >= n_before:
                expected[row] = [e[1] for e in before]
                break
    assert len(expected) >= 4
    given = {int(row): targets.history.of_user(place).tolist() for place, row in enumerate(targets.rows)}
    assert given == expected
    assert (np.diff(targets.rows) > 0).all()


def test_events_of_a_rows_own_pair_do_not_count() -> None:
    """The newcomer bought i0, i0, i1, i2: i0 has nothing else before it, i1 two events of i0."""
    rows = [(user, item, time) for user in range(8) for time, item in enumerate((0, 1, 2, 3))]
    rows += [(9, 0, 1), (9, 0, 2), (9, 1, 3), (9, 2, 4)]
    data = plain(*(list(column) for column in zip(*rows, strict=True)), repeats="merge")
    split = _without_user(data, "u9")
    targets = newcomer_targets(data, split, "test", split.train, 1)
    assert [data.items.ids[int(item)] for item in data.item_numbers[targets.rows]] == ["i1"]
    assert [data.items.ids[int(item)] for item in targets.history.items] == ["i0", "i0"]
    with pytest.raises(DataError, match=r"none of 1 newcomers has 6 rows of items that were learned of; ask for shorter"):
        newcomer_targets(data, split, "test", split.train, 5)


def _without_user(data: Dataset, user: str) -> Split:
    """Trained on everybody else, and tested on the user's rows."""
    number = data.users.ids.to_list().index(user)
    is_theirs = data.user_numbers == number
    none = np.empty(0, np.int64)
    return replace(make_split(data, "none"), train=np.flatnonzero(~is_theirs), test=np.flatnonzero(is_theirs), validation=none)


@pytest.mark.parametrize("model", ["item-knn", "fm", "popularity"])
def test_a_score_is_that_of_the_last_rows_given(model: str) -> None:
    """User by user, the history cut by hand; fm without a history fits a row to each, and with one it reads it."""
    data = market()
    for settings in [QUICK, {**QUICK, "history": "last,past"}] if model == "fm" else [{"threads": 1}]:
        run = Recommender(model, **settings).fit(data, split="newcomers", split_options=SPLIT).fitted
        targets = newcomer_targets(data, run.split, "test", run.learned_interactions, 4)
        items = data.seen_items
        for count in (0, 1, 4):
            ranker = NewcomerRanker(run.model, run.encoded, targets, count)
            users = data.user_numbers[targets.rows]
            scores = ranker.score_all(users, items, targets.rows)
            pairs = ranker.score_pairs(users, np.tile(items[:7], (len(users), 1)), targets.rows)
            np.testing.assert_allclose(pairs, scores[:, :7], atol=1e-5)
            np.testing.assert_allclose(ranker.score_into(users, items, targets.rows, np.empty_like(scores)), scores, atol=1e-6)
            for place in range(len(users)):
                side = ranker.user_side(users[place : place + 1], targets.rows[place : place + 1])
                given = targets.history.of_user(place)
                last = given[len(given) - count :].tolist()
                if model == "popularity":
                    assert side.history is None
                else:
                    assert side.history is not None
                    assert side.history.items.tolist() == last
                assert side.numbers.tolist() == [-1]
                np.testing.assert_allclose(run.model.score_all(side, items)[0], scores[place], atol=1e-5)


def test_nothing_later_is_seen() -> None:
    """Other items in the rows from the target on change no score of it."""
    data = market(repeats="keep")
    run = Recommender("item-knn", threads=1).fit(data, split="newcomers", split_options=SPLIT).fitted
    targets = newcomer_targets(data, run.split, "test", run.split.train, 5)
    changed, rng = data.item_numbers.copy(), np.random.default_rng(1)
    times = data.interactions["time"].to_numpy()
    warm = np.unique(data.item_numbers[run.split.train])
    for row in targets.rows:
        is_later = (data.user_numbers == data.user_numbers[row]) & (times >= times[row]) & np.isin(changed, warm)
        changed[is_later] = rng.choice(warm, int(is_later.sum()))
    other = replace(data, interactions=data.interactions.with_columns(pl.Series("item", changed.astype(np.int32))))
    assert (other.item_numbers != data.item_numbers).sum() > 20
    again = newcomer_targets(other, run.split, "test", run.split.train, 5)
    assert again.rows.tolist() == targets.rows.tolist()
    assert again.history.items.tolist() == targets.history.items.tolist()


def test_candidates_are_those_of_the_part() -> None:
    data = market()
    split = make_split(data, "newcomers", **SPLIT)
    targets = newcomer_targets(data, split, "test", split.train, 3)
    candidates = curve_candidates(data, split, "test", "full", targets, None, 0)
    pairs = set(zip(data.user_numbers.tolist(), data.item_numbers.tolist(), strict=True))
    warm = set(data.item_numbers[split.train].tolist())
    counts = candidates.sampler.counts(candidates.users, candidates.targets)
    for user, n in zip(candidates.users.tolist(), counts.tolist(), strict=True):
        assert n == 1 + len({item for item in warm if (user, item) not in pairs})
    some = curve_candidates(data, split, "test", "full", targets, 2, 0)
    assert len(some.rows) == 2
    assert "a sample of 2 of" in some.notes[-1]


@pytest.mark.parametrize("counts", [(), (-1,), (1.5,), (True,), ("3",), (2000,)])
def test_counts_are_whole_numbers(counts: Any) -> None:
    with pytest.raises(OptionError, match=r"counts is .*; expected whole numbers from 0 to 1,000, such as 0,1,3,5,10\."):
        checked_counts(counts)
    assert checked_counts([3, 0, 3]) == (0, 3)


def test_data_without_newcomers_or_times_are_refused() -> None:
    data = market()
    split = make_split(data)
    with pytest.raises(
        DataError, match=r"'leave-one-out' has no test users of whom nothing was learned; train with --split newc"
    ):
        newcomer_targets(data, split, "test", split.train, 1)
    with pytest.raises(OptionError, match="part is 'train'"):
        newcomer_targets(data, split, "train", split.train, 1)
    timeless = plain([0, 0, 1, 1], [0, 1, 0, 1])
    split = make_split(timeless, "none")
    with pytest.raises(DataError, match="no times"):
        newcomer_targets(timeless, split, "test", split.train, 1)
