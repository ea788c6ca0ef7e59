"""Models that write no more than what a pair adds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import History
from gmlfm.errors import OptionError
from gmlfm.models.base import ItemSide, UserSide
from gmlfm.models.fm import FM
from gmlfm.models.mf import MF
from gmlfm.models.pairwise import PairwiseModel
from gmlfm.models.scoring import RowScorer
from tests.models.slow_loops import LAYOUT, attribute_inputs

ITEMS = np.arange(5, dtype=np.int32)


class Arrow(PairwiseModel):
    """What comes first in a pair counts otherwise than what comes second; nothing but the two methods is written."""

    @property
    def row_width(self) -> int:
        return 3

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left[:, :1] @ right[:, 1:2].T, (left[:, None, 2] - right[None, :, 2]).abs()


class Whole(Arrow):
    """With linear weights, a global term and no distance."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.tensor(0.75))

    def global_term(self) -> Tensor:
        return self.offset

    def linear(self, rows: Tensor) -> Tensor:
        return 2.0 * rows[:, 2]

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left[:, :1] @ right[:, 1:2].T, None


class IdsOnly(Whole):
    ids_only = True


class Doubled(Arrow):
    """Its pairs are of rows that are transformed first."""

    def transform_rows(self, rows: Tensor) -> Tensor:
        return torch.cat([2.0 * rows, rows.square()], dim=1)

    def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        return left[:, :1] @ right[:, 1:2].T, (left[:, None, 5] - right[None, :, 5]).abs()


CLASSES = [Arrow, Whole, IdsOnly, Doubled]


def attached(cls: type[PairwiseModel], label_scale: tuple[float, float] = (0.0, 1.0)) -> Any:
    model = cls()
    model.table = model.initial_rows(LAYOUT.n_rows, torch.Generator().manual_seed(0)) * 80
    model.attach(attribute_inputs(label_scale))
    return model


def users() -> UserSide:
    return UserSide(np.arange(4, dtype=np.int32), attribute_inputs().encoded.user)


def slow_score(model: Any, user: int, item: int) -> float:
    encoded = attribute_inputs().encoded
    attributes = [
        (int(row), float(x))
        for table, number in ((encoded.user, user), (encoded.item, item))
        for row, x in zip(table.ids[number], table.values[number], strict=True)
        if row != 0
    ]
    if model.ids_only:
        attributes = [(attributes[0][0], 1.0), next((row, 1.0) for row, _ in attributes if row >= 11)]
    rows = model.transform_rows(model.table.double())
    with torch.no_grad():
        total = float(model.global_term()) + sum(float(model.linear(rows[i : i + 1])[0]) * x for i, x in attributes)
        for (i, x), (j, y) in combinations(attributes, 2):
            weight, distance = model.pair_parts(rows[i : i + 1], rows[j : j + 1])
            total += float(weight[0, 0]) * (1.0 if distance is None else float(distance[0, 0])) * x * y
    return total


@pytest.mark.parametrize("cls", CLASSES)
def test_scores_are_a_slow_loop_over_pairs(cls: type[PairwiseModel]) -> None:
    model = attached(cls)
    scores = model.score_all(users(), ITEMS)
    expected = [[slow_score(model, user, item) for item in range(5)] for user in range(4)]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(scores - scores.mean()).max() > 0.1


