"""Models that are fitted at once from the training positives, without gradients."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from gmlfm.data.attributes import Role
from gmlfm.data.histories import History
from gmlfm.errors import OptionError
from gmlfm.models.base import FitInputs, FitReport, Floats, Inputs, Ints, ItemSide, Model, Plan, UserSide
from gmlfm.models.settings import BEFORE, TRAINING, Choice, Setting
from gmlfm.models.terms import EarlierTerms, Terms

HalfLife = Annotated[
    float,
    Setting(
        "rows after which one of a user's rows counts half when scoring; none: all count alike",
        least=0,
        most=1_000_000,
        words={"none": 0},
        search=Choice((0.0, 2.5, 5.0, 10.0, 20.0, 50.0, 100.0)),
    ),
]


class _NoTraining:
    """The plan of a fit that trains nothing."""

    def train(self, model: Any, inputs: FitInputs) -> FitReport:
        raise OptionError(f"{type(model).__name__} is fitted at once; it cannot be trained by steps.")

    train_episodes = train


class ClosedFormModel(Model):
    """Write `fit`, `score_all`, `state_dict` and `load_state_dict`. A user of number -1 is one without training positives."""

    tasks: ClassVar[frozenset[str]] = frozenset({"topn"})

    def over(self, items: ItemSide) -> Model:
        return _Renumbered(self, items.numbers)

    def without_user(self, number: int, rows: tuple[int, ...], inputs: FitInputs) -> Model:
        """Fitted again on the data without the user."""
        model = copy.copy(self)
        model.fit(inputs, _NoTraining())
        return model

    def grow_from(self, earlier: Model, origins: npt.NDArray[np.int64], inputs: FitInputs) -> None:
        """Fitted again, on all data: nothing less gives its weights."""
        self.fit(inputs, _NoTraining())


class _Renumbered(Model):
    """A closed-form model over other items, by the numbers it knows them by; an item that it never met scores 0."""

    def __init__(self, model: Model, numbers: Ints) -> None:
        self._model, self._numbers = model, numbers

    @classmethod
    def declared(cls) -> dict[str, Any]:
        return {}

    @property
    def reads_history(self) -> bool:
        return self._model.reads_history

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        return self._model.fit(inputs, plan)

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        return self._known(self._model.score_all, users, items)

    def score_pairs(self, users: UserSide, items: Ints) -> Floats:
        return self._known(self._model.score_pairs, users, items)

    def _known(self, score: Any, users: UserSide, items: Ints) -> Floats:
        numbers = self._numbers[items]
        return np.where(numbers >= 0, score(users, np.maximum(numbers, 0)), 0.0).astype(np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        return self._model.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._model.load_state_dict(state)


class HistoryModel(ClosedFormModel):
    r"""Scores that the items of a user's history decide: write `learn` and `score_histories`.

    X is users x items, 1 where there is a training positive. A user without a history is offered what is popular.
    adds_up: a score is the sum of the scores of histories of one item each, so that it can be explained.

    It is learned from X and scores w, what users did before the scored row, by recency where `half_life` says so:

    .. math:: w_{uj} = \max_{r \in u,\, j_r = j} 2^{-a_r / \mathit{half\_life}}, \quad
        a_r = |\{s \in u : t_s > t_r\}| \qquad (w_{uj} = 1 \text{ without half\_life})

    A row's age a is the number of the user's later rows, so that rows of one time share an age; the newest have age 0, and an
    item that occurs twice counts by its latest row. Where data have no times, every row is as new as any other: half_life is
    refused. A user of whom nothing is said has the training rows, all alike, as X holds no order.
    user_rows = training: X itself is what a known user is scored by, whatever the row.
    """

    inputs: ClassVar[Inputs] = Inputs(history=True)
    adds_up: ClassVar[bool] = False

    def __init__(self, half_life: float = 0.0, user_rows: str = BEFORE) -> None:
        if half_life and user_rows == TRAINING:
            raise OptionError(
                f"half_life is {half_life:g}, but the training rows as a set have no order; set half_life = none."
            )
        self.half_life, self.user_rows = half_life, user_rows
        self._history = sparse.csr_matrix((0, 0), dtype=np.float32)

    @classmethod
    def newcomers(cls) -> str:
        return "a history given with the question"

    @classmethod
    def needs_order(cls, options: Mapping[str, Any]) -> str:
        half_life = options.get("half_life") or 0.0
        return f"half_life is {half_life:g}" if half_life else ""

    @property
    def reads_history(self) -> bool:
        return self.user_rows == BEFORE

    @abstractmethod
    def learn(self, history: Any) -> None:
        """history: X, a sparse (users, items) matrix."""

    @abstractmethod
    def score_histories(self, histories: Any, items: Ints) -> Floats:
        """histories: a sparse (N, items of the catalogue) matrix, w of its users -> (N, len(items))."""

    def fit(self, inputs: FitInputs, plan: Plan) -> FitReport:
        positives = inputs.positives()
        shape = (positives.n_users, positives.n_items)
        ones = np.ones(len(positives.users), np.float32)
        self._history = sparse.csr_matrix((ones, (positives.users, positives.items)), shape=shape)
        self._history.data[:] = 1.0  # a pair that occurs twice was added up
        self.learn(self._history)
        return FitReport()

    def score_all(self, users: UserSide, items: Ints) -> Floats:
        histories = self._histories_of(users)
        scores = self.score_histories(histories, items)
        is_empty = np.diff(histories.indptr) == 0
        if is_empty.any():
            scores[is_empty] = self._popularity(items)
        return scores

    def explain(self, user: UserSide, item: int) -> Terms:
        if not self.adds_up:
            return super().explain(user, item)
        history, target = self._histories_of(user), np.array([item], np.int32)
        earlier, recency = history.indices.astype(np.int32), history.data.astype(np.float32)
        weight = self._by_earlier(earlier, target).astype(np.float64)
        role: Role = "recent" if self.half_life else "past"
        n, zeros = len(earlier), np.zeros(len(earlier))
        added = EarlierTerms(earlier, [role] * n, recency, zeros.astype(np.int64), recency, zeros, weight, None)
        # Without a history the item's popularity is all there is.
        linear = np.zeros(1) if n else self._popularity(target).astype(np.float64)
        return Terms(np.zeros(1, np.int64), np.ones(1, np.float32), 0.0, linear, np.zeros((1, 1)), None, added if n else None)

    def strongest_earlier(self, users: UserSide, items: Ints) -> Ints:
        if not self.adds_up:
            return super().strongest_earlier(users, items)
        result = np.full(items.shape, -1, np.int32)
        histories = self._histories_of(users)
        for user, (start, stop) in enumerate(pairwise(histories.indptr)):
            earlier, chosen = histories.indices[start:stop].astype(np.int32), np.flatnonzero(items[user] >= 0)
            if len(earlier) and len(chosen):
                added = self._by_earlier(earlier, items[user, chosen]) * histories.data[start:stop, None]
                result[user, chosen] = np.where(added.max(0) > 0, earlier[added.argmax(0)], -1)
        return result

    def _by_earlier(self, earlier: Ints, items: Ints) -> Floats:
        """What each item of a history adds to each score at weight 1: (E, len(items))."""
        ones, starts = np.ones(len(earlier), np.float32), np.arange(len(earlier) + 1)
        singles = sparse.csr_matrix((ones, earlier, starts), shape=(len(earlier), self._history.shape[1]))
        return self.score_histories(singles, items)

    def _popularity(self, items: Ints) -> Floats:
        counts = np.asarray(self._history.sum(axis=0)).ravel()[items]
        return np.asarray(counts / max(float(self._history.shape[0]), 1.0), np.float32)

    def _histories_of(self, users: UserSide) -> Any:
        """(N, items): w, by the history that came with the users or by training."""
        if users.history is None:
            is_known = users.numbers >= 0
            histories = self._history[np.where(is_known, users.numbers, 0)].multiply(is_known[:, None]).tocsr()
            histories.eliminate_zeros()
            return histories
        history, n_items = users.history, self._history.shape[1]
        is_known = history.items < n_items  # items that came after the fit say nothing here
        rows, items = np.repeat(np.arange(len(users)), history.lengths)[is_known], history.items[is_known]
        if not self.half_life:
            histories = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, items)), shape=(len(users), n_items))
            histories.data[:] = 1.0  # an item that occurs twice was added up
            return histories
        return _latest_of_pairs(rows, items, self._recency(history)[is_known], (len(users), n_items))

    def _recency(self, history: History) -> Floats:
        return np.exp2(-history.ages / self.half_life).astype(np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        shape = torch.tensor(self._history.shape, dtype=torch.int64)
        starts, items = self._history.indptr.astype(np.int64), self._history.indices.astype(np.int32)
        return {"shape": shape, "starts": torch.from_numpy(starts), "items": torch.from_numpy(items)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        items, starts = state["items"].numpy(), state["starts"].numpy()
        shape = tuple(int(size) for size in state["shape"])
        self._history = saved_matrix(np.ones(len(items), np.float32), items, starts, shape)


def _latest_of_pairs(rows: Any, items: Ints, weights: Floats, shape: tuple[int, int]) -> Any:
    """A sparse matrix of the largest weight of each (row, item)."""
    order = np.lexsort((weights, items, rows))
    rows, items, weights = rows[order], items[order], weights[order]
    is_last = np.append((np.diff(rows) != 0) | (np.diff(items) != 0), True)[: len(rows)]
    return sparse.csr_matrix((weights[is_last], (rows[is_last], items[is_last])), shape=shape)


def saved_matrix(values: Any, items: Any, starts: Any, shape: tuple[int, ...]) -> Any:
    """A sparse matrix from a file. scipy's compiled parts trust indices, so that a wrong one would end the process."""
    matrix = sparse.csr_matrix((values, items, starts), shape=shape)
    matrix.check_format(full_check=True)
    return matrix
