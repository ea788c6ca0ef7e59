"""Scores with a history against loops over the history's items, their attributes and the attributes of the item scored."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gmlfm import Recommender
from gmlfm.data.attributes import PADDING, AttributeTable
from gmlfm.data.histories import History
from gmlfm.errors import OptionError
from gmlfm.fitting import FittedRun
from gmlfm.models import role_sums
from gmlfm.models.base import HistorySpec, UserSide
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.history import bag_sums, distinct_items, in_role, pooled_side, role_bags
from gmlfm.models.pairwise import PairwiseModel
from tests.models.history_world import N_ITEMS, QUICK, history_data

BY_SIDES = ("fm", "gml-fm", "gml-fm-md", "gml-fm-dnn", "transfm", "mf", "pmf", "bpr-mf")
POOLED = ("nfm", "afm", "deepfm", "xdeepfm")
ITEMS = np.arange(N_ITEMS, dtype=np.int32)
# Nobody, a newcomer, somebody with more than is read and an item twice.
HISTORIES = [[], [3], [1, 4, 1, 7, 9, 2, 5]]
Fit = Callable[[str], FittedRun]


@pytest.fixture(scope="module")
def fitted() -> Fit:
    data = history_data()
    return cache(lambda name: Recommender(name, **QUICK, lr=0.05).fit(data).fitted)


def slow_weights(role: str, items: list[int], half_life: float, length: int) -> list[tuple[int, float]]:
    if role == "last":
        return [(item, 1.0) for item in items[-1:]]
    latest = items[-length:]
    weights = [2.0 ** (-age / half_life) if role == "recent" else 1.0 for age in range(len(latest))][::-1]
    norm = sum(weight * weight for weight in weights) ** 0.5
    return [(item, weight / norm) for item, weight in zip(latest, weights, strict=True)]


@given(
    st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=1, max_size=4),
    st.floats(0.2, 30),
    st.integers(1, 6),
    st.sampled_from(["last", "recent", "past"]),
)
def test_the_weights_of_a_role_are_those_of_a_loop(
    histories: list[list[int]], half_life: float, length: int, role: Any
) -> None:
    spec = HistorySpec((role,), half_life, length, 10)
    bags = role_bags(History.of(histories), role, spec)
    for user, items in enumerate(histories):
        part = slice(bags.starts[user], bags.starts[user + 1])
        expected = slow_weights(role, items, half_life, length)
        assert bags.items[part].tolist() == [item for item, _ in expected]
        np.testing.assert_allclose(bags.weights[part], [weight for _, weight in expected], rtol=1e-5)
    vectors = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    sums = bag_sums(bags, vectors)
    for user, items in enumerate(histories):
        loop = sum((w * vectors[item] for item, w in slow_weights(role, items, half_life, length)), torch.zeros(3))
        torch.testing.assert_close(sums[user], loop, rtol=1e-4, atol=1e-5)
    distinct, (local,) = distinct_items([bags])
    assert distinct[local.items].tolist() == bags.items.tolist()


def test_an_item_has_rows_of_its_own_in_each_role_and_padding_stays() -> None:
    items = AttributeTable(np.array([[11, 18, PADDING]], np.int32), np.array([[1.0, 0.5, 0.0]], np.float32))
    spec = HistorySpec(("last", "past"), 2.0, 5, 12)
    assert [in_role(items, spec, role).ids.tolist() for role in range(2)] == [[[23, 30, PADDING]], [[35, 42, PADDING]]]


def model_of(run: FittedRun) -> Any:
    assert isinstance(run.model, GradientModel)
    return run.model


def user_side(run: FittedRun) -> UserSide:
    """Three users with the context of their first rows, and the histories above."""
    rows = np.array([0, 9, 18])
    return UserSide(
        run.data.user_numbers[rows], run.encoded.user_side(run.data.user_numbers[rows], rows), History.of(HISTORIES)
    )


def with_newcomers(run: FittedRun, side: UserSide) -> AttributeTable:
    """The users' attributes; who did nothing stands at the newcomers' row, which is the missing row of the users' ids."""
    ids = np.array(side.attributes.ids)
    for place, history in enumerate(HISTORIES):
        if not history:
            ids[place, 0] = run.inputs.layout.id_field("user").missing_row
    return AttributeTable(ids, side.attributes.values)


