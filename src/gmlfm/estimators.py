"""GML-FM in scikit-learn's manners: a factorization machine takes any vector, dense or sparse, with real values.

    GMLFMRegressor().fit(X, y).predict(X)

Columns and target are brought to one scale inside, and training stops when rows that are held out say so.
Needs scikit-learn: pip install gmlfm[sklearn].
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from gmlfm.data.attributes import PADDING
from gmlfm.errors import OptionError
from gmlfm.forking import refuse_after_fork
from gmlfm.models.base import Model
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.gradient import Attributes
from gmlfm.models.settings import convert_all, declared_settings
from gmlfm.training.options import TrainingOptions
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.trainer import NullObserver

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
_STEPS_PER_EPOCH, _SMALLEST_BATCH, _LARGEST_BATCH = 20, 16, 256  # of batch_size auto
_ENOUGH_HELD_OUT, _MOST_HELD_OUT = 20, 0.25  # rows, and share of a small table, by which to stop
_LARGEST_X = 10.0  # spreads from the centre
_V_SCALE = 0.01  # small: the linear terms, which start at 0, are learned before the pairs


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


class _Columns:
    """Brings columns to one scale, so that one in the thousands does not drown one in hundredths.

    A column with numbers in more than half of its rows is standardised. Others are sparse, or tell that something is there, and
    are divided by the root of the mean square of what is not zero: zeros stay zeros.
    """

    def __init__(self, matrix: sparse.csr_matrix) -> None:
        n_rows, counts = matrix.shape[0], np.diff(sparse.csc_matrix(matrix).indptr)
        sums, squares = (np.asarray(power.sum(axis=0)).ravel() for power in (matrix, matrix.multiply(matrix)))
        tells_presence = squares * counts - sums**2 <= 1e-12 * squares * counts  # what is not zero is one number
        self.is_number = (counts > n_rows / 2) & ~tells_presence
        self.centre = np.where(self.is_number, sums / n_rows, 0.0)
        mean_squares = squares / np.where(self.is_number, n_rows, np.maximum(counts, 1))
        spread = np.sqrt(np.maximum(mean_squares - self.centre**2, 0.0))
        self.spread = np.where(spread > 1e-12 * np.maximum(1.0, np.abs(self.centre)), spread, 1.0)

    def __call__(self, matrix: sparse.csr_matrix) -> sparse.csr_matrix:
        numbers, places = self.is_number, np.flatnonzero(self.is_number)
        x = (matrix[:, numbers].toarray() - self.centre[numbers]) / self.spread[numbers]
        into_place = sparse.csr_matrix((np.ones(len(places)), (np.arange(len(places)), places)), (len(places), matrix.shape[1]))
        others = matrix @ sparse.diags(np.where(numbers, 0.0, 1.0 / self.spread))
        return sparse.csr_matrix(others + sparse.csr_matrix(np.clip(x, -_LARGEST_X, _LARGEST_X)) @ into_place)


class _Trainer(RowTrainer):
    """The start is known of one small batch, which may well do worse while the others do better."""

    most_above_start = 4.0


class _Machine:
    """A trained GML-FM over the columns of a matrix.

    held_out: a matrix and its targets, by which to stop; without them all epochs are trained.
    """

    def __init__(
        self,
        matrix: sparse.csr_matrix,
        targets: Floats,
        held_out: tuple[sparse.csr_matrix, Floats] | None,
        loss: str,
        options: Mapping[str, Any],
        seed: int,
    ) -> None:
        self.columns = _Columns(matrix)
        torch.manual_seed(seed)
        model = GMLFM(options["k"], layers=options["layers"], unit=True, start="orthogonal", h_start="half", v_scale=_V_SCALE)
        given = {name: options[name] for name in ("lr", "epochs", "weight_decay")} | {"patience": options["n_iter_no_change"]}
        training = TrainingOptions(**convert_all(declared_settings(TrainingOptions), given), loss=loss, seed=seed % 100_000)
        batches = _Vectors(self.columns(matrix), targets, _batch_size(options["batch_size"], len(targets)), seed)
        trainer = _Trainer(model, matrix.shape[1] + 1, training, batches)
        self.model, self.table = trainer.model, trainer.table
        trainer.fit(None if held_out is None else _HeldOutLoss(self, *held_out, loss, options["tol"]), "-loss", NullObserver())
        if trainer.diverged and held_out is None:  # otherwise the rows held out chose an epoch before
            warnings.warn(trainer.diverged, ConvergenceWarning, stacklevel=4)
        self.model, self.table, self.n_epochs = trainer.model.eval(), trainer.table, trainer.epoch

    def scores(self, matrix: sparse.csr_matrix) -> npt.NDArray[np.float64]:
        return self.scores_of(*_padded(self.columns(matrix)))

    def scores_of(self, ids: npt.NDArray[np.int32], x: Floats) -> npt.NDArray[np.float64]:
        with torch.no_grad():
            attributes = Attributes(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(x))
            scores: npt.NDArray[np.float64] = self.model(self.table, attributes).double().numpy()
        return scores


class _HeldOutLoss:
    """What an epoch is judged by; a gain below `tol` is none."""

    def __init__(self, machine: _Machine, matrix: sparse.csr_matrix, targets: Floats, loss: str, tol: float) -> None:
        self._machine, self._rows, self._targets = machine, _padded(machine.columns(matrix)), targets
        self._is_squared, self._tol, self._best = loss == "squared", tol, np.inf

    def __call__(self, model: Model) -> dict[str, float]:
        scores = self._machine.scores_of(*self._rows)
        losses = (scores - self._targets) ** 2 if self._is_squared else np.logaddexp(0.0, -scores * self._targets)
        loss = float(losses.mean())
        if loss > self._best - self._tol:
            return {"loss": max(loss, self._best)}
        self._best = loss
        return {"loss": loss}


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """k: factors of each column; layers: of the learned metric; epochs: the most there may be; batch_size: auto is a twentieth
    of the rows, 16 to 256; weight_decay: decoupled, of the rows of a step.

    early_stopping: train without `validation_fraction` of the rows (20 of a small table, a quarter at most) until their loss
    has not fallen by `tol` for `n_iter_no_change` epochs, and keep the best epoch. n_iter_: the epochs that were trained.
    """

    def __init__(
        self,
        k: int = 16,
        layers: int = 1,
        lr: float = 0.02,
        epochs: int = 200,
        batch_size: int | Literal["auto"] = "auto",
        weight_decay: float = 0.3,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.layers = layers
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _machine(self, matrix: Any, targets: Any, loss: str) -> _Machine:
        refuse_after_fork()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows, values = sparse.csr_matrix(matrix, dtype=np.float64), np.asarray(targets, np.float32)
        train, held_out = self._held_out(values, seed, by_class=loss == "logistic")
        stopped_by = (rows[held_out], values[held_out]) if len(held_out) else None
        return _Machine(rows[train], values[train], stopped_by, loss, self.get_params(), seed)

    def _held_out(self, targets: Floats, seed: int, *, by_class: bool) -> tuple[Rows, Rows]:
        """The rows to train on, and those that tell when to stop, with classes in the same shares."""
        fraction, n = self.validation_fraction, len(targets)
        if not 0 < fraction < 1:
            raise OptionError(f"validation_fraction is {fraction}; expected a number above 0 and below 1.")
        if self.tol < 0:
            raise OptionError(f"tol is {self.tol}; expected 0 or more.")
        n_held_out = max(round(fraction * n), min(int(_MOST_HELD_OUT * n), _ENOUGH_HELD_OUT))
        if not self.early_stopping or n_held_out < 2:
            return np.arange(n), np.arange(0)
        order = np.random.default_rng([seed, 21]).permutation(n)
        if by_class:
            order = order[np.argsort(targets[order], kind="stable")]
        is_held_out = np.zeros(n, bool)
        is_held_out[order[np.linspace(0, n - 1, n_held_out).round().astype(np.int64)]] = True
        return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)

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
        self.n_iter_ = self.machine_.n_epochs
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
        self.n_iter_ = max(machine.n_epochs for machine in self.machines_)
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


def _batch_size(given: int | str, n_rows: int) -> int:
    if given == "auto":
        return min(max(n_rows // _STEPS_PER_EPOCH, _SMALLEST_BATCH), _LARGEST_BATCH)
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
        raise OptionError(f"batch_size is {given!r}; expected 'auto', or a whole number of 1 or more.")
    return int(given)


def _padded(matrix: sparse.csr_matrix) -> tuple[npt.NDArray[np.int32], Floats]:
    lengths = np.diff(matrix.indptr)
    width = max(int(lengths.max(initial=0)), 1)
    ids = np.full((matrix.shape[0], width), PADDING, np.int32)
    x = np.zeros((matrix.shape[0], width), np.float32)
    row = np.repeat(np.arange(len(lengths)), lengths)
    column = np.arange(len(row)) - np.repeat(matrix.indptr[:-1], lengths)
    ids[row, column], x[row, column] = matrix.indices + 1, matrix.data
    return ids, x
