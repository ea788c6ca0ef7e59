r"""Models without gradients: popularity, item neighbours, EASE. X is users x items, 1 where there is a training positive.

Popularity: score(u, i) = how many training positives item i has.

Item kNN, over the neighbours N(i) that are the `neighbours` most similar items of i:

.. math:: s(u, i) = \sum_{j \in N(i)} X_{uj} \, \frac{(X^\top X)_{ij}}{\|X_i\| \, \|X_j\| + \mathit{shrink}}

EASE, the linear autoencoder with a zero diagonal, in closed form:

.. math:: P = (X^\top X + \lambda I)^{-1}, \quad B_{ij} = -P_{ij} / P_{jj} \ (i \ne j), \quad s(u, \cdot) = X_u B

Somebody without a history is offered what is popular.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Rows
from gmlfm.errors import DataError, OptionError
from gmlfm.models.base import ClosedFormModel, Floats, Ints, Positives
from gmlfm.models.layers import at_least_one
from gmlfm.models.spaces import Choice, Real
from gmlfm.storage import free_memory

_ITEMS_PER_BLOCK = 2_000

KNN_SPACE = {"neighbours": Choice((5, 10, 20, 50, 100, 200, 400)), "shrink": Choice((0.0, 1.0, 10.0, 50.0, 100.0, 500.0))}
EASE_SPACE = {"l2": Real(1.0, 10_000.0)}


class Popularity(ClosedFormModel):
    def __init__(self) -> None:
        self.counts = np.empty(0, np.float32)

    def fit(self, positives: Positives) -> None:
        self.counts = np.bincount(positives.items, minlength=positives.n_items).astype(np.float32)

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        return np.tile(self.counts[items], (len(users), 1))

    def weights(self) -> dict[str, Tensor]:
        return {"counts": torch.from_numpy(self.counts)}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        self.counts = weights["counts"].numpy()


class _FromHistory(ClosedFormModel):
    """Scores that a history of items decides."""

    def __init__(self) -> None:
        self._history = sparse.csr_matrix((0, 0), dtype=np.float32)

    @abstractmethod
    def from_histories(self, histories: Any, items: Ints) -> Floats:
        """histories: a sparse (N, items of the catalogue) matrix -> (N, len(items))."""

    def fit(self, positives: Positives) -> None:
        shape = (positives.n_users, positives.n_items)
        ones = np.ones(len(positives.users), np.float32)
        self._history = sparse.csr_matrix((ones, (positives.users, positives.items)), shape=shape)
        self._history.data[:] = 1.0  # a pair that occurs twice was added up
        self.learn(self._history)

    @abstractmethod
    def learn(self, history: Any) -> None: ...

    def score_all(self, users: Ints, items: Ints, rows: Rows | None = None) -> Floats:
        known = np.where(users >= 0, users, 0)
        histories = self._history[known].multiply((users >= 0)[:, None]).tocsr()
        histories.eliminate_zeros()
        return self._with_popular(histories, items)

    def score_all_for(
        self, user_side: AttributeTable, items: Ints, users: Ints | None = None, history: Ints | None = None
    ) -> Floats:
        if users is not None or history is None:
            return super().score_all_for(user_side, items, users)
        had = np.unique(history)
        ones, rows = np.ones(len(had), np.float32), np.zeros(len(had), np.int32)
        row = sparse.csr_matrix((ones, (rows, had)), shape=(1, self._history.shape[1]))
        return self._with_popular(row, items)

    def _with_popular(self, histories: Any, items: Ints) -> Floats:
        scores = self.from_histories(histories, items)
        empty = np.diff(histories.indptr) == 0
        if empty.any():
            counts = np.asarray(self._history.sum(axis=0)).ravel()[items]
            scores[empty] = counts / max(float(self._history.shape[0]), 1.0)
        return scores

    def weights(self) -> dict[str, Tensor]:
        shape = torch.tensor(self._history.shape, dtype=torch.int64)
        starts, items = self._history.indptr.astype(np.int64), self._history.indices.astype(np.int32)
        return {"shape": shape, "starts": torch.from_numpy(starts), "items": torch.from_numpy(items)}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        items, starts = weights["items"].numpy(), weights["starts"].numpy()
        shape = tuple(int(one) for one in weights["shape"])
        self._history = sparse.csr_matrix((np.ones(len(items), np.float32), items, starts), shape=shape)


class ItemKNN(_FromHistory):
    """O(co-occurrences) to fit, `neighbours` numbers an item to keep."""

    def __init__(self, neighbours: int = 100, shrink: float = 10.0) -> None:
        super().__init__()
        if not 0 <= shrink < float("inf"):
            raise OptionError(f"shrink is {shrink}; expected 0 or more.")
        self.neighbours, self.shrink = at_least_one(neighbours, "neighbours"), shrink

    def learn(self, history: Any) -> None:
        by_item = history.T.tocsr()
        norms = np.sqrt(np.diff(by_item.indptr)).astype(np.float32)
        blocks = []
        for start in range(0, by_item.shape[0], _ITEMS_PER_BLOCK):
            block = (by_item[start : start + _ITEMS_PER_BLOCK] @ history).tocsr()
            own = np.repeat(np.arange(start, start + block.shape[0]), np.diff(block.indptr))
            block.data /= norms[own] * norms[block.indices] + self.shrink
            block.data[block.indices == own] = 0.0
            blocks.append(_largest_of_rows(block, self.neighbours))
        self._similar = sparse.vstack(blocks).tocsr()

    def from_histories(self, histories: Any, items: Ints) -> Floats:
        found: Floats = (histories @ self._similar[items].T).toarray().astype(np.float32)
        return found

    def weights(self) -> dict[str, Tensor]:
        similar = self._similar
        arrays = {"similar.values": similar.data, "similar.items": similar.indices, "similar.starts": similar.indptr}
        return {**super().weights(), **{name: torch.from_numpy(one) for name, one in arrays.items()}}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        super().load(weights)
        values, items, starts = (weights[f"similar.{name}"].numpy() for name in ("values", "items", "starts"))
        n = self._history.shape[1]
        self._similar = sparse.csr_matrix((values, items, starts), shape=(n, n))


class EASE(_FromHistory):
    r"""O(m^3) time and m^2 memory, where m is the smaller of users and items.

    With fewer users, by the identity P = (I - X^T G X) / lambda with G = (X X^T + lambda I)^{-1}: the same scores.
    """

    def __init__(self, l2: float = 500.0) -> None:
        super().__init__()
        if not 0 < l2 < float("inf"):
            raise OptionError(f"l2 is {l2}; expected a number above 0.")
        self.l2 = l2

    def learn(self, history: Any) -> None:
        n_users, n_items = history.shape
        size = min(n_users, n_items)
        _refuse_too_large(size)
        kind = np.float64 if size <= 10_000 else np.float32
        self._by_users = n_users < n_items
        gram = history @ history.T if self._by_users else history.T @ history
        matrix = torch.from_numpy(gram.toarray().astype(kind))
        matrix.diagonal().add_(self.l2)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        if self._by_users:
            held = history.T.tocsr() @ inverse.numpy()  # X^T G, items x users
            inside = np.asarray(history.T.multiply(held).sum(axis=1)).ravel()
            self._matrix = inverse.numpy().astype(np.float32)
            self._diagonal = ((1.0 - inside) / self.l2).astype(np.float32)
        else:
            self._diagonal = inverse.diagonal().numpy().astype(np.float32)
            inverse.div_(-inverse.diagonal().clone().unsqueeze(0)).fill_diagonal_(0.0)
            self._matrix = inverse.numpy().astype(np.float32)

    def from_histories(self, histories: Any, items: Ints) -> Floats:
        if not self._by_users:
            columns: Floats = np.asarray(histories @ self._matrix[:, items], dtype=np.float32)
            return columns
        # X_u B = X_u - (X_u P) / diag(P), and X_u P = (X_u - X_u X^T G X) / lambda; on the diagonal B is 0.
        part = self._history[:, items]
        own = histories[:, items].toarray()
        through = (histories @ self._history.T) @ self._matrix
        projected = (own - np.asarray(through @ part)) / self.l2
        return np.asarray(own - projected / self._diagonal[items], dtype=np.float32)

    def weights(self) -> dict[str, Tensor]:
        arrays = {"matrix": self._matrix, "diagonal": self._diagonal}
        return {**super().weights(), **{name: torch.from_numpy(one) for name, one in arrays.items()}}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        super().load(weights)
        self._matrix, self._diagonal = weights["matrix"].numpy(), weights["diagonal"].numpy()
        self._by_users = self._history.shape[0] < self._history.shape[1]


def _largest_of_rows(matrix: Any, n: int) -> Any:
    """The n largest positive numbers of each row of a CSR matrix; ties go to the earlier item."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    place = np.arange(len(order)) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    kept = order[(place < n) & (matrix.data[order] > 0)]
    kept.sort()
    return sparse.csr_matrix((matrix.data[kept], (rows[kept], matrix.indices[kept])), shape=matrix.shape)


def _refuse_too_large(size: int) -> None:
    needed = 3 * size * size * (8 if size <= 10_000 else 4)
    free = free_memory()
    if free is not None and needed > 0.8 * free:
        raise DataError(
            f"ease inverts a matrix of {size:,} x {size:,} (the smaller of users and items), which takes "
            f"{needed / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free. Use item-knn, or fewer items."
        )