def attributes_of(table: AttributeTable, place: int, first_only: bool) -> list[tuple[int, float]]:
    if first_only:
        return [(int(table.ids[place, 0]), 1.0)]
    pairs = zip(table.ids[place].tolist(), table.values[place].tolist(), strict=True)
    return [(row, x) for row, x in pairs if row != PADDING]


def slow_score(run: FittedRun, rows: Tensor, user: list[tuple[int, float]], history: list[int], item: int) -> float:
    """Self terms, linear terms and pairs, from pair_values of two rows at a time."""
    model, spec = model_of(run), model_of(run)._history

    def linear(row: int) -> float:
        return float(model.linear(rows[row : row + 1])[0])

    def pair(left: int, right: int) -> float:
        return float(model.pair_values(rows[left : left + 1], rows[right : right + 1])[0, 0])

    def earlier_pair(left: int, right: int, role: Any) -> float:
        parts = model.earlier_pair_parts(rows[left : left + 1], rows[right : right + 1], role)
        return float(np.prod([part[0, 0].item() for part in parts if part is not None]))

    def own_pair(left: int, right: int, role: Any) -> float:
        return (
            float(model.own_pair_values(rows[left : left + 1], rows[right : right + 1], role)[0, 0]) if spec.with_own else 0.0
        )

    target = attributes_of(run.encoded.item, item, model.ids_only)
    score = float(model.global_term())
    for side in (user, target):
        score += sum(x * linear(row) for row, x in side)
        score += sum(x * y * pair(a, b) for place, (a, x) in enumerate(side) for b, y in side[place + 1 :])
    score += sum(x * y * pair(a, b) for a, x in user for b, y in target)
    for number, role in enumerate(spec.roles):
        for earlier, weight in slow_weights(role, history, spec.half_life, spec.length):
            for row, x in attributes_of(run.encoded.item, earlier, model.ids_only):
                place = row + (number + 1) * spec.block
                score += weight * x * linear(place)
                score += sum(weight * x * y * (earlier_pair(place, b, role) + own_pair(row, b, role)) for b, y in target)
    return score


@pytest.mark.parametrize("name", BY_SIDES)
def test_a_score_is_the_sum_over_earlier_items_and_their_attributes(fitted: Fit, name: str) -> None:
    run = fitted(name)
    model, side = model_of(run), user_side(run)
    assert isinstance(model, PairwiseModel)
    scores = model.score_all(side, ITEMS)
    pairs = model.score_pairs(side, np.stack([ITEMS, ITEMS[::-1], ITEMS]))
    np.testing.assert_allclose(pairs[[0, 2]], scores[[0, 2]], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pairs[1], scores[1, ::-1], rtol=1e-4, atol=1e-5)
    model.double()
    with torch.no_grad():
        rows = model.transform_rows(model.table.double())
        for place, history in enumerate(HISTORIES):
            user = attributes_of(with_newcomers(run, side), place, model.ids_only)
            for item in (0, 4, 11):
                expected = slow_score(run, rows, user, history, item)
                assert scores[place, item] == pytest.approx(expected, rel=1e-4, abs=2e-5), (name, place, item)
    model.float()


@pytest.mark.parametrize("name", POOLED)
def test_a_pooled_model_takes_one_more_attribute_for_each_role(fitted: Fit, name: str) -> None:
    run = fitted(name)
    model, side = model_of(run), user_side(run)
    spec, fields = model._history, run.inputs.layout.field_of_row().astype(np.int64)
    scores = model.score_all(side, ITEMS)
    model.eval()
    with torch.no_grad():
        table = model.transform_rows(model.table)
        for place, history in enumerate(HISTORIES):
            pooled = []
            for number, role in enumerate(spec.roles):
                total = torch.zeros(table.shape[1])
                for item, weight in slow_weights(role, history, spec.half_life, spec.length):
                    for row, x in attributes_of(run.encoded.item, item, False):
                        total += weight * x * table[row + (number + 1) * spec.block]
                pooled.append(total)
            rows = torch.cat([table, torch.stack(pooled)])
            id_rows = [run.encoder.part("item")[0].offset + (number + 1) * spec.block for number in range(len(pooled))]
            ids, x = with_newcomers(run, side).ids[place].astype(np.int64), side.attributes.values[place]
            user = Attributes(
                torch.tensor([*ids, *range(len(table), len(rows))])[None],
                torch.tensor([*x, *[1.0] * len(pooled)])[None],
                torch.tensor([*fields[ids], *fields[id_rows]])[None],
                torch.tensor([*(ids != PADDING), *[True] * len(pooled)])[None],
            )
            item_ids = run.encoded.item.ids[ITEMS].astype(np.int64)
            items = Attributes(
                torch.from_numpy(item_ids)[None],
                torch.from_numpy(run.encoded.item.values[ITEMS])[None],
                torch.from_numpy(fields[item_ids])[None],
            )
            np.testing.assert_allclose(scores[place], model.scores(rows, user, items)[0].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*BY_SIDES, *POOLED])
