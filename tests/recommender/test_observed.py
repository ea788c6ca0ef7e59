from __future__ import annotations

import math
import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.recommender.observed import Observed

INDEX: Any = SimpleNamespace(item_numbers={f"i{n}": n for n in range(8)})
Row = tuple[str, str, float | None, str | None]


def _slowly(rows: list[Row], after: float = -math.inf) -> list[tuple[str, float | None, float]]:
    """One user's rows in order, row by row, each put behind all that are not later; and by which times."""
    listed: list[tuple[Row, float]] = []
    for row in rows:
        is_known = bool(listed) and listed[-1][0] == row if row[2] is None else row in [other for other, _ in listed]
        if is_known:
            continue
        key = max([after, *(key for _, key in listed)]) if row[2] is None else row[2]
        place = len(listed)
        while place and listed[place - 1][1] > key:
            place -= 1
        listed.insert(place, (row, key))
    return [(row[1], row[2], key) for row, key in listed]


def _rows(user: str) -> st.SearchStrategy[list[Row]]:
    times = st.one_of(st.none(), st.integers(0, 6), st.floats(0, 6, width=16))
    row = st.tuples(st.just(user), st.sampled_from(["i1", "i2", "i3"]), times, st.sampled_from([None, None, "click"]))
    return st.lists(row, max_size=12)


def _listed(observed: Observed, user: str, after: float | None = None) -> list[tuple[str, float | None]]:
    return [(f"i{number}", time) for number, time in observed.of(user, after)]


@given(_rows("u"), st.data())
def test_rows_are_in_the_order_of_time_then_arrival_however_they_come(rows: list[Row], data: st.DataObject) -> None:
    """All at once, in parts, and followed from the log of a third one."""
    observed, n_fresh, start = Observed(INDEX), 0, 0
    while start < len(rows):
        stop = data.draw(st.integers(start + 1, len(rows)))
        observed, fresh = observed.plus(rows[start:stop])
        n_fresh, start = n_fresh + len(fresh), stop
    expected = [(item, time) for item, time, _ in _slowly(rows)]
    assert _listed(observed, "u") == expected
    assert observed.n == n_fresh == len(expected)
    for other in (Observed(INDEX).plus(rows)[0], Observed(INDEX).plus(observed.rows())[0], Observed(INDEX).following(rows)):
        assert other.rows_of("u") == observed.rows_of("u")


@given(_rows("u"), st.integers(0, 7))
def test_rows_without_a_time_come_after_the_users_last_row_of_the_data(rows: list[Row], after: int) -> None:
    """Without repeated rows, of which the order that the data give could tell another story."""
    rows = list(dict.fromkeys(rows))
    expected = sorted(_slowly(rows, after), key=lambda row: row[2])
    assert _listed(Observed(INDEX).plus(rows)[0], "u", after) == [(item, time) for item, time, _ in expected]


def test_an_older_row_is_put_in_its_place_and_a_known_one_is_dropped() -> None:
    first: list[Row] = [("u", "i1", 5, None), ("u", "i2", None, None), ("u", "i3", 7, None)]
    observed, fresh = Observed(INDEX).plus(first)
    assert fresh == first
    observed, fresh = observed.plus([("u", "i4", 6, None), ("u", "i1", 5.0, None), ("u", "i1", 5, "click")])
    assert fresh == [("u", "i4", 6, None), ("u", "i1", 5, "click")]
    assert observed.of("u") == ((1, 5), (2, None), (1, 5), (4, 6), (3, 7))
    assert observed.of("u", after=6) == ((1, 5), (1, 5), (2, None), (4, 6), (3, 7))
    assert observed.of("u", events=["purchase"]) == ((1, 5), (2, None), (4, 6), (3, 7))  # rows without a kind count always
    assert observed.items_of("u").tolist() == [1, 2, 3, 4]
    assert observed.items_of("u").dtype == "int32"
    assert observed.of("nobody") == ()
    assert observed.items_of("nobody").tolist() == []


def test_the_same_without_a_time_counts_once_in_a_row_and_again_later() -> None:
    rows: list[Row] = [("u", item, None, None) for item in ("i1", "i1", "i2", "i1", "i1")]
    observed, fresh = Observed(INDEX).plus(rows)
    assert observed.of("u") == ((1, None), (2, None), (1, None))
    assert len(fresh) == 3
    assert observed.plus([("u", "i1", None, None)]) == (observed, [])


