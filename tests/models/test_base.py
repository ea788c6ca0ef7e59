from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gmlfm
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import History
from gmlfm.errors import NotSupportedError, OptionError
from gmlfm.models import base
from gmlfm.models.base import FitInputs, FitReport, Floats, Inputs, Ints, ItemSide, Layout, Model, Plan, UserSide
from gmlfm.models.closed_form import ClosedFormModel
from gmlfm.models.episodic import EpisodicModel
from gmlfm.models.gradient import GradientModel
from gmlfm.models.pairwise import PairwiseModel
from gmlfm.models.settings import Setting
from tests.models.slow_loops import LAYOUT, inputs_of, users_of


class Multiples(Model):
    """score(u, i) = factor (10 u + i): every method that a model must have, and no more."""

    def __init__(self, factor: Annotated[float, Setting("multiplies every score", above=0)] = 1.0, shift: int = 0) -> None:
        self.factor, self.shift = factor, shift
        self.sizes: list[int] = []

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        return FitReport()

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        self.sizes.append(len(users))
        return (self.factor * (10 * users.numbers[:, None] + items[None] + self.shift)).astype(np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        return {"factor": torch.tensor(self.factor)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.factor = float(state["factor"])


def test_it_is_public() -> None:
    assert gmlfm.Model is Model
    assert gmlfm.FitInputs is FitInputs


@pytest.mark.parametrize(
    ("parent", "methods", "message"),
    [
        (
            GradientModel,
            ("row_width",),
            r"Mine has no scores\(self, rows, user_side, item_side\), which returns \(B, G\) scores; see docs/",
        ),
        (GradientModel, ("scores",), "Mine has no row_width, the number of parameters in a row of the table; see docs/"),
        (PairwiseModel, ("row_width",), r"Mine has no pair_parts\(self, left, right\), which returns what each pair adds"),
        (
            ClosedFormModel,
            ("score_all", "state_dict", "load_state_dict"),
            r"Mine has no fit\(self, inputs, plan\), which learns",
        ),
        (
            ClosedFormModel,
            ("fit", "state_dict", "load_state_dict"),
            r"no score_all\(self, users, items\), which returns \(N, I\)",
        ),
        (EpisodicModel, ("score_all", "state_dict", "load_state_dict"), "Mine has no run_epoch"),
        (ClosedFormModel, ("fit", "score_all", "load_state_dict"), "Mine has no state_dict; see docs/add-a-model.md"),
    ],
)
def test_a_class_that_lacks_a_method_says_which_in_a_sentence(
    parent: type[Model], methods: tuple[str, ...], message: str
) -> None:
    cls: Any = type("Mine", (parent,), {name: lambda self, *arguments: None for name in methods})
    with pytest.raises(OptionError, match=message) as caught:
        cls()
    assert "\n" not in str(caught.value)


def test_an_instance_remembers_the_settings_that_it_was_made_with() -> None:
    assert Multiples().settings == {}
    assert Multiples(2.0).settings == {"factor": 2.0}
    assert Multiples(shift=3, factor=2.0).settings == {"factor": 2.0, "shift": 3}
    assert list(Multiples.declared()) == ["factor", "shift"]
    with pytest.raises(OptionError, match="factor is 0; expected above 0"):
        Multiples(factor=0.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'factr'"):
        Multiples(factr=2.0)  # type: ignore[call-arg]


def test_the_layout_is_no_setting() -> None:
    class WithLayout(Multiples):
        def __init__(self, layout: Layout, factor: float = 1.0) -> None:
            super().__init__(factor)
            self.layout = layout

    assert list(WithLayout.declared()) == ["factor"]
    model = WithLayout(LAYOUT, factor=3.0)
    assert model.settings == {"factor": 3.0}
    assert model.layout is LAYOUT


def test_scores_of_pairs_are_those_of_the_whole_catalogue_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_PAIRS_PER_BLOCK", 3)
    model, rng = Multiples(2.0), np.random.default_rng(0)
    users, items = users_of(rng.integers(0, 9, 8)), rng.integers(0, 20, (8, 4)).astype(np.int32)
    expected = np.take_along_axis(model.score_all(users, np.arange(20, dtype=np.int32)), items, axis=1)
    model.sizes.clear()
    np.testing.assert_array_equal(model.score_pairs(users, items), expected)
    assert model.sizes == [3, 3, 2]
    assert model.score_pairs(users_of([]), np.zeros((0, 4), np.int32)).shape == (0, 4)


def test_what_a_model_cannot_do_it_says_in_a_sentence() -> None:
    model, nothing = Multiples(), AttributeTable(np.zeros((1, 0), np.int32), np.zeros((1, 0), np.float32))
    with pytest.raises(NotSupportedError, match="'Multiples' cannot explain a score: it is no sum over pairs"):
        model.explain(users_of([0]), 0)
    with pytest.raises(NotSupportedError, match="'Multiples' has no metric"):
        model.positions(nothing)
    with pytest.raises(NotSupportedError, match="'Multiples' has no matrix M; gml-fm-md has one, and gml-fm with a rank"):
        model.metric()
    with pytest.raises(NotSupportedError, match="Multiples scores the items it was fitted with alone"):
        model.over(ItemSide(np.zeros(1, np.int32), nothing))
    assert model.kernel_spec() is None


def test_without_a_user_a_copy_is_attached_to_the_data_that_are_left() -> None:
    class Attached(Multiples):
        inputs_seen: FitInputs | None = None

        def attach(self, inputs: FitInputs) -> None:
            self.inputs_seen = inputs

    model, inputs = Attached(), inputs_of()
    without = model.without_user(0, (), inputs)
    assert isinstance(without, Attached)
    assert without.inputs_seen is inputs
    assert without.sizes is not model.sizes
    assert model.inputs_seen is None


def test_what_a_model_goes_by_for_newcomers_follows_from_its_inputs() -> None:
    class WithAttributes(Multiples):
        inputs = Inputs(attributes=True)

    assert Multiples.newcomers() == "the same for all"
    assert WithAttributes.newcomers() == "attributes"


def test_users_are_taken_in_slices() -> None:
    attributes = AttributeTable(np.arange(6, dtype=np.int32).reshape(3, 2), np.ones((3, 2), np.float32))
    users = UserSide(np.array([7, 8, 9], np.int32), attributes, History.of([[1], [2, 0], [3]]))
    chosen = users.slice(1, 5)
    assert len(users) == 3
    assert chosen.numbers.tolist() == [8, 9]
    assert chosen.attributes.ids.tolist() == [[2, 3], [4, 5]]
    assert chosen.history is not None
    assert [chosen.history.of_user(user).tolist() for user in range(2)] == [[2, 0], [3]]
    assert UserSide(users.numbers, attributes).slice(1, 5).history is None


def test_the_layout_tells_fields_and_rows() -> None:
    assert LAYOUT.n_rows == 23
    assert LAYOUT.field_numbers("user") == [0, 1]
    assert LAYOUT.field_numbers("item") == [2, 3]
    assert LAYOUT.id_field("item").offset == 11
    fields = LAYOUT.field_of_row()
    assert len(fields) == 23
    assert fields[[1, 6, 7, 10, 11, 17, 18, 22]].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_inputs_for_scoring_alone_have_no_batches_and_number_their_items() -> None:
    inputs = inputs_of()
    with pytest.raises(OptionError, match="no training batches here"):
        inputs.batches()
    assert inputs.items.numbers.tolist() == [0, 1, 2, 3, 4]
    assert inputs.items.attributes is inputs.encoded.item
