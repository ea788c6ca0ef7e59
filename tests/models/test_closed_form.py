from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from gmlfm import Dataset, Recommender
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import History
from gmlfm.errors import NotSupportedError, OptionError
from gmlfm.models.base import FitInputs, FitReport, Floats, Ints, ItemSide, Plan, UserSide
from gmlfm.models.closed_form import ClosedFormModel, HistoryModel
from gmlfm.models.ease import EASE
from gmlfm.models.item_knn import ItemKNN
from gmlfm.models.popularity import Popularity
from tests.contracts.checkerboard import checkerboard
from tests.models.slow_loops import HISTORY, NO_PLAN, inputs_of, score_all, users_of

ITEMS = np.arange(5, dtype=np.int32)
POPULAR = np.argsort(-HISTORY.sum(0), kind="stable")


def fitted(cls: Any) -> Any:
    model = cls()
    model.fit(inputs_of(), NO_PLAN)
    return model


class Latest(HistoryModel):
    """1 for the last item of a history, 0 for the others; keeps nothing but X."""

    def learn(self, history: Any) -> None:
        self.shape = history.shape

    def score_histories(self, histories: Any, items: Ints) -> Floats:
        last = np.array([row.indices.max(initial=-1) for row in histories])
        return (last[:, None] == items[None]).astype(np.float32)


def test_a_history_model_writes_what_it_learns_and_how_a_history_scores() -> None:
    model = fitted(Latest)
    assert model.shape == HISTORY.shape
    np.testing.assert_array_equal(score_all(model)[:3].argmax(1), [4, 2, 2])
    loaded = Latest()
    loaded.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(score_all(loaded), score_all(model))


@pytest.mark.parametrize("cls", [ItemKNN, EASE, Latest])
def test_a_user_without_a_history_is_offered_what_is_popular_and_a_newcomer_what_their_history_scores(cls: Any) -> None:
    model = fitted(cls)
    assert np.array_equal(np.argsort(-score_all(model)[3], kind="stable"), POPULAR)
    newcomer = model.score_all(users_of([-1], np.flatnonzero(HISTORY[1]).tolist()), ITEMS)
    np.testing.assert_allclose(newcomer[0], score_all(model)[1])
    stranger = model.score_all(users_of([-1]), ITEMS)
    assert np.array_equal(np.argsort(-stranger[0], kind="stable"), POPULAR)
    np.testing.assert_allclose(stranger[0], HISTORY.sum(0) / len(HISTORY))


@pytest.mark.parametrize("cls", [ItemKNN, EASE, Latest, Popularity])
def test_known_and_unknown_users_are_scored_side_by_side(cls: Any) -> None:
    model = fitted(cls)
    mixed = model.score_all(users_of([2, -1, 0]), ITEMS[1:4])
    np.testing.assert_allclose(mixed[[0, 2]], score_all(model)[[2, 0], 1:4])
    np.testing.assert_allclose(mixed[1], model.score_all(users_of([-1]), ITEMS)[0, 1:4])


@pytest.mark.parametrize("cls", [ItemKNN, EASE, Latest, Popularity])
def test_over_other_items_it_knows_them_by_their_training_numbers(cls: Any) -> None:
    model = fitted(cls)
    numbers = np.array([3, -1, 0, 1], np.int32)
    nothing = AttributeTable(np.zeros((4, 0), np.int32), np.zeros((4, 0), np.float32))
    over = model.over(ItemSide(numbers, nothing))
    users, places = users_of([0, 1, 2]), np.array([2, 1, 3], np.int32)
    scores = over.score_all(users, places)
    np.testing.assert_array_equal(scores[:, [0, 2]], score_all(model)[:3, [0, 1]])
    np.testing.assert_array_equal(scores[:, 1], 0.0)  # an item that training never met
    pairs = np.array([[0, 1], [2, 2], [3, 0]], np.int32)
    np.testing.assert_array_equal(
        over.score_pairs(users, pairs), np.take_along_axis(over.score_all(users, ITEMS[:4]), pairs, 1)
    )
    assert over.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("cls", [ItemKNN, EASE, Latest, Popularity])
