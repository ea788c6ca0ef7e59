from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset, Recommender
from gmlfm.data.attributes import AttributeTable
from gmlfm.errors import DataError, OptionError
from gmlfm.models.registry import MODELS
from gmlfm.recommender.reasons import explain_item, grouped_by_fields, sampled_items
from gmlfm.recommender.user_side import known_users
from tests.recommender.conftest import WITH_HISTORY

PAIRWISE = [name for name, info in MODELS.items() if info.cls.caches_items]
QUICK: dict[str, Any] = {"epochs": 2, "threads": 1, "k": 8, "v_scale": 0.3, "lr": 0.02}


@pytest.fixture(scope="module")
def explained(board: Dataset) -> Recommender:
    """A run of gml-fm. Read-only."""
    return Recommender("gml-fm", **QUICK).fit(board)


@pytest.mark.parametrize("name", PAIRWISE)
def test_terms_sum_to_the_score(name: str, board: Dataset) -> None:
    recommender = Recommender(name, **QUICK).fit(board)
    rng = np.random.default_rng(0)
    pairs = [(f"u{user}", f"i{item}") for user, item in zip(rng.integers(0, 40, 1000), rng.integers(0, 42, 1000), strict=True)]
    scores = recommender.predict(pairs)["score"].to_list()
    sums = [recommender.explain(*pair).score for pair in pairs]
    np.testing.assert_allclose(sums, scores, rtol=1e-4, atol=1e-5)


def test_ratings_are_explained_in_their_own_unit(board: Dataset) -> None:
    recommender = Recommender("fm", "rating", **QUICK).fit(board, "random")
    explanation = recommender.explain("u1", "i1")
    assert explanation.score == pytest.approx(recommender.predict([("u1", "i1")])["score"][0], rel=1e-5)
    assert explanation.terms[0].kind == "global"
    assert 1 < explanation.terms[0].value < 5


@pytest.mark.parametrize("history", ["last,recent,past", "recent", "last"])
@pytest.mark.parametrize("name", ["fm", "gml-fm", "gml-fm-md", "transfm", "mf"])
def test_terms_sum_to_the_score_with_a_history(name: str, history: str, habits: Dataset) -> None:
    """Numbers, sets, a context, missing attributes and items that come again are among them."""
    settings = {**WITH_HISTORY, "half_life": 2.0, "history_length": 5}
    recommender = Recommender(name, history=history, **settings).fit(habits)
    pairs = [(f"u{user}", f"i{item}") for user in (*range(20), 77) for item in range(14)]
    scores = recommender.predict(pairs, context={"channel": "app"})["score"].to_numpy()
    explanations = [recommender.explain(*pair, context={"channel": "app"}) for pair in pairs]
    np.testing.assert_allclose([explanation.score for explanation in explanations], scores, rtol=2e-5, atol=1e-5)
    for explanation in explanations[:-14]:
        assert explanation.score == pytest.approx(sum(term.value for term in explanation.terms))
        assert 1 <= len(explanation.by_event()) <= (1 if history == "last" else 5)
    assert all(explanation.by_event() == {} for explanation in explanations[-14:])  # a user of whom nothing is known
    n_roles = len(history.split(","))
    assert {term.role for term in explanations[0].terms} - {None} == set(history.split(","))
    assert len({term.fields[0].split(".")[0] for term in explanations[0].terms if term.role}) == n_roles


@pytest.mark.parametrize("name", ["ease", "item-knn"])
def test_scores_that_add_up_over_the_history_are_explained_by_its_items(name: str, habits: Dataset) -> None:
    recommender = Recommender(name).fit(habits)
    users = [*(f"u{user}" for user in range(20)), "a stranger"]
    pairs = [(user, f"i{item}") for user in users for item in range(14)]
    explanations = [recommender.explain(*pair) for pair in pairs]
    scores = recommender.predict(pairs)["score"].to_numpy()
    np.testing.assert_allclose([explanation.score for explanation in explanations], scores, rtol=1e-5, atol=1e-6)
    numbers = set(habits.item_numbers[habits.user_numbers == 3].tolist())
    assert set(explanations[3 * 14].by_event()) == {f"i{habits.items.ids[number][1:]}" for number in numbers}
    assert explanations[-1].by_event() == {}
    pair = next(term for term in explanations[3 * 14 + 2].terms if term.role)
    assert pair.fields == ("past.item", "item")
    assert pair.attributes == (f"past.item = {pair.earlier}", "item = i2")


