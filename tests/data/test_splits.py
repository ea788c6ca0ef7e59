from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm import Dataset, make_split
from gmlfm.data.splits import NEWCOMER_GROUPS, SPLITS, TEST, TRAIN, VALIDATION, Split, leave_last_out
from gmlfm.errors import DataError, OptionError
from tests.data.arbitrary import datasets, plain, random_plain


def parts(split: Split) -> list[np.ndarray]:
    return [split.train, split.validation, split.test, split.unused]


@given(datasets(min_rows=1, few=True), st.sampled_from(["leave-one-out", "random", "global-time", "none"]), st.integers(0, 3))
def test_a_split_is_a_partition_and_the_same_each_time(data: Dataset, name: str, seed: int) -> None:
    split = make_split(data, name, seed=seed)
    assert np.sort(np.concatenate(parts(split))).tolist() == data.positive_rows.tolist()
    assert all((np.diff(rows) > 0).all() for rows in parts(split))
    assert make_split(data, name, seed=seed).hash == split.hash


@pytest.mark.parametrize("name", ["leave-one-out", "global-time", "newcomers", "cold-start"])
def test_the_order_of_the_file_does_not_matter_where_times_differ(name: str) -> None:
    rng = np.random.default_rng(0)
    users, items = rng.integers(20, size=600), rng.integers(40, size=600)
    times = rng.permutation(600)
    order = rng.permutation(600)
    options = {"ratings": 10, "adapt": 6} if name == "cold-start" else {}
    split = make_split(plain(users.tolist(), items.tolist(), times.tolist()), name, **options)
    reordered = make_split(plain(users[order].tolist(), items[order].tolist(), times[order].tolist()), name, **options)
    for left, right in zip(parts(split), parts(reordered), strict=True):
        assert sorted(times[left].tolist()) == sorted(times[order][right].tolist())
    assert len(split.test) > 0


@given(datasets(few=True))
def test_leave_one_out_tests_the_latest_and_validates_the_one_before(data: Dataset) -> None:
    split = make_split(data, "leave-one-out")
    part_of_row = {
        int(row): name for name, rows in zip("tvx", (split.train, split.validation, split.test), strict=True) for row in rows
    }
    rows = data.interactions.with_row_index("row").rows(named=True)
    for user in set(data.user_numbers.tolist()):
        user_rows = sorted((row["time"], row["row"]) for row in rows if row["user"] == user)
        expected = "t" * len(user_rows) if len(user_rows) < 3 else "t" * (len(user_rows) - 2) + "vx"
        assert "".join(part_of_row[row] for _, row in user_rows) == expected


@given(st.lists(st.integers(0, 4), max_size=20))
def test_leave_last_out_is_its_plain_loop(users: list[int]) -> None:
    expected = [TRAIN] * len(users)
    for user in set(users):
        rows = [row for row, owner in enumerate(users) if owner == user]
        if len(rows) >= 3:
            expected[rows[-1]], expected[rows[-2]] = TEST, VALIDATION
    assigned = leave_last_out(np.array(users, np.int32))
    assert assigned.dtype == np.int8
    assert assigned.tolist() == expected


def test_users_with_too_few_rows_are_counted_in_a_note() -> None:
    split = make_split(plain([1, 1, 1, 2, 2, 3], [1, 2, 3, 1, 2, 1]), "leave-one-out")
    assert split.notes[0] == "2 users have fewer than 3 rows: all theirs are trained on, none tested."
    assert "no time is declared" in split.notes[1]
    assert (split.validation.tolist(), split.test.tolist()) == ([1], [2])


def test_random_has_exact_shares_and_follows_its_seed() -> None:
    data = random_plain(50, 50, 1000)
    split = make_split(data, "random")
    assert [len(rows) for rows in parts(split)] == [700, 200, 100, 0]
    assert make_split(data, "random", seed=1).hash != split.hash


