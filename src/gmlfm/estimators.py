"""GML-FM in scikit-learn's manners: a factorization machine takes any vector, dense or sparse, with real values.

    GMLFMRegressor(k=16).fit(X, y).predict(X)

Needs scikit-learn: pip install gmlfm[sklearn].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from gmlfm.data.attributes import PADDING
from gmlfm.forking import refuse_after_fork
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.gradient import Attributes
from gmlfm.models.settings import convert_all, declared_settings
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.trainer import DivergedError, NullObserver

Floats = npt.NDArray[np.float32]


class _Vectors:
    """Rows of a matrix as batches: attribute j + 1 with its value x; row 0 of the table is padding."""

    def __init__(self, matrix: sparse.csr_matrix, targets: Floats, batch_size: int, seed: int) -> None:
        self._ids, self._x = _padded(matrix)
        self._targets, self._batch_size, self._seed = targets, batch_size, seed

    @property
    def n_instances(self) -> int:
        return len(self._targets)

    @property
    def groups_per_step(self) -> int:
        return self._batch_size

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self._targets) // self._batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        order = np.random.default_rng([self._seed, 20, number]).permutation(len(self._targets))
        for start in range(0, len(order), self._batch_size):
            chosen = order[start : start + self._batch_size]
            empty = np.zeros((len(chosen), 0))
            ids, x = self._ids[chosen, None], self._x[chosen, None]
            labels = self._targets[chosen, None]
            yield Batch(empty.astype(np.int32), empty.astype(np.float32), ids, x, labels, None)

    def cold_start_sampler(self, number: int) -> None:
        """A matrix has no ids that could be hidden."""


class _Machine:
    """A trained GML-FM over the columns of a matrix."""

    def __init__(self, matrix: sparse.csr_matrix, targets: Floats, loss: str, options: dict[str, Any], seed: int) -> None:
        # One scale a column, so that a column in the thousands does not drown a column in hundredths; zeros stay zeros.
        largest = abs(matrix).max(axis=0).toarray().ravel()
        self.scale = np.where(largest > 0, largest, 1.0)
        torch.manual_seed(seed)
        model = GMLFM(options["k"], layers=options["layers"], unit=True, start="orthogonal", h_start="half", v_scale=0.1)
        given = {name: options[name] for name in ("lr", "epochs", "weight_decay")}
        training = TrainingOptions(**convert_all(declared_settings(TrainingOptions), given), loss=loss, seed=seed % 100_000)
        batches = _Vectors(self._scaled(matrix), targets, options["batch_size"], seed)
        trainer = RowTrainer(model, matrix.shape[1] + 1, training, batches)
        trainer.fit(None, "", NullObserver())
        if trainer.diverged:
            raise DivergedError(trainer.diverged)
        self.model, self.table = trainer.model.eval(), trainer.table

    def scores(self, matrix: sparse.csr_matrix) -> npt.NDArray[np.float64]:
        ids, x = _padded(self._scaled(matrix))
        with torch.no_grad():
            attributes = Attributes(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(x))
            scores: npt.NDArray[np.float64] = self.model(self.table, attributes).double().numpy()
        return scores

    def _scaled(self, matrix: sparse.csr_matrix) -> sparse.csr_matrix:
        return sparse.csr_matrix(matrix @ sparse.diags(1.0 / self.scale))


class _Estimator(BaseEstimator):  # type: ignore[misc]
    def __init__(
        self,
        k: int = 16,
        layers: int = 1,
        lr: float = 0.02,
        epochs: int = 100,
        batch_size: int = 256,
        weight_decay: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.layers = layers
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _machine(self, matrix: Any, targets: Any, loss: str) -> _Machine:
        refuse_after_fork()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return _Machine(
            sparse.csr_matrix(matrix, dtype=np.float64), np.asarray(targets, np.float32), loss, self.get_params(), seed
        )

    def _matrix(self, X: Any) -> sparse.csr_matrix:
        check_is_fitted(self)
        return sparse.csr_matrix(validate_data(self, X, accept_sparse="csr", reset=False, dtype=np.float64))


class GMLFMRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Squared loss on standardised targets."""

    def fit(self, X: Any, y: Any) -> GMLFMRegressor:
        checked, targets = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        spread = float(np.std(targets))
        self.mean_, self.spread_ = float(np.mean(targets)), spread if spread > 0 else 1.0
        self.machine_ = self._machine(checked, (targets - self.mean_) / self.spread_, "squared")
        self.n_iter_ = self.epochs
        return self

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        matrix = self._matrix(X)
        return self.mean_ + self.spread_ * self.machine_.scores(matrix)


class GMLFMClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Logistic loss; several classes one against the rest."""

    def fit(self, X: Any, y: Any) -> GMLFMClassifier:
        checked, targets = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(targets)
        self.classes_, codes = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"GMLFMClassifier needs two classes or more; the data have one class, {self.classes_[0]!r}.")
        class_codes = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        self.machines_ = [self._machine(checked, np.where(codes == code, 1.0, -1.0), "logistic") for code in class_codes]
        self.n_iter_ = self.epochs
        return self

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        matrix = self._matrix(X)
        scores = np.column_stack([machine.scores(matrix) for machine in self.machines_])
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if len(self.classes_) == 2 else scores.argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[codes]
        return labels

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        chances = 1.0 / (1.0 + np.exp(-np.clip(self.decision_function(X), -500, 500)))
        if len(self.classes_) == 2:
            return np.column_stack([1.0 - chances, chances])
        shares: npt.NDArray[np.float64] = chances / np.maximum(chances.sum(axis=1, keepdims=True), 1e-12)
        return shares


def _padded(matrix: sparse.csr_matrix) -> tuple[npt.NDArray[np.int32], Floats]:
    lengths = np.diff(matrix.indptr)
    width = max(int(lengths.max(initial=0)), 1)
    ids = np.full((matrix.shape[0], width), PADDING, np.int32)
    x = np.zeros((matrix.shape[0], width), np.float32)
    row = np.repeat(np.arange(len(lengths)), lengths)
    column = np.arange(len(row)) - np.repeat(matrix.indptr[:-1], lengths)
    ids[row, column], x[row, column] = matrix.indices + 1, matrix.data
    return ids, x