def test_a_ratings_reason_with_a_history_is_in_its_own_unit(habits: Dataset) -> None:
    recommender = Recommender("fm", "rating", history="last,recent,past", **WITH_HISTORY).fit(habits)
    explanation = recommender.explain("u1", "i1")
    assert explanation.by_event()
    assert explanation.score == pytest.approx(recommender.predict([("u1", "i1")])["score"][0], rel=1e-5)


def test_an_earlier_item_is_named_by_role_value_and_title(habit_run: Recommender) -> None:
    data = habit_run.fitted.data
    bought = [data.items.ids[int(number)] for number in data.item_numbers[data.user_numbers == 1]]
    explanation = habit_run.explain("u1", "i3")
    terms = [term for term in explanation.terms if term.role is not None]
    assert {term.earlier for term in terms} == set(bought)
    assert {term.earlier for term in terms if term.role == "last"} == {bought[-1]}
    for term in terms:
        assert all(field.startswith(f"{term.role}.") for field in term.fields[:1])
        assert term.kind == "linear" or term.fields[1].split(".")[0] == "item"
    prices = {term.attributes[0] for term in terms if term.fields[0] == "past.price" and term.earlier == bought[-1]}
    price = data.items.fields["price"][data.items.ids.to_list().index(bought[-1])]
    assert prices == {f"past.price = {'(missing)' if price is None else f'{price:g}'}"}
    assert explanation.titles == {item: f"Film {int(item[1:]) // 2}" for item in set(bought) if item != "i5"}


def test_sums_by_field_are_those_of_the_terms(habit_run: Recommender, explained: Recommender) -> None:
    for recommender in (habit_run, explained):
        run = recommender.fitted
        for user in (0, 3):
            side = known_users(run, np.array([user]), None)
            slow, fast = explain_item(run, side, 7).by_fields(), grouped_by_fields(run, side, 7)
            assert set(fast) == set(slow)
            for fields, value in slow.items():
                assert fast[fields] == pytest.approx(value, rel=1e-9, abs=1e-12)
            assert [abs(value) for value in fast.values()] == sorted((abs(value) for value in fast.values()), reverse=True)


def test_a_contrast_with_a_history_is_the_difference_of_the_scores(habit_run: Recommender) -> None:
    scores = habit_run.predict([("u2", f"i{item}") for item in range(12)])["score"].to_numpy()
    against = habit_run.contrast("u2", "i1", against="i4")
    assert sum(against.values()) == pytest.approx(scores[1] - scores[4], abs=1e-5)
    assert any(field.startswith("past.") for fields in against for field in fields)
    with_mean = habit_run.contrast("u2", "i1")
    assert sum(with_mean.values()) == pytest.approx(scores[1] - scores.mean(), abs=1e-5)


def test_pairs_of_fields_with_a_history_vary_as_their_terms_do(habit_run: Recommender) -> None:
    table = habit_run.field_pairs()
    run, rng = habit_run.fitted, np.random.default_rng([0, 42])
    users, items = rng.choice(run.data.seen_users, 250), rng.choice(run.data.seen_items, 250)
    values = []
    for user, item in zip(users, items, strict=True):
        terms = explain_item(run, known_users(run, np.array([user]), None), int(item)).terms
        values.append(sum(term.value for term in terms if set(term.fields) == {"item", "past.colour"}))
    row = table.filter(pl.col("fields") == "item x past.colour").row(0, named=True)
    assert row["mean"] == pytest.approx(np.mean(values), abs=1e-9)
    assert row["spread"] == pytest.approx(np.std(values), abs=1e-9)


@pytest.mark.parametrize("name", ["gml-fm", "fm", "transfm"])
def test_taking_an_attribute_away_changes_the_score_by_its_terms(name: str, board: Dataset) -> None:
    """The row is scored again without it, the others' x held."""
    run = Recommender(name, **QUICK).fit(board).fitted
    user = known_users(run, np.array([3]), None)
    explanation = explain_item(run, user, 7)
    for column in range(user.attributes.ids.shape[1]):
        values = np.array(user.attributes.values)
        values[0, column] = 0.0
        less = replace(user, attributes=AttributeTable(user.attributes.ids, values))
        without = run.model.score_all(less, np.array([7], np.int32))[0, 0]
        part, field, value = run.encoder.attribute_names(user.attributes.ids[:, column]).row(0)
        shown = f"{part if part == field else f'{part}.{field}'} = {value}"
        expected = sum(term.value for term in explanation.terms if shown in term.attributes)
        assert explanation.score - float(without) == pytest.approx(expected, abs=2e-5)