@pytest.mark.parametrize("few_rows", [True, False])
@pytest.mark.parametrize("cls", CLASSES)
def test_pairs_score_as_the_whole_catalogue_does(cls: type[PairwiseModel], few_rows: bool) -> None:
    model = attached(cls)
    pairs = np.array([[0, 1], [4, 4], [2, 3], [1, 0]], np.int32)
    if not few_rows:
        pairs = np.tile(pairs, (1, 20))
    expected = np.take_along_axis(model.score_all(users(), ITEMS), pairs, axis=1)
    np.testing.assert_allclose(model.score_pairs(users(), pairs), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cls", [IdsOnly, MF])
def test_of_ids_alone_x_does_not_count_in_any_form(cls: type[PairwiseModel]) -> None:
    model, inputs = attached(cls), attribute_inputs()
    expected = model.score_all(users(), ITEMS)
    x_of_users, x_of_items = np.array([[0.0], [0.5], [-1.0], [2.0]]), np.array([[0.0], [3.0], [0.1], [-2.0], [0.0]])
    user, item = inputs.encoded.user, inputs.encoded.item
    model.attach(replace(inputs, encoded=replace(inputs.encoded, item=_scaled(item, x_of_items))))
    asking = UserSide(np.arange(4, dtype=np.int32), _scaled(user, x_of_users))
    np.testing.assert_allclose(model.score_all(asking, ITEMS), expected, rtol=1e-6)
    np.testing.assert_allclose(model.score_pairs(asking, np.tile(ITEMS, (4, 1))), expected, rtol=1e-5, atol=1e-6)
    terms = model.explain(asking.slice(0, 1), 0)
    assert terms.x.tolist() == [1.0, 1.0]
    assert terms.constant + terms.linear.sum() + terms.weight[0, 1] == pytest.approx(expected[0, 0], rel=1e-5)


def _scaled(table: AttributeTable, x: npt.NDArray[Any]) -> AttributeTable:
    """With x of the ids."""
    return AttributeTable(table.ids, np.concatenate([x, table.values[:, 1:]], axis=1).astype(np.float32))


def test_a_reason_names_an_attribute_of_x_0_and_no_padding() -> None:
    model, inputs = attached(Arrow), attribute_inputs()
    item = AttributeTable(inputs.encoded.item.ids, inputs.encoded.item.values.copy())
    item.values[0, 1] = 0.0
    model.attach(replace(inputs, encoded=replace(inputs.encoded, item=item)))
    terms = model.explain(users().slice(0, 1), 0)
    assert terms.ids.tolist() == [3, 9, 13, 20]
    assert terms.x.tolist() == [1.0, 1.0, 1.0, 0.0]


def test_a_model_that_does_not_decompose_ranks_by_tables_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = attached(Arrow)
    assert not model.decomposes
    assert model.scorer._tables_are_cheaper(model, 2)
    shapes: list[tuple[int, ...]] = []
    pair_table = Arrow.pair_table

    def recorded(self: Arrow, left: Tensor, item_cache: tuple[Tensor, ...]) -> Tensor:
        table = pair_table(self, left, item_cache)
        shapes.append(tuple(table.shape))
        return table

    monkeypatch.setattr(Arrow, "pair_table", recorded)
    monkeypatch.setattr(RowScorer, "_by_pairs", None)  # pair after pair is not asked for
    model.score_all(users(), ITEMS)
    assert shapes == [(7, 10)]  # distinct attributes of the users, and the table's rows from the first item's on


@pytest.mark.parametrize("label_scale", [(0.0, 1.0), (3.0, 2.0)])
@pytest.mark.parametrize("cls", CLASSES)
def test_the_terms_of_a_reason_sum_to_the_score(cls: type[PairwiseModel], label_scale: tuple[float, float]) -> None:
    model = attached(cls, label_scale)
    scores = model.score_all(users(), ITEMS)
    for user, item in ((0, 0), (1, 1), (2, 4)):
        terms = model.explain(users().slice(user, user + 1), item)
        distance = np.ones_like(terms.weight) if terms.distance is None else terms.distance
        pairs = np.triu(terms.weight * distance * np.outer(terms.x, terms.x), 1).sum()
        assert terms.constant + terms.linear.sum() + pairs == pytest.approx(scores[user, item], rel=1e-5)
        n_attributes = 2 if model.ids_only else 2 + int((attribute_inputs().encoded.item.values[item] != 0).sum())
        assert len(terms.ids) == n_attributes  # padding is no attribute
        assert terms.ids[0] == 3 + user


def test_the_labels_scale_applies_to_every_term() -> None:
    user = users().slice(1, 2)
    plain, scaled = (attached(Whole, label_scale).explain(user, 3) for label_scale in ((0.0, 1.0), (3.0, 2.0)))
    assert scaled.constant == 3.0 + 2.0 * plain.constant == 3.0 + 2.0 * 0.75
    np.testing.assert_allclose(scaled.linear, 2.0 * plain.linear)
    np.testing.assert_allclose(scaled.weight, 2.0 * plain.weight)


@pytest.mark.parametrize("cls", [*CLASSES, FM])
def test_a_newcomers_history_counts(cls: type[PairwiseModel]) -> None:
    model = attached(cls)
    attributes = AttributeTable(np.array([[1, 9]], np.int32), np.ones((1, 2), np.float32))
    stranger, newcomer = (
        model.score_all(UserSide(np.array([-1], np.int32), attributes, history), ITEMS)[0]
        for history in (None, History.of([[1]]))
    )
    assert np.isfinite(newcomer).all()
    assert np.abs(newcomer - stranger).max() > 1e-3


def test_near_means_the_mean_of_the_rows_unless_a_model_says_otherwise() -> None:
    model = attached(Arrow)
    items = attribute_inputs().encoded.item
    positions = model.positions(items)
    x = torch.from_numpy(items.values[1])
    expected = (model.table[items.ids[1]] * x[:, None]).sum(0) / x.sum()
    torch.testing.assert_close(positions[1], expected)
    machine = attached(FM)
    torch.testing.assert_close(machine.positions(items).norm(dim=1), torch.ones(5))  # of its side vectors, the direction


def test_over_other_items_it_scores_those() -> None:
    model = attached(Arrow)
    scores = model.score_all(users(), ITEMS)
    items, order = attribute_inputs().encoded.item, ITEMS[::-1]
    over = model.over(ItemSide(order, AttributeTable(items.ids[order], items.values[order])))
    np.testing.assert_allclose(over.score_all(users(), ITEMS), scores[:, ::-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.score_all(users(), ITEMS), scores)


def test_a_model_that_says_it_decomposes_must_give_its_vectors() -> None:
    class Claims(Arrow):
        decomposes = True

    model = attached(Claims)
    with pytest.raises(NotImplementedError, match="Claims says no length of side vectors, which a model that decomposes does"):
        model.score_all(users(), ITEMS)
    with pytest.raises(NotImplementedError, match="Claims gives no side vectors, which a model that decomposes does"):
        model.score_pairs(users(), np.zeros((4, 1), np.int32))


def test_without_pair_parts_the_class_says_what_to_write() -> None:
    class Nothing(PairwiseModel):
        row_width = 3

    cls: Any = Nothing
    with pytest.raises(OptionError, match=r"Nothing has no pair_parts\(self, left, right\)"):
        cls()


def test_new_pairs_under_old_side_vectors_are_refused_where_they_are_written() -> None:
    with pytest.raises(OptionError, match="Shifted changes pair_parts but inherits side_vectors, by which it is scored; write"):

        class Shifted(FM):
            def pair_parts(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
                return 5.0 + left[:, 1:] @ right[:, 1:].T, None