def test_without_a_user_it_is_fitted_again_and_the_model_at_hand_stays(cls: Any) -> None:
    model = fitted(cls)
    before = score_all(model)
    rest = np.delete(HISTORY, 2, axis=0)
    without = model.without_user(2, (), inputs_of(rest))
    expected = cls()
    expected.fit(inputs_of(rest), NO_PLAN)
    np.testing.assert_array_equal(score_all(without, 3), score_all(expected, 3))
    np.testing.assert_array_equal(score_all(model), before)


def test_a_model_of_a_few_lines_is_whole_and_cannot_be_trained_by_steps() -> None:
    class Constant(ClosedFormModel):
        def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
            return plan.train(self, inputs)

        def score_all(self, users: UserSide, items: Ints) -> Floats:
            return np.ones((len(users), len(items)), np.float32)

        def state_dict(self) -> dict[str, Tensor]:
            return {"nothing": torch.zeros(1)}

        def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
            pass

    assert Constant.tasks == {"topn"}
    assert not Constant.learns_in_epochs
    np.testing.assert_array_equal(Constant().score_pairs(users_of([0, 1]), np.zeros((2, 3), np.int32)), np.ones((2, 3)))
    with pytest.raises(OptionError, match="Constant is fitted at once; it cannot be trained by steps"):
        Constant().without_user(0, (), inputs_of())


@pytest.mark.parametrize("name", ["ease", "item-knn"])
@pytest.mark.parametrize(("key", "value"), [("items", 10**6), ("items", -1), ("starts", 10**6)])
def test_wrong_indices_of_a_file_are_refused(name: str, key: str, value: int) -> None:
    model = Recommender(name).fit(checkerboard()).fitted.model
    state = {part: tensor.clone() for part, tensor in model.state_dict().items()}
    state[key][1] = value
    with pytest.raises(ValueError, match="ind"):
        model.load_state_dict(state)


@pytest.mark.parametrize("n_users", [4, 9])
@pytest.mark.parametrize("cls", [ItemKNN, EASE])
def test_a_score_that_adds_up_is_explained_item_by_item(cls: Any, n_users: int) -> None:
    """EASE inverts a matrix by users or by items, whichever are fewer."""
    model, history = cls(), np.random.default_rng(0).integers(0, 2, (n_users, 5)).astype(float)
    history[-1] = 0.0
    model.fit(inputs_of(history), NO_PLAN)
    users = users_of(list(range(n_users)))
    scores = model.score_all(users, ITEMS)
    targets = np.tile(ITEMS, (n_users, 1))
    targets[0, 2] = -1
    strongest = model.strongest_earlier(users, targets)
    for user in range(n_users):
        for item in range(5):
            terms = model.explain(users.slice(user, user + 1), item)
            added = {} if terms.earlier is None else dict(zip(terms.earlier.items, terms.earlier.weight[:, 0], strict=True))
            assert terms.constant + terms.linear.sum() + sum(added.values()) == pytest.approx(scores[user, item], abs=1e-6)
            assert sorted(added) == np.flatnonzero(history[user]).tolist()
            for earlier, value in added.items():
                alone = model.score_all(users_of([-1], [int(earlier)]), np.array([item], np.int32))[0, 0]
                assert value == pytest.approx(alone, abs=1e-6)
            best = max(added, key=lambda earlier: added[earlier]) if added else -1
            expected = best if targets[user, item] >= 0 and added and added[best] > 0 else -1
            assert strongest[user, item] == expected
    newcomer = users_of([-1], [1, 3, 3])
    terms = model.explain(newcomer, 0)
    assert terms.earlier is not None
    assert terms.earlier.items.tolist() == [1, 3]
    assert terms.earlier.weight.sum() == pytest.approx(model.score_all(newcomer, ITEMS)[0, 0], abs=1e-6)