def test_a_pair_is_weight_times_distance(board: Dataset) -> None:
    explanation = Recommender("gml-fm-unit", **QUICK).fit(board).explain("u1", "i1")
    pairs = [term for term in explanation.terms if term.kind == "pair"]
    assert len(pairs) == 7 * 6 // 2  # user, team; item, colour, price, two tags
    for term in pairs:
        assert term.weight is not None
        assert term.distance is not None
        assert 0 <= term.distance <= 4.0001  # unit length bounds it
    grouped = explanation.by_fields()
    assert sum(grouped.values()) == pytest.approx(explanation.score)
    assert list(grouped.values()) == sorted(grouped.values(), key=abs, reverse=True)


def test_contrast_tells_what_sets_an_item_apart(explained: Recommender) -> None:
    contrast = explained.contrast("u1", "i1", against="i2")
    scores = explained.predict([("u1", "i1"), ("u1", "i2")])["score"].to_list()
    assert sum(contrast.values()) == pytest.approx(scores[0] - scores[1], abs=1e-5)
    assert contrast[("user", "user.team")] == pytest.approx(0.0, abs=1e-9)  # the user is the same
    with_mean = explained.contrast("u1", "i1")
    mean = explained.predict([("u1", f"i{item}") for item in range(40)])["score"].mean()
    assert sum(with_mean.values()) == pytest.approx(scores[0] - float(mean), abs=1e-5)  # type: ignore[arg-type]


def test_a_small_catalogue_is_sampled_whole(explained: Recommender) -> None:
    assert sampled_items(explained.fitted).tolist() == list(range(40))


def test_models_that_do_not_decompose_say_so(board: Dataset, explained: Recommender) -> None:
    for name in ("nfm", "popularity"):
        settings: dict[str, Any] = {"epochs": 1, "k": 4, "threads": 1} if name == "nfm" else {}
        recommender = Recommender(name, **settings).fit(board)
        with pytest.raises(OptionError, match=f"an explanation is not available for '{name}'"):
            recommender.explain("u1", "i1")
        with pytest.raises(OptionError, match=f"a neighbourhood is not available for '{name}'"):
            recommender.similar_items("i1")
    with_history = Recommender("nfm", history="last", epochs=1, k=4, threads=1).fit(board)
    with pytest.raises(OptionError, match="an explanation is not available for 'nfm'"):
        with_history.explain("u1", "i1")
    with pytest.raises(DataError, match="is not in the catalogue"):
        explained.explain("u1", "nothing")


@pytest.mark.parametrize("name", ["gml-fm", "fm", "transfm", "mf"])
def test_neighbours_are_alike(name: str, board: Dataset) -> None:
    recommender = Recommender(name, k=8, threads=1, lr=0.02).fit(board)
    near = recommender.similar_items("i4", 15)
    assert near["rank"].to_list() == list(range(1, 16))
    assert near["distance"].is_sorted()
    assert "i4" not in near["item"].to_list()
    assert sum(int(item[1:]) % 2 == 0 for item in near["item"]) >= 13
    users = recommender.similar_users("u3", 10)
    assert sum(int(user[1:]) % 2 == 1 for user in users["user"]) >= 8
    with pytest.raises(DataError, match="is unknown"):
        recommender.similar_users("nobody")
    with pytest.raises(OptionError, match="n is 0"):
        recommender.similar_items("i4", 0)


def test_the_fields_that_decide_carry_the_score(board: Dataset) -> None:
    table = Recommender("gml-fm", k=8, threads=1, lr=0.02).fit(board).field_pairs()
    assert table.columns == ["fields", "spread", "mean"]
    top = table.head(8)["fields"].to_list()
    assert any("team" in fields and ("colour" in fields or "tags" in fields) for fields in top), top


