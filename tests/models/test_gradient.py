from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gmlfm.errors import OptionError
from gmlfm.models.base import FitReport, HistorySpec, Inputs, ItemSide, UserSide
from gmlfm.models.deepfm import DeepFM
from gmlfm.models.fm import FM
from gmlfm.models.gradient import Attributes, GradientModel, gather
from gmlfm.models.registry import MODELS
from gmlfm.training.settings import Settings
from tests.models.slow_loops import LAYOUT, K, attribute_inputs, rows_and_batch

ITEMS = np.arange(5, dtype=np.int32)


class Sums(GradientModel):
    """The sum of both sides' numbers, times a learned scale; no more than a gradient model must write."""

    row_width = 2

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        user = (rows[user_side.ids].sum(-1) * user_side.x).sum(-1)
        item = (rows[item_side.ids].sum(-1) * item_side.x).sum(-1)
        return self.scale * (user.unsqueeze(1) + item)


def attached(cls: Any = Sums, **options: Any) -> Any:
    model = cls(**options)
    model.table = torch.randn(LAYOUT.n_rows, model.row_width)
    model.attach(attribute_inputs())
    return model


def users() -> UserSide:
    return UserSide(np.arange(4, dtype=np.int32), attribute_inputs().encoded.user)


def test_the_distinct_rows_of_all_sides_are_gathered_in_order() -> None:
    fields = torch.tensor([[1, 2]])
    left = Attributes(torch.tensor([[7, 3]]), torch.ones(1, 2), fields)
    right = Attributes(torch.tensor([[[3, 9], [0, 7]]]), torch.full((1, 2, 2), 0.5))
    distinct, (left_places, right_places) = gather(left, right)
    assert distinct.tolist() == [0, 3, 7, 9]
    assert left_places.ids.tolist() == [[2, 1]]
    assert right_places.ids.tolist() == [[[1, 3], [0, 2]]]
    assert left_places.x is left.x
    assert left_places.fields is fields
    assert right_places.fields is None


