from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.retrieval import Cap, best_items


def groups_of(cap: Cap, item: int) -> set[int]:
    if cap.starts is None:
        return {int(cap.groups[item])} - {-1}
    return set(cap.groups[cap.starts[item] : cap.starts[item + 1]].tolist())


def slow(scores: np.ndarray, items: np.ndarray, n: int, left_out: list[np.ndarray], caps: list[Cap]) -> list[list[int]]:
    """Item after item: the best that is left and that every cap still allows; ties by place."""
    result = []
    for row, excluded in zip(scores, left_out, strict=True):
        chosen: list[int] = []
        for _ in range(n):
            allowed = [
                place
                for place, item in enumerate(items)
                if item not in excluded
                and item not in chosen
                and all(
                    sum(group in groups_of(cap, other) for other in chosen) < cap.most
                    for cap in caps
                    for group in groups_of(cap, item)
                )
            ]
            if not allowed:
                break
            chosen.append(int(items[max(allowed, key=lambda place: (row[place], -place))]))
        result.append(chosen)
    return result


@given(st.integers(0, 10_000), st.integers(1, 12), st.booleans(), st.integers(1, 3))
def test_it_is_the_obvious_top_n(seed: int, n: int, capped: bool, most: int) -> None:
    rng = np.random.default_rng(seed)
    items = np.sort(rng.choice(15, 9, replace=False)).astype(np.int32)
    scores = rng.integers(0, 4, (3, 9)).astype(np.float32)  # many ties
    left_out = [rng.choice(15, rng.integers(0, 6), replace=False).astype(np.int32) for _ in range(3)]
    caps = [Cap(rng.integers(-1, 3, 15).astype(np.int32), most)] if capped else []
    expected = slow(scores, items, min(n, 9), left_out, caps)
    top = best_items(scores.copy(), items, n, left_out, caps)
    for row, chosen in enumerate(expected):
        assert top.items[row][top.items[row] >= 0].tolist() == chosen
        place = {int(item): index for index, item in enumerate(items)}
        np.testing.assert_array_equal(top.scores[row, : len(chosen)], [scores[row, place[item]] for item in chosen])


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 3), st.integers(0, 4))
def test_an_item_of_several_groups_counts_for_each(seed: int, n: int, most: int, n_groups: int) -> None:
    rng = np.random.default_rng(seed)
    items = np.sort(rng.choice(15, 9, replace=False)).astype(np.int32)
    scores = rng.integers(0, 4, (3, 9)).astype(np.float32)
    sizes = rng.integers(0, n_groups + 1, 15)
    groups = [rng.choice(5, size, replace=False) for size in sizes]
    cap = Cap(np.concatenate([*groups, np.empty(0)]).astype(np.int32), most, np.concatenate(([0], np.cumsum(sizes))))
    left_out = [rng.choice(15, 2, replace=False).astype(np.int32) for _ in range(3)]
    top = best_items(scores.copy(), items, n, left_out, [cap])
    assert [row[row >= 0].tolist() for row in top.items] == slow(scores, items, min(n, 9), left_out, [cap])


def test_several_caps_hold_together() -> None:
    scores = np.arange(6, dtype=np.float32)[None, ::-1].copy()
    genre, seller = np.array([0, 0, 0, 1, 1, 1], np.int32), np.array([0, 1, 1, 0, 2, 2], np.int32)
    top = best_items(scores, np.arange(6, dtype=np.int32), 6, (), [Cap(genre, 2), Cap(seller, 1)])
    assert top.items[0].tolist() == [0, 1, 4, -1, -1, -1]


@pytest.mark.parametrize("n", [1, 5, 50])
def test_nothing_is_changed_when_nothing_is_left_out(n: int) -> None:
    scores = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)
    top = best_items(scores.copy(), np.arange(50, dtype=np.int32), n)
    assert np.array_equal(top.items, np.argsort(-scores, axis=1)[:, :n])


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 2))
def test_caps_reach_as_deep_as_they_must(seed: int, n: int, most: int) -> None:
    """The best hundred items are of one group, so that more of the ranking is needed than is sorted at first."""
    rng = np.random.default_rng(seed)
    items = np.arange(200, dtype=np.int32)
    scores = np.sort(rng.integers(0, 50, (2, 200)).astype(np.float32), axis=1)[:, ::-1].copy()
    groups = np.where(items < 100, 0, rng.integers(-1, 4, 200)).astype(np.int32)
    left_out = [np.array([0, 3], np.int32), np.array([150, 500], np.int32)]
    expected = slow(scores, items, n, left_out, [Cap(groups, most)])
    top = best_items(scores.copy(), items, n, left_out, [Cap(groups, most)])
    assert [row[row >= 0].tolist() for row in top.items] == expected


@pytest.mark.parametrize("n_left_out", [2, 40])
@pytest.mark.parametrize("ordered", [True, False])
def test_items_in_any_order_are_left_out(n_left_out: int, ordered: bool) -> None:
    rng = np.random.default_rng(3)
    items = rng.permutation(50)[:30].astype(np.int32)
    items = np.sort(items) if ordered else items
    scores = rng.normal(size=(2, 30)).astype(np.float32)
    left_out = [rng.choice(60, n_left_out, replace=False).astype(np.int32), np.array([], np.int32)]
    top = best_items(scores.copy(), items, 5, left_out)
    assert [row[row >= 0].tolist() for row in top.items] == slow(scores, items, 5, left_out, [])