def test_directions_are_those_of_m(board: Dataset) -> None:
    recommender = Recommender("gml-fm-md", **QUICK).fit(board)
    table = recommender.directions(2)
    matrix = recommender.fitted.model.state_dict()["dense.transform.matrix"].double()
    values = torch.linalg.eigvalsh(matrix.T @ matrix)
    assert table.filter(pl.col("direction") == 1)["share"][0] == pytest.approx(float(values[-1] / values.sum()))
    assert table.height == 10
    ours = Recommender("gml-fm", rank=4, **QUICK).fit(board)
    matrix = ours.fitted.model.state_dict()["dense.matrix"].double()
    values = torch.linalg.eigvalsh(matrix.T @ matrix)
    shares = ours.directions(1)["share"]
    assert shares[0] == pytest.approx(float(values[-1] / values.sum()))
    for name, settings in (("gml-fm-unit", {}), ("gml-fm", {"rank": 0})):
        without = Recommender(name, **{**QUICK, "epochs": 1, **settings}).fit(board)
        with pytest.raises(OptionError, match=f"'{name}' has no matrix M here; gml-fm-md has one, and gml-fm with a rank"):
            without.directions()


@pytest.mark.parametrize("name", ["gml-fm-md", "transfm"])
def test_distances_of_near_attributes_far_from_the_origin_are_right(name: str, board: Dataset) -> None:
    """Both those of a reason and those between items: in float32, |a|^2 + |b|^2 - 2 a.b of these is noise."""
    recommender = Recommender(name, **QUICK).fit(board)
    model: Any = recommender.fitted.model
    with torch.no_grad():
        model.table[1:, 1:9] = 1000.0 + model.table[1:, 1:9] * 0.1
        if name == "gml-fm-md":
            model.transform.matrix.copy_(torch.eye(8))
        else:
            model.table[:, 9:] *= 0.1
    model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()})
    terms = model.explain(known_users(recommender.fitted, np.array([3]), None), 7)
    assert terms.distance is not None
    table = model.table.double()[terms.ids]
    start = table[:, 1:9] + (table[:, 9:] if name == "transfm" else 0.0)
    exact = (start.unsqueeze(1) - table[:, 1:9]).square().sum(-1)
    np.testing.assert_allclose(terms.distance, exact.numpy(), rtol=1e-4)
    items, number = recommender.fitted.encoded.item, int(recommender.fitted.encoder.item_numbers(["i4"])[0])
    x = torch.from_numpy(items.values.copy()).double().abs().unsqueeze(-1)
    points = (model.table.double()[:, 1:9][items.ids.astype(np.int64)] * x).sum(1) / x.sum(1)
    distances = (points - points[number]).norm(dim=1)
    near = recommender.similar_items("i4", 10)
    chosen = recommender.fitted.encoder.item_numbers(near["item"].to_list())
    np.testing.assert_allclose(near["distance"], distances[chosen.astype(np.int64)], rtol=1e-2, atol=2e-4)


def test_numbers_are_explained_by_their_value(explained: Recommender) -> None:
    prices = {"i3": "3", "i5": "5"}
    for item, price in prices.items():
        attributes = {attribute for term in explained.explain("u1", item).terms for attribute in term.attributes}
        assert f"item.price = {price}" in attributes
        assert "item.price = price" not in attributes


@pytest.mark.parametrize(("price", "shown"), [(12.5, "12.5"), (1e9, "1000000000"), (-0.125, "-0.125"), (1 / 3, "0.333333")])
def test_an_outlier_is_shown_as_the_table_has_it(price: float, shown: str, explained: Recommender) -> None:
    """What the model reads of it is cut at five spreads."""
    own = copy.copy(explained)
    own.add_items(pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [price], "tags": [["x"]]}))
    attributes = {attribute for term in own.explain("u1", "n").terms for attribute in term.attributes}
    assert f"item.price = {shown}" in attributes


def test_a_direction_names_a_number_by_its_field(board: Dataset) -> None:
    recommender = Recommender("gml-fm-md", **QUICK).fit(board)
    model: Any = recommender.fitted.model
    price = next(field for field in recommender.fitted.encoder.fields if field.name == "price")
    with torch.no_grad():
        model.table[price.offset + 2] = 100.0
    labels = recommender.directions(8)["attribute"].to_list()
    assert "item.price" in labels
    assert "item.price = price" not in labels