def test_a_history_model_that_does_not_say_so_is_not_explained() -> None:
    model = fitted(Latest)
    with pytest.raises(NotSupportedError, match="'Latest' cannot explain a score"):
        model.explain(users_of([0]), 0)
    with pytest.raises(NotSupportedError, match="'Latest' has no sum over earlier items"):
        model.strongest_earlier(users_of([0]), ITEMS[None])


HISTORIES = [[(0, 5), (1, 5), (4, 9)], [(2, 1), (1, 2), (2, 3), (3, 3), (0, 3)], [], [(4, 7), (4, 8)]]  # (item, time)


def timed_users() -> UserSide:
    history = History.of([[item for item, _ in rows] for rows in HISTORIES])
    order = np.array([time for rows in HISTORIES for _, time in rows], np.int64)
    return replace(users_of([-1] * len(HISTORIES)), history=History(history.starts, history.items, order))


def slow_weights(half_life: float) -> np.ndarray:
    """w, row by row; the newest counts 1, an item by its latest row."""
    weights = np.zeros((len(HISTORIES), 5))
    for user, rows in enumerate(HISTORIES):
        for item, time in rows:
            age = sum(other > time for _, other in rows)
            weights[user, item] = max(weights[user, item], 0.5 ** (age / half_life) if half_life else 1.0)
    return weights


@pytest.mark.parametrize("n_users", [4, 9])
@pytest.mark.parametrize("half_life", [0.0, 1.0, 3.5])
@pytest.mark.parametrize("cls", [ItemKNN, EASE])
def test_recency_weighs_a_users_rows_by_how_many_are_later(cls: Any, half_life: float, n_users: int) -> None:
    history = np.random.default_rng(1).integers(0, 2, (n_users, 5)).astype(float)
    model, plain = cls(half_life=half_life), cls()
    for fitted_model in (model, plain):
        fitted_model.fit(inputs_of(history), NO_PLAN)
    of_item = np.stack([plain.score_all(users_of([-1], [item]), ITEMS)[0] for item in range(5)])  # what each adds at weight 1
    expected, users = slow_weights(half_life) @ of_item, timed_users()
    expected[2] = history.sum(0) / n_users  # who has no history is offered what is popular
    scores = model.score_all(users, ITEMS)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    pairs = np.array([[4, 0, 2], [1, 1, 3], [0, 2, 4], [3, 0, 1]], np.int32)
    np.testing.assert_allclose(model.score_pairs(users, pairs), np.take_along_axis(expected, pairs, 1), rtol=1e-5, atol=1e-6)
    nothing = AttributeTable(np.zeros((5, 0), np.int32), np.zeros((5, 0), np.float32))
    np.testing.assert_array_equal(model.over(ItemSide(ITEMS, nothing)).score_all(users, ITEMS), scores)
    strongest = model.strongest_earlier(users, np.tile(ITEMS, (4, 1)))
    for user, rows in enumerate(HISTORIES):
        added = slow_weights(half_life)[user][:, None] * of_item
        for item in range(5):
            terms = model.explain(users.slice(user, user + 1), item)
            if rows:
                assert terms.earlier is not None
                values = terms.earlier.weight[:, 0] * terms.earlier.x
                assert values.sum() == pytest.approx(scores[user, item], abs=1e-6)
                assert set(terms.earlier.roles) == {"recent" if half_life else "past"}
            best = added[:, item].max()
            if strongest[user, item] >= 0:
                assert added[strongest[user, item], item] == pytest.approx(best, abs=1e-6)
            else:
                assert best <= 1e-6


def test_without_a_half_life_the_order_of_rows_says_nothing_and_a_short_one_leaves_the_newest() -> None:
    model = EASE(half_life=0.01)
    model.fit(inputs_of(), NO_PLAN)
    newest = users_of([-1], [4])
    np.testing.assert_allclose(model.score_all(users_of([-1], [0, 1, 4]), ITEMS), model.score_all(newest, ITEMS), atol=1e-7)
    alike = fitted(EASE)
    forth, back = (alike.score_all(users_of([-1], items), ITEMS) for items in ([0, 1, 4], [4, 1, 0]))
    np.testing.assert_array_equal(forth, back)