def test_padding_is_known_by_its_id_when_rows_are_numbered_anew() -> None:
    side = Attributes(torch.tensor([[7, 3, 0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    _, (places,) = gather(side)
    assert side.is_present.tolist() == places.is_present.tolist() == [[True, True, False]]
    _, (places,) = gather(Attributes(torch.tensor([[7, 3]]), torch.tensor([[1.0, 0.0]])))
    assert places.ids.tolist() == [[1, 0]]
    assert places.is_present.all()


@pytest.mark.parametrize("name", [name for name, info in MODELS.items() if issubclass(info.cls, GradientModel)])
def test_scores_of_every_model_are_continuous_at_x_0(name: str) -> None:
    task = "topn" if "topn" in MODELS[name].tasks else "rating"
    model: Any = Settings.make(name, task, {"k": K}).build(LAYOUT).double().eval()
    if model.inputs.graph:
        model.set_graph(np.array([3, 3, 4, 5]), np.array([13, 14, 14, 15]))
    rows, user_side, item_side = rows_and_batch(model.row_width)
    scores = []
    for x in (0.0, 1e-9, -1e-9):
        user_side.x[:, 1] = item_side.x[:, 0, 1] = x
        scores.append(model.scores(model.transform_rows(rows), user_side, item_side))
    assert float(scores[0].detach().std()) > 1e-3
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(scores[2], scores[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("n", [2, 40])
def test_scores_of_pairs_and_of_the_catalogue_are_a_loop_over_attributes(n: int) -> None:
    model, encoded = attached(), attribute_inputs().encoded
    row_sums = model.table.sum(1).double().numpy()
    user, item = ((row_sums[table.ids] * table.values).sum(1) for table in (encoded.user, encoded.item))
    expected = 1.5 * (user[:, None] + item[None])
    np.testing.assert_allclose(model.score_all(users(), ITEMS), expected, rtol=1e-5, atol=1e-5)
    pairs = np.random.default_rng(0).integers(0, 5, (4, n)).astype(np.int32)
    np.testing.assert_allclose(model.score_pairs(users(), pairs), np.take_along_axis(expected, pairs, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cls", [Sums, FM])
def test_over_other_items_it_shares_the_table_but_no_caches_and_nothing_that_may_change(cls: Any) -> None:
    model = attached(cls)
    scores = model.score_all(users(), ITEMS)
    items = attribute_inputs().encoded.item
    twice = type(items)(np.concatenate([items.ids, items.ids]), np.concatenate([items.values, items.values]))
    over = model.over(ItemSide(np.arange(10, dtype=np.int32), twice))
    assert over.table.data_ptr() == model.table.data_ptr()
    assert over.scorer is not model.scorer
    for parameter, same in zip(model.parameters(), over.parameters(), strict=True):
        assert torch.equal(parameter, same)
        assert parameter is not same
    np.testing.assert_allclose(over.score_all(users(), np.arange(10, dtype=np.int32)), np.tile(scores, 2), rtol=1e-5)
    np.testing.assert_array_equal(model.score_all(users(), ITEMS), scores)


def test_a_deep_copy_has_weights_of_its_own_and_nothing_cached() -> None:
    model = attached(FM, k=K)
    scores = model.score_all(users(), ITEMS)
    twin = copy.deepcopy(model)
    assert twin._scorer is None
    assert twin._items is model._items  # attributes never change
    np.testing.assert_array_equal(twin.score_all(users(), ITEMS), scores)
    with torch.no_grad():
        twin.bias.add_(1.0)
        twin.table.mul_(2.0)
    np.testing.assert_array_equal(model.score_all(users(), ITEMS), scores)
    assert not np.allclose(copy.deepcopy(twin).score_all(users(), ITEMS), scores)
    assert twin.settings == model.settings == {"k": K}


def test_the_table_and_the_dense_parameters_are_saved_and_loaded() -> None:
    model, other = attached(), attached()
    state = model.state_dict()
    assert set(state) == {"table", "dense.scale"}
    with torch.no_grad():
        other.scale.fill_(-1.0)
    assert not np.allclose(other.score_all(users(), ITEMS), model.score_all(users(), ITEMS))
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.score_all(users(), ITEMS), model.score_all(users(), ITEMS))
    other.table.zero_()  # loading copies
    assert model.table.abs().max() > 0


def test_weights_that_do_not_fit_are_refused() -> None:
    state = attached().state_dict()
    with pytest.raises(ValueError, match=r"their rows have the shape \(23, 3\); expected rows of 2 numbers"):
        attached().load_state_dict({**state, "table": torch.zeros(23, 3)})
    with pytest.raises(RuntimeError, match="scale"):
        attached().load_state_dict({"table": state["table"]})
    with pytest.raises(RuntimeError, match="other"):
        attached().load_state_dict({**state, "dense.other": torch.zeros(1)})


def test_a_model_that_is_part_of_another_is_saved_with_it() -> None:
    model, other = (attached(DeepFM, layout=LAYOUT, k=K) for _ in range(2))
    with torch.no_grad():
        model.machine.bias.fill_(4.0)
    state = model.state_dict()
    assert "dense.machine.bias" in state
    assert "dense.machine.table" not in state
    other.load_state_dict(state)
    assert other.machine.bias.item() == 4.0
    np.testing.assert_array_equal(other.score_all(users(), ITEMS), model.score_all(users(), ITEMS))
    assert set(nn.Sequential(model).state_dict()) == {f"0.{name}" for name in model.dense_state()}


@pytest.mark.parametrize("rows", [(4,), (), (4, 9)])
def test_without_a_user_their_rows_are_the_unknown_ones_of_their_fields(rows: tuple[int, ...]) -> None:
    model = attached()
    before = model.table.clone()
    without = model.without_user(1, rows, attribute_inputs())
    assert torch.equal(model.table, before)
    expected = before.clone()
    for row in rows:
        field = next(field for field in LAYOUT.fields if field.offset <= row < field.end)
        expected[row] = before[field.unknown_row]
    assert torch.equal(without.table, expected)
    assert len({int(LAYOUT.field_of_row()[row]) for row in rows}) == len(rows)


def test_fitting_attaches_the_data_hands_over_the_graph_and_trains_by_the_plan() -> None:
    class Plan:
        def train(self, model: Any, inputs: Any) -> FitReport:
            model.table = torch.zeros(LAYOUT.n_rows, 2)
            return FitReport(best_epoch=7)

        train_episodes = train

    class WithGraph(Sums):
        inputs = Inputs(graph=True)
        edges: tuple[list[int], list[int]] | None = None

        def set_graph(self, user_rows: Any, item_rows: Any) -> None:
            self.edges = user_rows.tolist(), item_rows.tolist()

    class WithoutGraph(WithGraph):
        inputs = Inputs()

    inputs = attribute_inputs()
    positives = inputs.positives()
    model, plain = WithGraph(), WithoutGraph()
    assert model.fit(inputs, Plan()).best_epoch == 7
    assert model.edges == ((3 + positives.users).tolist(), (13 + positives.items).tolist())
    plain.fit(inputs, Plan())
    assert plain.edges is None
    np.testing.assert_array_equal(model.score_all(users(), ITEMS), np.zeros((4, 5)))


def test_fields_are_given_to_models_that_need_them_alone() -> None:
    seen: list[Any] = []

    class Asking(Sums):
        def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
            seen.append(user_side.fields)
            return super().scores(rows, user_side, item_side)

    class NeedsFields(Asking):
        needs_fields = True

    attached(Asking).score_all(users(), ITEMS)
    assert seen.pop() is None
    attached(NeedsFields).score_all(users(), ITEMS)
    assert seen.pop().tolist() == [[0, 1]] * 4


def test_scores_of_another_shape_are_refused_in_a_sentence() -> None:
    class Wrong(Sums):
        def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
            return super().scores(rows, user_side, item_side)[:, :1]

    model = attached(Wrong)
    message = (
        r"Wrong.scores gave the shape \(4, 1\); expected \(B, G\), here \(4, 5\): a score for each user and item; see docs/"
    )
    with pytest.raises(OptionError, match=message):
        model.score_all(users(), ITEMS)
    user_side, item_side = (
        Attributes(torch.zeros(2, 1).long(), torch.ones(2, 1)),
        Attributes(torch.zeros(2, 3, 1).long(), torch.ones(2, 3, 1)),
    )
    with pytest.raises(OptionError, match=r"Wrong.scores gave the shape \(2, 1\)"):
        model.score_sets(model.table, user_side, item_side)


def test_newcomers_go_by_attributes_or_by_the_unknown_row() -> None:
    class ByIds(Sums):
        inputs = Inputs()

    assert Sums.newcomers() == "attributes"
    assert ByIds.newcomers() == "the unknown row"


def test_a_row_is_fitted_to_newcomers_unless_their_history_is_read() -> None:
    model = attached(FM, k=K)
    assert model.folds_in
    model._history = HistorySpec(("last",), 5.0, 10, 3)
    assert not model.folds_in
    model = attached(Sums)
    model.whole_table = True
    assert not model.folds_in