def test_items_that_the_catalogue_does_not_have_yet_wait_for_it() -> None:
    observed, _ = Observed(INDEX).plus([("u", "new", 1, None), ("u", "i1", 2, None)])
    assert observed.of("u") == ((1, 2),)
    assert observed.items_of("u").tolist() == [1]
    grown: Any = SimpleNamespace(item_numbers={**INDEX.item_numbers, "new": 8})
    assert observed.over(grown).of("u") == ((8, 1), (1, 2))
    assert observed.of("u") == ((1, 2),)


def test_it_never_changes() -> None:
    rng = random.Random(0)
    states, observed = [], Observed(INDEX)
    for n in range(200):
        row: Row = (f"u{rng.randrange(30)}", f"i{rng.randrange(8)}", n, None)
        observed = observed.without(row[0]) if n % 9 == 8 else observed.plus([row])[0]
        states.append((observed, observed.n, sorted(observed.rows())))
    for state, n, rows in states:
        assert state.n == n == len(rows)
        assert sorted(state.rows()) == rows


def test_a_log_is_followed_where_it_grew_and_read_anew_where_it_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Row] = [("u1", "i1", 1, None), ("u2", "i2", 2, None)]
    observed = Observed(INDEX).following(log)
    assert observed.following(log) is observed
    log += [("u1", "i3", None, None)]
    given_rows = []
    real = Observed.plus
    monkeypatch.setattr(Observed, "plus", lambda self, rows: (given_rows.extend(rows), real(self, rows))[1])
    grown = observed.following(log)
    assert given_rows == log[2:]
    assert grown.of("u1") == ((1, 1), (3, None))
    assert grown.following([("u2", "i2", 2, None)]).n == 1  # written anew, without u1
    assert "u1" not in grown.without("u1")
    assert grown.without("u1").following(log).n == 3  # the log has them still
    assert grown.without("nobody") is grown


def test_beside_a_log_that_was_written_anew_what_is_held_stays() -> None:
    log: list[Row] = [("u1", "i1", 1, None), ("u1", "i2", None, None), ("u1", "i1", None, None), ("u2", "i2", 2, None)]
    observed = Observed(INDEX).following(log)
    anew: list[Row] = [log[1], log[2], ("u1", "i3", None, None), ("u2", "i3", 9, None)]
    later = observed.beside(anew, ["u2"])
    assert later.rows_of("u1") == (*log[:3], anew[2])  # none twice, though one without a time is no duplicate of an earlier one
    assert later.rows_of("u2") == (("u2", "i3", 9, None),)
    assert later.n == 5
    assert later.follows(anew)
    assert not later.follows(log)
    anew.append(("u3", "i1", 1, None))
    assert later.following(anew).n == 6
    assert sorted(observed.users()) == ["u1", "u2"]


class _Growing(list[Row]):
    """A log to which another thread adds a row just after it was read."""

    def _grow(self) -> None:
        self.append((f"late {len(self)}", "i1", 1, None))

    def __getitem__(self, key: Any) -> Any:
        rows = super().__getitem__(key)
        self._grow()
        return rows

    def __iter__(self) -> Any:
        yield from list.__getitem__(self, slice(None))
        self._grow()


def test_a_row_that_comes_while_the_log_is_followed_counts_the_next_time() -> None:
    log = _Growing([("u", "i1", 1, None)])
    observed = Observed(INDEX)
    for n in range(1, 5):
        observed = observed.following(log)
        assert [user for user, *_ in sorted(observed.rows())] == [*(f"late {place}" for place in range(1, n)), "u"]


def test_a_row_copies_a_small_part_of_what_is_held() -> None:
    """Counted in the entries of the dictionaries that are new."""
    observed, _ = Observed(INDEX).plus((f"u{n}", "i1", n, None) for n in range(50_000))
    more, _ = observed.plus([("u7", "i2", 1, None)])
    new = [after for before, after in zip(observed._buckets, more._buckets, strict=True) if after is not before]
    assert len(new) == 1
    assert len(new[0]) < 150
    assert sys.getsizeof(more._buckets) < 10_000


def test_many_rows_of_one_user_in_any_order_are_sorted_once() -> None:
    times = list(range(40_000))
    random.Random(1).shuffle(times)
    observed, fresh = Observed(INDEX).plus([("u", f"i{time % 8}", time, None) for time in times])
    assert len(fresh) == 40_000
    assert [time for _, time in observed.of("u")] == sorted(times)
