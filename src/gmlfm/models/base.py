"""The one protocol that every model meets, and what a model is handed.

Nothing outside `gmlfm.models` asks which kind of model it holds; what a model can do it says itself.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gmlfm.data.attributes import ROLES, AttributeTable, FieldCode, Role
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import History
from gmlfm.errors import NotSupportedError, OptionError
from gmlfm.kernels.spec import KernelSpec
from gmlfm.models.settings import Declared, convert_all, declared_settings
from gmlfm.models.terms import Terms

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
TASKS = ("topn", "rating", "implicit")
_PAIRS_PER_BLOCK = 256


@dataclass(frozen=True)
class UserSide:
    """N users as a model sees them, each in the context of an occasion.

    numbers: (N,), by training's count, -1 for a user whom training never listed; attributes: (N, F), the id first;
    history: what each did before, as item numbers; None where nothing is said of it.
    """

    numbers: Ints
    attributes: AttributeTable
    history: History | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def slice(self, start: int, stop: int) -> UserSide:
        rows = slice(start, stop)
        attributes = AttributeTable(self.attributes.ids[rows], self.attributes.values[rows])
        history = None if self.history is None else self.history.slice(start, min(stop, len(self)))
        return UserSide(self.numbers[rows], attributes, history)


@dataclass(frozen=True)
class ItemSide:
    """The items that are scored: attributes (I, F), and the number that each has in training, -1 for none."""

    numbers: Ints
    attributes: AttributeTable


@dataclass(frozen=True)
class Inputs:
    """What a model reads beside ids: attributes of users and items; what users did before; labels of earlier
    ratings, by which it adapts to a user; the graph of training positives."""

    attributes: bool = False
    history: bool = False
    labels: bool = False
    graph: bool = False


@dataclass(frozen=True)
class Layout:
    """How the table's rows are laid out: the fields' blocks, one after another behind the padding row."""

    fields: tuple[FieldCode, ...]

    @property
    def n_rows(self) -> int:
        return self.fields[-1].end

    def field_numbers(self, side: Literal["user", "item"]) -> list[int]:
        """The field numbers of a side: users with context, or items. Of a role of the history, all that it holds counts as
        its first field."""
        if side == "item":
            return [number for number, code in enumerate(self.fields) if code.part == "item"]
        of_users = ("user", "context")
        return [
            number
            for number, code in enumerate(self.fields)
            if code.part in of_users or (code.part in ROLES and code.kind == "id")
        ]

    def id_field(self, part: Literal["user", "item"]) -> FieldCode:
        return next(code for code in self.fields if code.part == part and code.kind == "id")

    def field_of_row(self) -> npt.NDArray[np.int16]:
        """The field number of every row."""
        sizes = [self.fields[0].offset, *(code.end - code.offset for code in self.fields)]
        return np.repeat(np.array([0, *range(len(self.fields))], np.int16), sizes)


@dataclass(frozen=True)
class HistorySpec:
    r"""How a user's earlier items stand on the user's side of a score: as attributes in some roles, each with rows of its own.

    last: the latest item, at weight 1. recent: weights that halve every `half_life` rows. past: all at one weight. Both over
    the latest `length` rows, and divided by the root of their summed squares; an item's attributes share its weight:

    .. math:: p_u = \sum_{role} \sum_j w_{role,j} \sum_{a \in j} x_a \, y_{role,a}

    block: rows of the items' fields; an item's row in role number r lies (r + 1) * block behind it.
    with_own: an attribute stands in a role by its own row, too, beside the one that it has there.
    newcomer: the row of users who have none of their own, and the row that stands there instead for those of them of whom
    nothing is known; None where it stays.
    """

    roles: tuple[Role, ...]
    half_life: float
    length: int
    block: int
    with_own: bool = False
    newcomer: tuple[int, int] | None = None

    def shift(self, role: int) -> int:
        return (role + 1) * self.block

    def user_attributes(self, users: AttributeTable, is_newcomer: npt.NDArray[np.bool_]) -> AttributeTable:
        """Users' attributes, where some users are newcomers: of these no history says anything. In training they are those
        whose history was hidden, so that what all choose is learned; users' first rows may lie long ago."""
        if self.newcomer is None or not is_newcomer.any():
            return users
        unknown, newcomer = self.newcomer
        ids = np.array(users.ids)
        ids[:, 0] = np.where(is_newcomer & (ids[:, 0] == unknown), newcomer, ids[:, 0])
        return AttributeTable(ids, users.values)


