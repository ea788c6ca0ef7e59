r"""EASE, the linear autoencoder with a zero diagonal, in closed form.

.. math:: P = (X^\top X + \lambda I)^{-1}, \quad B_{ij} = -P_{ij} / P_{jj} \ (i \ne j), \quad s(u, \cdot) = w_u B

w: what users did before the scored row, 1 for each item or by recency (`half_life`); see `HistoryModel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from gmlfm.errors import DataError
from gmlfm.models.base import Floats, Ints
from gmlfm.models.closed_form import HalfLife, HistoryModel
from gmlfm.models.settings import BEFORE, Real, Setting, UserRows
from gmlfm.storage import free_memory

_LARGEST_IN_DOUBLE = 10_000


class EASE(HistoryModel):
    r"""O(m^3) time and m^2 memory, where m is the smaller of users and items.

    With fewer users, by the identity P = (I - X^T G X) / lambda with G = (X X^T + lambda I)^{-1}: the same scores.
    """

    adds_up = True

    def __init__(
        self,
        l2: Annotated[float, Setting("lambda, the L2 of B", above=0, search=Real(1.0, 10_000.0))] = 500.0,
        half_life: HalfLife = 0.0,
        user_rows: UserRows = BEFORE,
    ) -> None:
        super().__init__(half_life, user_rows)
        self.l2 = l2

    def learn(self, history: Any) -> None:
        n_users, n_items = history.shape
        size = min(n_users, n_items)
        _refuse_too_large(size)
        self._by_users = n_users < n_items
        gram = history @ history.T if self._by_users else history.T @ history
        matrix = torch.from_numpy(gram.toarray().astype(np.float64 if size <= _LARGEST_IN_DOUBLE else np.float32))
        matrix.diagonal().add_(self.l2)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        if self._by_users:
            projection = history.T.tocsr() @ inverse.numpy()  # X^T G, items x users
            diagonal = np.asarray(history.T.multiply(projection).sum(axis=1)).ravel()
            self._matrix = inverse.numpy().astype(np.float32)
            self._diagonal = ((1.0 - diagonal) / self.l2).astype(np.float32)
        else:
            self._diagonal = inverse.diagonal().numpy().astype(np.float32)
            inverse.div_(-inverse.diagonal().clone().unsqueeze(0)).fill_diagonal_(0.0)
            self._matrix = inverse.numpy().astype(np.float32)

    def score_histories(self, histories: Any, items: Ints) -> Floats:
        if not self._by_users:
            scores: Floats = np.asarray(histories @ self._matrix[:, items], dtype=np.float32)
            return scores
        # w B = w - (w P) / diag(P), and w P = (w - w X^T G X) / lambda; on the diagonal B is 0.
        chosen = histories[:, items].toarray()
        through_users = (histories @ self._history.T) @ self._matrix
        projected = (chosen - np.asarray(through_users @ self._history[:, items])) / self.l2
        return np.asarray(chosen - projected / self._diagonal[items], dtype=np.float32)

    def state_dict(self) -> dict[str, Tensor]:
        arrays = {"matrix": self._matrix, "diagonal": self._diagonal}
        return {**super().state_dict(), **{name: torch.from_numpy(array) for name, array in arrays.items()}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self._matrix, self._diagonal = state["matrix"].numpy(), state["diagonal"].numpy()
        n_users, n_items = self._history.shape
        self._by_users, size = n_users < n_items, min(n_users, n_items)
        if self._matrix.shape != (size, size) or self._diagonal.shape != (n_items,):
            raise ValueError(f"their matrix has the shape {self._matrix.shape}; expected {(size, size)}")


def _refuse_too_large(size: int) -> None:
    needed = 3 * size * size * (8 if size <= _LARGEST_IN_DOUBLE else 4)
    free = free_memory()
    if free is not None and needed > 0.8 * free:
        raise DataError(
            f"ease inverts a matrix of {size:,} x {size:,} (the smaller of users and items), which takes "
            f"{needed / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free. Use item-knn, or fewer items."
        )
