"""The table of attribute rows: distinct rows in, row updates out. The cost of a step is free of the table's size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.errors import OptionError, did_you_mean


class Distinct:
    """Finds the distinct rows of a batch in time proportional to the batch, with one number a table row kept for it."""

    def __init__(self, n_rows: int) -> None:
        self._place = np.zeros(n_rows, np.int32)

    def __call__(self, ids: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The distinct ids, in the order of their last places, and the place of each id among them."""
        places = np.arange(len(ids), dtype=np.int32)
        self._place[ids] = places
        distinct = ids[self._place[ids] == places]
        self._place[distinct] = places[: len(distinct)]
        return distinct, self._place[ids]


class AllRows:
    """Instead of the distinct rows all of them, in order, for a model that needs the whole table."""

    def __init__(self, n_rows: int) -> None:
        self._rows = np.arange(n_rows, dtype=np.int32)

    def __call__(self, ids: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        return self._rows, ids


class RowOptimiser(ABC):
    """Updates the given rows of a table from their gradients. Weight decay is decoupled and reaches only these rows."""

    def __init__(self, table: Tensor, lr: float, weight_decay: float = 0.0) -> None:
        self.table, self.lr, self.weight_decay = table, lr, weight_decay

    @torch.no_grad()
    def step(self, rows: Tensor, values: Tensor, gradient: Tensor) -> None:
        """rows: (U,) int64, distinct; values, gradient: (U, width), the rows as they were gathered."""
        change = self.change(rows, gradient)
        decayed = values * (1.0 - self.lr * self.weight_decay) if self.weight_decay else values
        self.table.index_copy_(0, rows, decayed - self.lr * change)

    @abstractmethod
    def change(self, rows: Tensor, gradient: Tensor) -> Tensor:
        """The direction to go against, per unit of learning rate; brings the rows' state up to date."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint must hold."""


def zeros_beside(table: Tensor) -> Tensor:
    """As torch.zeros_like. Large arrays of NumPy's lie in large pages of memory where the system has them, so that rows that
    lie anywhere are found at once."""
    if table.device.type != "cpu":
        return torch.zeros_like(table)
    return torch.from_numpy(np.zeros(tuple(table.shape), np.dtype(str(table.dtype).removeprefix("torch."))))


class RowAdam(RowOptimiser):
    """Lazy Adam.

    Unlike dense Adam, the moments of a row that a batch does not touch stay as they are (they do not decay), the row itself
    does not move, and the bias correction counts the row's own updates: the first update of a rare row is as large as that of
    a frequent one, whenever it comes.
    """

    def __init__(self, table: Tensor, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(table, lr, weight_decay)
        self.first_moment, self.second_moment = zeros_beside(table), zeros_beside(table)
        self.count = torch.zeros(len(table), 1, dtype=table.dtype, device=table.device)

    def change(self, rows: Tensor, gradient: Tensor) -> Tensor:
        first_moment = self.first_moment[rows].lerp_(gradient, 0.1)
        second_moment = self.second_moment[rows].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        count = self.count[rows].add_(1.0)
        self.first_moment.index_copy_(0, rows, first_moment)
        self.second_moment.index_copy_(0, rows, second_moment)
        self.count.index_copy_(0, rows, count)
        scale = (second_moment / (1.0 - 0.999**count)).sqrt_().add_(1e-8)
        return first_moment / (1.0 - 0.9**count) / scale

    def state(self) -> dict[str, Tensor]:
        return {"first": self.first_moment, "second": self.second_moment, "count": self.count}


class RowAdagrad(RowOptimiser):
    """The step of a number shrinks with the sum of its own squared gradients."""

    def __init__(self, table: Tensor, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(table, lr, weight_decay)
        self.squares = torch.zeros_like(table)

    def change(self, rows: Tensor, gradient: Tensor) -> Tensor:
        squares = self.squares[rows].addcmul_(gradient, gradient)
        self.squares.index_copy_(0, rows, squares)
        return gradient / squares.sqrt().add_(1e-10)

    def state(self) -> dict[str, Tensor]:
        return {"squares": self.squares}


class RowSGD(RowOptimiser):
    def change(self, rows: Tensor, gradient: Tensor) -> Tensor:
        return gradient

    def state(self) -> dict[str, Tensor]:
        return {}


ROW_OPTIMISERS: dict[str, type[RowOptimiser]] = {"adam": RowAdam, "adagrad": RowAdagrad, "sgd": RowSGD}
DENSE_OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adagrad": torch.optim.Adagrad,
    "sgd": torch.optim.SGD,
}


def register_optimiser(
    name: str, row_optimiser: type[RowOptimiser], dense_optimiser: Callable[..., torch.optim.Optimizer]
) -> None:
    """Make an optimiser known by name: one for the table's rows, and one (parameters, lr=...) for the dense parameters."""
    if name in ROW_OPTIMISERS:
        raise OptionError(
            f"an optimiser '{name}' is registered already; choose another name: "
            f"register_optimiser('my-{name}', MyRows, torch.optim.SGD)."
        )
    ROW_OPTIMISERS[name], DENSE_OPTIMISERS[name] = row_optimiser, dense_optimiser


def row_optimiser(name: str, table: Tensor, lr: float, weight_decay: float) -> RowOptimiser:
    if name not in ROW_OPTIMISERS:
        raise OptionError(f"optimiser is '{name}'{did_you_mean(name, ROW_OPTIMISERS)}")
    return ROW_OPTIMISERS[name](table, lr, weight_decay)