@dataclass(frozen=True)
class Positives:
    """The training positives as entity numbers."""

    users: Ints
    items: Ints
    n_users: int
    n_items: int


@dataclass(frozen=True)
class Ratings:
    """Ratings as entity numbers with their labels."""

    users: Ints
    items: Ints
    labels: Floats


def _no_batches() -> Any:
    raise OptionError("there are no training batches here: these inputs are for scoring alone.")


@dataclass(frozen=True)
class FitInputs:
    """What one fit reads; after loading, what scoring reads beside the weights.

    label_scale: centre and spread of the training labels, in which batches give labels and scores are given back.
    history: how what users did before is read; None where it is not.
    """

    layout: Layout
    encoded: Encoded
    positives: Callable[[], Positives]
    ratings: Callable[[], Ratings]
    batches: Callable[[], Any] = _no_batches
    label_scale: tuple[float, float] = (0.0, 1.0)
    history: HistorySpec | None = None

    @property
    def items(self) -> ItemSide:
        return ItemSide(np.arange(len(self.encoded.item), dtype=np.int32), self.encoded.item)


@dataclass(frozen=True)
class FitReport:
    """How a fit went. curve: one entry an epoch; protocol: what validation's figures were measured by; diverged: why training
    stopped before its time; interrupted: somebody stopped it."""

    best_epoch: int = 0
    validation: dict[str, float] = field(default_factory=dict)
    protocol: str = ""
    curve: list[dict[str, Any]] = field(default_factory=list)
    diverged: str = ""
    interrupted: bool = False


class Plan(Protocol):
    """What fitting offers to a model: training with validation, early stopping and checkpoints."""

    def train(self, model: Any, inputs: FitInputs) -> FitReport:
        """By gradient steps over batches (GradientModel)."""

    def train_episodes(self, model: Any, inputs: FitInputs) -> FitReport:
        """User by user (EpisodicModel)."""


