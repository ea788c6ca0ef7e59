"""Models that are trained by gradient steps.

Their parameters are of two kinds: a table with a row for each attribute, which the trainer owns and of which the model only
ever sees the distinct rows of a batch; and the dense parameters, which are the module's own.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gmlfm.data.attributes import AttributeTable, Role
from gmlfm.errors import NotSupportedError, OptionError
from gmlfm.models.base import FitInputs, FitReport, Floats, HistorySpec, Inputs, Ints, ItemSide, Model, Plan, UserSide

if TYPE_CHECKING:
    from gmlfm.models.scoring import RowScorer

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # scores (B, G), labels (B, G), weights (B,) -> their mean
_DENSE = "dense."


@dataclass(frozen=True)
class Attributes:
    """Attributes of some users or items as places in the rows at hand: ids (..., F) int64, x (..., F).

    fields (..., F) int64 numbers the field of each, for the models that ask for it (`needs_fields`); padding has any.
    is_present (..., F) bool: which are attributes and no padding. An attribute may have x = 0, so x does not tell. It is
    ids != 0 unless given: whoever numbers the rows anew keeps it (`replace`) or gives it.
    """

    ids: Tensor
    x: Tensor
    fields: Tensor | None = None
    is_present: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.is_present is None:
            object.__setattr__(self, "is_present", self.ids != 0)


def gather(*attributes: Attributes) -> tuple[Tensor, tuple[Attributes, ...]]:
    """The distinct rows that some sides name, and the sides as places among these."""
    distinct, places = torch.unique(torch.cat([side.ids.flatten() for side in attributes]), return_inverse=True)
    by_side = places.split([side.ids.numel() for side in attributes])
    return distinct, tuple(replace(side, ids=ids.view(side.ids.shape)) for side, ids in zip(attributes, by_side, strict=True))


class GradientModel(nn.Module, Model):
    """Write `row_width` and `scores`; the trainer does the rest."""

    inputs: ClassVar[Inputs] = Inputs(attributes=True, history=True)
    learns_in_epochs: ClassVar[bool] = True
    losses: ClassVar[Mapping[str, Loss]] = {}  # objectives of the model's own, which its setting `loss` may name
    needs_fields: bool = False  # Attributes carry their fields' numbers
    takes_history: ClassVar[bool] = True  # what users did before may be among its inputs; check_history decides by its settings
    whole_table: bool = False  # a step sees every row, not the distinct ones of its batch

    table: Tensor  # (n, row_width), once trained or loaded
    _items: AttributeTable
    _history: HistorySpec | None = None
    _field_of_row: npt.NDArray[np.int16] | None = None
    _label_scale: tuple[float, float] = (0.0, 1.0)
    _scorer: RowScorer | None = None
    _not_copied: ClassVar[tuple[str, ...]] = ("_scorer",)  # what is made again where it is missing

    @classmethod
    def newcomers(cls) -> str:
        return "attributes" if cls.inputs.attributes else "the unknown row"

    @property
    @abstractmethod
    def row_width(self) -> int:
        """Numbers a row of the table holds."""

    def initial_rows(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, row_width) at the start of training."""
        return torch.empty(n, self.row_width).normal_(0.0, 0.01, generator=generator)

    def set_graph(self, user_rows: npt.NDArray[np.int64], item_rows: npt.NDArray[np.int64]) -> None:
        """Before training: the id rows of the training positives, for a model whose inputs have the graph."""

    def transform_rows(self, rows: Tensor) -> Tensor:
        """What is computed once for each row before any score: (U, row_width) -> (U, anything)."""
        return rows

    @abstractmethod
    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        """rows: as `transform_rows` gives them; user_side, context included: (B, F); item_side: (B, G, F').

        Returns (B, G)."""

    @property
    def warm_epochs(self) -> int:
        """Epochs before the model is whole, which early stopping does not judge."""
        return 0

    def resting_points(self) -> list[tuple[nn.Parameter, float]]:
        """Dense parameters that weight decay draws back, each with the number to which it is drawn."""
        return []

    def begin_epoch(self, number: int) -> None:
        """Called before each epoch, the first being 0."""

    def score_sets(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> list[Tensor]:
        """The scores that the objective is applied to; several where parts are trained side by side."""
        return [self.checked_scores(rows, user_side, item_side)]

    def checked_scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        """`scores`, of the shape that they must have: a loss would take another one for what it is not, and say nothing."""
        scores, expected = self.scores(rows, user_side, item_side), tuple(item_side.ids.shape[:-1])
        if tuple(scores.shape) != expected:
            raise OptionError(
                f"{type(self).__name__}.scores gave the shape {tuple(scores.shape)}; expected (B, G), here {expected}: a score "
                "for each user and item; see docs/add-a-model.md."
            )
        return scores

    def penalty(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor | None:
        """What the objective adds for the rows of a batch and the dense parameters, if anything."""
        return None

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        self.attach(inputs)
        if self.inputs.graph:
            positives = inputs.positives()
            user_rows = inputs.encoded.user.ids[positives.users, 0].astype(np.int64)
            self.set_graph(user_rows, inputs.encoded.item.ids[positives.items, 0].astype(np.int64))
        return plan.train(self, inputs)

    @property
    def reads_history(self) -> bool:
        return self._history is not None

    @property
    def folds_in(self) -> bool:
        return not self.reads_history and not self.whole_table

    def history_vectors(self, rows: Tensor, attributes: Attributes) -> Tensor:
        """What earlier items add to a user at weight 1, by their attributes' rows in one role (transformed): (N, F) -> (N, D).

        A model whose score is no inner product of two sides takes for each role of a user one attribute more, whose row is
        the sum of these over the role's items.
        """
        return (rows[attributes.ids] * attributes.x.unsqueeze(-1)).sum(-2)

    def in_role(self, vectors: Tensor, role: Role) -> Tensor:
        """What `history_vectors` gave of some items (N, D), as it counts in a role of the history."""
        return vectors

    def scores_after(
        self, rows: Tensor, user_side: Attributes, item_side: Attributes, earlier: list[Tensor], role_fields: Tensor | None
    ) -> list[Tensor]:
        """The scores that the objective is applied to, of users with a history. earlier: by role, what it adds (B, D).

        Each role is one more attribute of the user; role_fields: the field number of each.
        """
        from gmlfm.models.history import pooled_side

        user_side = pooled_side(user_side, len(rows), role_fields, len(earlier))
        return self.score_sets(torch.cat([rows, *earlier]), user_side, item_side)

    def check_history(self) -> None:
        """Refuse to read what users did before, where that cannot be done."""
        if not self.inputs.attributes or self.whole_table:
            raise OptionError(
                f"{type(self).__name__} reads no attributes, as which a history enters a score; set history = none, or take fm "
                "or gml-fm."
            )

    def attach(self, inputs: FitInputs) -> None:
        self._items, self._label_scale, self._scorer = inputs.encoded.item, inputs.label_scale, None
        self._history = inputs.history
        if inputs.history is not None:
            self.check_history()
        self._field_of_row = inputs.layout.field_of_row() if self.needs_fields else None

    def over(self, items: ItemSide) -> GradientModel:
        model = copy.deepcopy(self, {id(self.table): self.table})  # nothing writes to the table of a fitted model
        model._items = items.attributes
        return model

    def without_user(self, number: int, rows: tuple[int, ...], inputs: FitInputs) -> GradientModel:
        """Each of the user's rows becomes the unknown one of its field."""
        model = self.over(inputs.items)
        if rows:
            fields = inputs.layout.field_of_row()[list(rows)]
            unknown = [inputs.layout.fields[field].unknown_row for field in fields]
            model.table = model.table.clone()
            model.table[list(rows)] = model.table[unknown]
        return model

    def grow_from(self, earlier: Model, origins: npt.NDArray[np.int64], inputs: FitInputs) -> None:
        """With the earlier dense parameters: every score that both can give is the same."""
        if self.whole_table or self.inputs.graph:
            raise NotSupportedError(f"'{type(self).__name__}' learns from a graph of all rows; train it anew on all data.")
        self.attach(inputs)
        state = earlier.state_dict()
        self.load_state_dict({**state, "table": state["table"][torch.from_numpy(origins)]})

    def score_all(self, users: UserSide, items: Ints, out: Floats | None = None) -> Floats:
        """out: (N, len(items)), where the scores are written to if it is given."""
        return self.scorer.score_all(users, items, out)

    def score_pairs(self, users: UserSide, items: Ints) -> Floats:
        return self.scorer.score_pairs(users, items)

    @property
    def scorer(self) -> RowScorer:
        """Scores of the table as it stands, with what it keeps of the items between calls."""
        from gmlfm.models.scoring import RowScorer

        if self._scorer is None:
            settings = (self._field_of_row, self._label_scale, self._history)
            self._scorer = RowScorer(self, self.table, self._items, *settings)
        return self._scorer

    def dense_state(self) -> dict[str, Tensor]:
        """The dense parameters and buffers."""
        return dict(nn.Module.state_dict(self))

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
        if args or kwargs:  # torch asks a module that is part of another one
            return nn.Module.state_dict(self, *args, **kwargs)
        return {"table": self.table, **{_DENSE + name: tensor for name, tensor in self.dense_state().items()}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:  # type: ignore[override]
        """A table of another width is refused."""
        table = state["table"]
        if table.ndim != 2 or table.shape[1] != self.row_width:
            raise ValueError(f"their rows have the shape {tuple(table.shape)}; expected rows of {self.row_width} numbers")
        dense = {name.removeprefix(_DENSE): tensor for name, tensor in state.items() if name.startswith(_DENSE)}
        for name in ("_parameters", "_buffers", "_modules"):  # the same model `over` other items shares them
            self.__dict__[name] = copy.deepcopy(self.__dict__[name])
        nn.Module.load_state_dict(self, dense)
        self.table, self._scorer = table.clone(), None

    def __deepcopy__(self, memo: dict[int, Any]) -> GradientModel:
        """Without what scoring keeps between calls."""
        model = copy.copy(self)
        memo[id(self)] = model
        for name, value in self.__dict__.items():
            if name in self._not_copied:
                model.__dict__[name] = None
            elif name not in ("_items", "_field_of_row"):
                model.__dict__[name] = copy.deepcopy(value, memo)
        return model