def dated(ties: str = "strict", time: str | None = "t") -> Dataset:
    """Thirty users whose rows often share a time."""
    rng = np.random.default_rng(4)
    pairs = np.sort(rng.permutation(30 * 25)[:330])
    table = pl.DataFrame({"u": pairs // 25, "i": pairs % 25, "t": rng.integers(0, 40, 330)})
    interactions = {"user": "u", "item": "i", "ties": ties} | ({"time": time} if time else {})
    return Dataset.from_tables(table if time else table.drop("t"), schema={"interactions": interactions})


@pytest.mark.parametrize("ties", ["strict", "file"])
@pytest.mark.parametrize("name", ["ease", "item-knn"])
def test_a_fitted_run_weighs_the_rows_before_the_scored_one(name: str, ties: str) -> None:
    """From the tables to the scores: a loop over the interactions, with the plain model for what an item adds."""
    data, half_life = dated(ties), 2.0
    run = Recommender(name, half_life=half_life).fit(data, "leave-one-out").fitted
    plain, split, n_items = Recommender(name).fit(data, "leave-one-out").fitted.model, run.split, len(data.items)
    items = np.arange(n_items, dtype=np.int32)
    of_item = np.stack([plain.score_all(users_of([-1], [item]), items)[0] for item in range(n_items)])
    visible, order = {*split.train.tolist(), *split.validation.tolist(), *split.unused.tolist()}, data.history_order
    users, rows = data.user_numbers[split.test], split.test
    expected = np.zeros((len(rows), n_items))
    for place, row in enumerate(rows):
        before = [r for r in visible if data.user_numbers[r] == data.user_numbers[row] and order[r] < order[row]]
        for earlier in before:
            age = sum(order[other] > order[earlier] for other in before)
            expected[place] += 0.5 ** (age / half_life) * of_item[data.item_numbers[earlier]]
    ranker, has_history = run.ranker_of("test"), expected.any(1)
    assert has_history.sum() > 20
    scores = ranker.score_all(users, items, rows)
    np.testing.assert_allclose(scores[has_history], expected[has_history], rtol=1e-4, atol=1e-5)
    pairs = np.tile(items, (len(rows), 1))
    np.testing.assert_allclose(ranker.score_pairs(users, pairs, rows), scores, rtol=1e-6)


def test_recency_needs_times_and_a_set_of_rows_has_none() -> None:
    with pytest.raises(OptionError, match=r"half_life is 5, but the data have no times that differ"):
        Recommender("ease", half_life=5).fit(dated(time=None))
    assert Recommender("ease", half_life="none").fit(dated(time=None)).is_fitted
    assert Recommender("ease", half_life=5).fit(dated("file", time=None)).is_fitted
    with pytest.raises(OptionError, match="half_life is 5, but the training rows as a set have no order"):
        EASE(half_life=5.0, user_rows="training")


@pytest.mark.parametrize("cls", [ItemKNN, EASE])
def test_the_training_rows_as_a_set_are_the_same_for_every_row(cls: Any) -> None:
    data = dated()
    run = Recommender("ease" if cls is EASE else "item-knn", user_rows="training").fit(data, "leave-one-out").fitted
    rows = run.split.validation
    users, items = data.user_numbers[rows], np.arange(len(data.items), dtype=np.int32)
    model, sets = cls(), np.zeros((len(data.users), len(data.items)))
    sets[data.user_numbers[run.split.train], data.item_numbers[run.split.train]] = 1.0
    model.fit(inputs_of(sets), NO_PLAN)
    assert not run.model.reads_history
    expected = model.score_all(users_of(users), items)
    np.testing.assert_allclose(run.ranker_of("validation").score_all(users, items, rows), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run.ranker.score_all(users, items), expected, rtol=1e-5, atol=1e-6)
    given = run.model.score_all(users_of([-1], np.flatnonzero(sets[3]).tolist()), items)  # a newcomer brings theirs
    np.testing.assert_allclose(given, model.score_all(users_of([3]), items), rtol=1e-5, atol=1e-6)
