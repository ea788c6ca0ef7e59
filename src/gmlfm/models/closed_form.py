"""Models that are fitted at once from the training positives, without gradients."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.base import FitInputs, FitReport, Floats, Inputs, Ints, ItemSide, Model, Plan, UserSide
from gmlfm.models.terms import EarlierTerms, Terms


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
    """Scores that the items of a user's history decide: write `learn` and `score_histories`.

    X is users x items, 1 where there is a training positive. A user without a history is offered what is popular.
    adds_up: a score is the sum of the scores of histories of one item each, so that it can be explained.
    """

    inputs: ClassVar[Inputs] = Inputs(history=True)
    adds_up: ClassVar[bool] = False

    def __init__(self) -> None:
        self._history = sparse.csr_matrix((0, 0), dtype=np.float32)

    @classmethod
    def newcomers(cls) -> str:
        return "a history given with the question"

    @property
    def reads_history(self) -> bool:
        return True

    @abstractmethod
    def learn(self, history: Any) -> None:
        """history: X, a sparse (users, items) matrix."""

    @abstractmethod
    def score_histories(self, histories: Any, items: Ints) -> Floats:
        """histories: a sparse (N, items of the catalogue) matrix -> (N, len(items))."""

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
        earlier, target = self._histories_of(user).indices.astype(np.int32), np.array([item], np.int32)
        weight = self._by_earlier(earlier, target).astype(np.float64)
        n, zeros, ones = len(earlier), np.zeros(len(earlier)), np.ones(len(earlier), np.float32)
        added = EarlierTerms(earlier, ["past"] * n, ones, zeros.astype(np.int64), ones, zeros, weight, None)
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
                added = self._by_earlier(earlier, items[user, chosen])
                result[user, chosen] = np.where(added.max(0) > 0, earlier[added.argmax(0)], -1)
        return result

    def _by_earlier(self, earlier: Ints, items: Ints) -> Floats:
        """What each item of a history adds to each score: (E, len(items))."""
        ones, starts = np.ones(len(earlier), np.float32), np.arange(len(earlier) + 1)
        singles = sparse.csr_matrix((ones, earlier, starts), shape=(len(earlier), self._history.shape[1]))
        return self.score_histories(singles, items)

    def _popularity(self, items: Ints) -> Floats:
        counts = np.asarray(self._history.sum(axis=0)).ravel()[items]
        return np.asarray(counts / max(float(self._history.shape[0]), 1.0), np.float32)

    def _histories_of(self, users: UserSide) -> Any:
        """(N, items): 1 where a user had the item, by the history that came with them or by training."""
        if users.history is None:
            is_known = users.numbers >= 0
            histories = self._history[np.where(is_known, users.numbers, 0)].multiply(is_known[:, None]).tocsr()
            histories.eliminate_zeros()
            return histories
        history, n_items = users.history, self._history.shape[1]
        is_known = history.items < n_items  # items that came after the fit say nothing here
        rows = np.repeat(np.arange(len(users)), history.lengths)[is_known]
        ones = np.ones(len(rows), np.float32)
        histories = sparse.csr_matrix((ones, (rows, history.items[is_known])), shape=(len(users), n_items))
        histories.data[:] = 1.0  # an item that occurs twice was added up
        return histories

    def state_dict(self) -> dict[str, Tensor]:
        shape = torch.tensor(self._history.shape, dtype=torch.int64)
        starts, items = self._history.indptr.astype(np.int64), self._history.indices.astype(np.int32)
        return {"shape": shape, "starts": torch.from_numpy(starts), "items": torch.from_numpy(items)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        items, starts = state["items"].numpy(), state["starts"].numpy()
        shape = tuple(int(size) for size in state["shape"])
        self._history = saved_matrix(np.ones(len(items), np.float32), items, starts, shape)


def saved_matrix(values: Any, items: Any, starts: Any, shape: tuple[int, ...]) -> Any:
    """A sparse matrix from a file. scipy's compiled parts trust indices, so that a wrong one would end the process."""
    matrix = sparse.csr_matrix((values, items, starts), shape=shape)
    matrix.check_format(full_check=True)
    return matrix