def test_the_order_of_a_history_counts(fitted: Fit, name: str) -> None:
    run = fitted(name)
    side = user_side(run)
    turned = UserSide(side.numbers, side.attributes, History.of([items[::-1] for items in HISTORIES]))
    changed = np.abs(run.model.score_all(side, ITEMS) - run.model.score_all(turned, ITEMS)).max(1)
    assert changed[0] == changed[1] == 0
    assert changed[2] > 1e-4


def test_users_with_a_row_of_their_own_are_no_newcomers_and_without_hidden_histories_nobody_is(fitted: Fit) -> None:
    data = history_data()
    own = Recommender("fm", **QUICK, user_id=True).fit(data).fitted
    side = user_side(own)
    assert model_of(own)._history.newcomer is not None
    np.testing.assert_array_equal(model_of(own).scorer.attributes_of(side).ids, side.attributes.ids)
    for settings in ({"newcomer_row": False}, {"cold_start_rate": 0.0}):
        run = Recommender("fm", **QUICK, **settings).fit(data).fitted
        assert model_of(run)._history.newcomer is None
        np.testing.assert_array_equal(model_of(run).scorer.attributes_of(side).ids, side.attributes.ids)


def test_nothing_said_of_a_history_is_an_empty_one(fitted: Fit) -> None:
    for name in ("fm", "nfm"):
        run = fitted(name)
        side = user_side(run).slice(0, 1)
        unsaid = UserSide(side.numbers, side.attributes)
        np.testing.assert_array_equal(run.model.score_all(side, ITEMS), run.model.score_all(unsaid, ITEMS))
        np.testing.assert_array_equal(run.model.score_pairs(side, ITEMS[None]), run.model.score_pairs(unsaid, ITEMS[None]))


@pytest.mark.parametrize("name", ["fm", "nfm"])
def test_kept_vectors_give_the_same_sums_as_those_of_the_items_at_hand(
    fitted: Fit, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = user_side(fitted(name))
    history = side.history
    assert history is not None

    def sums() -> Any:
        model = model_of(fitted(name)).over(fitted(name).inputs.items)
        return model.scorer._role_sums

    with torch.no_grad():
        kept = sums()
        for _ in range(N_ITEMS):
            last = kept(history)
        assert kept._cached is not None
        monkeypatch.setattr(role_sums, "_MOST_NUMBERS_KEPT", 0)
        new = sums()
        for _ in range(N_ITEMS):
            each_time = new(history)
        assert new._cached is None
        for left, right in zip(last, each_time, strict=True):
            torch.testing.assert_close(left, right)


def test_a_pooled_side_has_present_attributes_behind_the_rows() -> None:
    side = pooled_side(Attributes(torch.tensor([[1, 0]]), torch.ones(1, 2)), 5, None, 3)
    assert side.ids.tolist() == [[1, 0, 5, 6, 7]]
    assert side.is_present.tolist() == [[True, False, True, True, True]]
    assert side.fields is None


@pytest.mark.parametrize("name", ["ncf", "ngcf"])
def test_models_that_read_no_history_have_no_such_setting(name: str) -> None:
    with pytest.raises(OptionError, match="history"):
        Recommender(name, history="last")


def test_a_distance_without_an_inner_product_is_refused() -> None:
    recommender = Recommender("gml-fm-md", distance="manhattan", **QUICK)
    with pytest.raises(OptionError, match=r"inner product.*history = none"):
        recommender.fit(history_data())