def test_global_time_keeps_one_moment_together() -> None:
    data = plain([1] * 10, list(range(10)), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    split = make_split(data, "global-time", validation=0.2, test=0.2)
    assert [rows.tolist() for rows in parts(split)[:3]] == [[0, 1, 2, 3, 4, 5, 6, 7], [], [8, 9]]
    same = make_split(plain([1] * 3, [1, 2, 3], [7, 7, 7]), "global-time")
    assert "too much alike" in same.notes[0]


def test_newcomers_are_unseen_in_training() -> None:
    data = random_plain(100, 80, 3000)
    split = make_split(data, "newcomers", share=0.2, validation_share=0.1)
    train_users, train_items = set(data.user_numbers[split.train]), set(data.item_numbers[split.train])
    assert split.group_names == NEWCOMER_GROUPS
    newcomers: dict[str, list[set[int]]] = {}
    for name, rows, groups in (("v", split.validation, split.validation_groups), ("x", split.test, split.test_groups)):
        assert groups is not None
        assert set(groups.tolist()) == {0, 1, 2, 3}
        users, items = data.user_numbers[rows], data.item_numbers[rows]
        assert train_users.isdisjoint(users[groups >= 2])
        assert train_items.isdisjoint(items[groups % 2 == 1])
        assert train_users.issuperset(users[groups < 2])
        newcomers[name] = [set(users[groups >= 2]), set(items[groups % 2 == 1])]
        latest = users[groups == 2]
        assert len(latest) == len(set(latest))
    assert len(newcomers["x"][0]) == 20
    assert newcomers["v"][0].isdisjoint(newcomers["x"][0])
    assert newcomers["v"][1].isdisjoint(newcomers["x"][1])


def test_every_row_of_a_new_item_by_a_warm_user_is_tested() -> None:
    data = random_plain(100, 80, 3000)
    split = make_split(data, "newcomers", share=0.2)
    assert split.test_groups is not None
    new_items = set(data.item_numbers[split.test][split.test_groups % 2 == 1])
    new_users = set(data.user_numbers[np.concatenate(parts(split))]) - set(data.user_numbers[split.train])
    due = [row for row in data.positive_rows if data.item_numbers[row] in new_items and data.user_numbers[row] not in new_users]
    assert set(due) == set(split.test[split.test_groups == 1])


def test_the_rating_task_splits_rows_with_a_label() -> None:
    data = plain([1, 1, 1, 1], [1, 2, 3, 4], label=[1.0, None, 3.0, 4.0])
    split = make_split(data, "leave-one-out", task="rating")
    assert [rows.tolist() for rows in parts(split)[:3]] == [[0], [2], [3]]
    with pytest.raises(DataError, match="declares no label"):
        make_split(plain([1], [1]), task="rating")


def test_only_positives_are_split_for_top_n() -> None:
    table = pl.DataFrame({"u": ["a"] * 4, "i": list("wxyz"), "stars": [5, 5, 5, 1]})
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "positive": "stars >= 4"}})
    assert make_split(data, "leave-one-out").test.tolist() == [2]


def test_wrong_options_are_refused() -> None:
    data = plain([1, 1, 1], [1, 2, 3])
    with pytest.raises(OptionError, match="split is 'leave-one-oot'; did you mean 'leave-one-out'"):
        make_split(data, "leave-one-oot")
    with pytest.raises(OptionError, match="has no option 'tst'; did you mean 'test'"):
        make_split(data, "random", tst=0.1)
    with pytest.raises(OptionError, match="their sum must stay below 1"):
        make_split(data, "random", validation=0.5, test=0.5)
    with pytest.raises(OptionError, match="expected a share"):
        make_split(data, "random", test=-0.1)
    for name in ("global-time", "cold-start"):
        with pytest.raises(DataError, match="needs times"):
            make_split(data, name)
    with pytest.raises(OptionError, match="seed is -1"):
        make_split(data, "random", seed=-1)


def test_every_split_runs_on_one_row() -> None:
    for name in set(SPLITS) - {"cold-start", "newcomers", "files"}:
        assert make_split(plain([1], [1], [1]), name).train.tolist() == [0]


def test_auto_is_leave_one_out_with_times_random_without_and_by_time_where_items_sell_once() -> None:
    shared = plain([1, 1, 1, 2, 2, 2], [1, 2, 3, 1, 2, 3], [1, 2, 3, 4, 5, 6])
    assert (make_split(shared).name, make_split(shared).notes) == ("leave-one-out", ())
    by_file = make_split(plain([1, 1, 1, 2, 2, 2], [1, 2, 3, 1, 2, 3]))
    assert by_file.name == "random"
    assert "no time is declared" in by_file.notes[0]
    market = plain([1, 1, 1, 2, 2, 2, 3, 3, 3, 3], list(range(10)), list(range(10)))
    assert market.sells_once
    assert make_split(market).name == "global-time"
    assert "items sell once" in make_split(market).notes[0]
    assert make_split(market, task="implicit").name == "random"


def test_warm_is_who_and_what_the_training_rows_have_met() -> None:
    rng = np.random.default_rng(0)
    market = plain(np.repeat(np.arange(60), 5).tolist(), list(range(300)), rng.permutation(300).tolist())  # all sold once
    split = make_split(market, "newcomers")
    assert split.test_groups is not None
    assert split.validation_groups is not None
    trained_users, trained_items = (set(side[split.train].tolist()) for side in (market.user_numbers, market.item_numbers))
    for rows, groups in ((split.validation, split.validation_groups), (split.test, split.test_groups)):
        for row, group in zip(rows, groups, strict=True):
            user, item = market.user_numbers[row] in trained_users, market.item_numbers[row] in trained_items
            assert split.group_names[group] == f"{'warm' if user else 'new'}-{'warm' if item else 'new'}"
    assert "warm-warm" not in {split.group_names[group] for group in split.test_groups}


def test_kept_repeats_say_how_many_tested_pairs_are_trained_on() -> None:
    rows = pl.DataFrame({"u": [1] * 4, "i": [1, 2, 3, 1], "t": [1, 2, 3, 4]})
    schema = {"interactions": {"user": "u", "item": "i", "time": "t", "repeats": "keep"}}
    split = make_split(Dataset.from_tables(rows, schema=schema), "leave-one-out")
    assert split.notes == ('1 of 1 tested pairs are also training pairs (repeats = "keep").',)