class Model(ABC):
    """Scores of users and items; higher is better.

    The arguments of __init__ are the model's settings; an argument `layout` is handed the table's layout instead.
    """

    tasks: ClassVar[frozenset[str]] = frozenset(TASKS)
    inputs: ClassVar[Inputs] = Inputs()
    reads_users: ClassVar[bool] = True  # otherwise a score is the same for all users
    learns_in_epochs: ClassVar[bool] = False  # validation chooses how many
    caches_items: ClassVar[bool] = False  # score_all keeps the items' half of a score, which makes it cheaper than score_pairs
    earlier_by_own_rows: ClassVar[bool] = False  # an earlier item counts by its own rows, too, beside those of its role
    shares_negatives: ClassVar[bool] = False  # a softmax can be over items that all rows of a step share
    reads_sequences: ClassVar[bool] = (
        False  # it is trained on users' sequences, the latest `length` (a setting) of their events
    )
    scores_in_threads: ClassVar[bool] = False  # score_all(users, items, out) may be called by several threads at the same time

    settings: dict[str, Any]  # as this instance was made

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        if missing:
            raise OptionError(f"{cls.__name__} has no {missing[0]}{_how_to_write(missing[0])}; see docs/add-a-model.md.")
        instance = super().__new__(cls)
        if args or kwargs:
            given = inspect.signature(cls.__init__).bind(instance, *args, **kwargs).arguments
            given.pop(next(iter(given)))
            given.pop("layout", None)
            declared = cls.declared()
            convert_all(declared, {name: value for name, value in given.items() if name in declared})
            object.__setattr__(instance, "settings", dict(given))
        else:
            object.__setattr__(instance, "settings", {})
        return instance

    @property
    def reads_history(self) -> bool:
        """Whether what users did before counts in their scores."""
        return False

    @property
    def item_vector_width(self) -> int | None:
        """Numbers that retrieval holds of each item: its vector and, where there is one, its own term. None where a score is
        no inner product of two sides."""
        return None

    @property
    def folds_in(self) -> bool:
        """Whether score_all fits a row to the history of a user of number -1, who must then be asked for alone."""
        return False

    @classmethod
    def declared(cls) -> dict[str, Declared]:
        """The model's own settings."""
        return declared_settings(cls, leave_out=("layout",))

    @classmethod
    def needs_order(cls, options: Mapping[str, Any]) -> str:
        """By which of its settings it matters what came before what, in words; '' where it does not."""
        return ""

    @classmethod
    def newcomers(cls) -> str:
        """What it goes by for users and items that training never met."""
        return "attributes" if cls.inputs.attributes else "the same for all"

    @abstractmethod
    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport: ...

    def attach(self, inputs: FitInputs) -> None:  # noqa: B027 - a model that reads nothing more keeps this one
        """Keep what scoring reads beside the weights: after loading, and at the beginning of a fit."""

    def over(self, items: ItemSide) -> Model:
        """The same model, scoring these items instead; items are then named by their place among them."""
        raise NotSupportedError(f"{type(self).__name__} scores the items it was fitted with alone.")

    def without_user(self, number: int, rows: tuple[int, ...], inputs: FitInputs) -> Model:
        """This model without what it holds of a user; inputs: of the data without them.

        number: as they were counted; rows: those of the table that stand for their id and for values that nobody else has.
        """
        model = copy.deepcopy(self)
        model.attach(inputs)
        return model

    def grow_from(self, earlier: Model, origins: npt.NDArray[np.int64], inputs: FitInputs) -> None:
        """Make of this fresh model the earlier one over more data, to be trained on.

        origins: (n_rows,) the row of the earlier table that each row begins as; inputs: of all data.
        """
        raise NotSupportedError(f"'{type(self).__name__}' cannot be updated; train it anew on all data.")

    @abstractmethod
    def score_all(self, users: UserSide, items: Ints) -> Floats:
        """(N,), (I,) -> (N, I): every user against each of the items."""

    def score_pairs(self, users: UserSide, items: Ints) -> Floats:
        """(N,), (N, G) -> (N, G): each user against their own items."""
        result = np.empty(items.shape, np.float32)
        for start in range(0, len(users), _PAIRS_PER_BLOCK):
            block = slice(start, start + _PAIRS_PER_BLOCK)
            distinct = np.unique(items[block]).astype(np.int32)
            scores = self.score_all(users.slice(start, start + _PAIRS_PER_BLOCK), distinct)
            result[block] = np.take_along_axis(scores, np.searchsorted(distinct, items[block]), axis=1)
        return result

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Everything that scoring needs, to be saved."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Tensor]) -> Any: ...

    def explain(self, user: UserSide, item: int) -> Terms:
        """The exact terms of one score."""
        raise NotSupportedError(f"'{type(self).__name__}' cannot explain a score: it is no sum over pairs of attributes.")

    def strongest_earlier(self, users: UserSide, items: Ints) -> Ints:
        """(N,), (N, G) -> (N, G): which of a user's earlier items adds most to each score, -1 where none adds anything."""
        raise NotSupportedError(f"'{type(self).__name__}' has no sum over earlier items.")

    def positions(self, table: AttributeTable) -> Tensor:
        """Where users or items stand in the learned metric, (N, D): near means alike."""
        raise NotSupportedError(f"'{type(self).__name__}' has no metric: its score is no sum over pairs of attributes.")

    def metric(self) -> tuple[Tensor, Tensor]:
        """The matrix M of a Mahalanobis distance (K, K), and the factors of each row that it measures (n, K)."""
        raise NotSupportedError(f"'{type(self).__name__}' has no matrix M; gml-fm-md has one, and gml-fm with a rank.")

    def kernel_spec(self) -> KernelSpec | None:
        """What a compiled engine needs to train this model; None where only the eager engine can."""
        return None


def _how_to_write(method: str) -> str:
    calls = {
        "scores": "(self, rows, user_side, item_side), which returns (B, G) scores",
        "row_width": ", the number of parameters in a row of the table",
        "pair_parts": "(self, left, right), which returns what each pair adds, (A, B), and its distance or None",
        "fit": "(self, inputs, plan), which learns from inputs.positives() and returns a FitReport",
        "score_all": "(self, users, items), which returns (N, I) scores",
    }
    return calls.get(method, "")
