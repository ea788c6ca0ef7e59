r"""Item neighbours: items that are chosen together, by shrunk cosine.

.. math:: s(u, i) = \sum_{j \in N(i)} w_{uj} \, \frac{(X^\top X)_{ij}}{\|X_i\| \, \|X_j\| + \mathit{shrink}}

N(i): the `neighbours` most similar items of i. w: what users did before the scored row, 1 for each item or by recency
(`half_life`); see `HistoryModel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from gmlfm.models.base import Floats, Ints
from gmlfm.models.closed_form import HalfLife, HistoryModel, saved_matrix
from gmlfm.models.settings import BEFORE, Choice, Setting, UserRows

_ITEMS_PER_BLOCK = 2_000


class ItemKNN(HistoryModel):
    """O(co-occurrences) to fit, `neighbours` numbers an item to keep."""

    adds_up = True

    def __init__(
        self,
        neighbours: Annotated[
            int, Setting("most similar items kept of each item", least=1, search=Choice((5, 10, 20, 50, 100, 200, 400)))
        ] = 100,
        shrink: Annotated[
            float,
            Setting("added to the norms, against chance", least=0, search=Choice((0.0, 1.0, 10.0, 50.0, 100.0, 500.0))),
        ] = 10.0,
        half_life: HalfLife = 0.0,
        user_rows: UserRows = BEFORE,
    ) -> None:
        super().__init__(half_life, user_rows)
        self.neighbours, self.shrink = neighbours, shrink

    def learn(self, history: Any) -> None:
        by_item = history.T.tocsr()
        norms = np.sqrt(np.diff(by_item.indptr)).astype(np.float32)
        blocks = []
        for start in range(0, by_item.shape[0], _ITEMS_PER_BLOCK):
            block = (by_item[start : start + _ITEMS_PER_BLOCK] @ history).tocsr()
            item = np.repeat(np.arange(start, start + block.shape[0]), np.diff(block.indptr))
            block.data /= norms[item] * norms[block.indices] + self.shrink
            block.data[block.indices == item] = 0.0
            blocks.append(_largest_of_rows(block, self.neighbours))
        self._similar = sparse.vstack(blocks).tocsr()

    def score_histories(self, histories: Any, items: Ints) -> Floats:
        scores: Floats = (histories @ self._similar[items].T).toarray().astype(np.float32)
        return scores

    def state_dict(self) -> dict[str, Tensor]:
        similar = self._similar
        arrays = {"similar.values": similar.data, "similar.items": similar.indices, "similar.starts": similar.indptr}
        return {**super().state_dict(), **{name: torch.from_numpy(array) for name, array in arrays.items()}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        values, items, starts = (state[f"similar.{name}"].numpy() for name in ("values", "items", "starts"))
        n_items = self._history.shape[1]
        self._similar = saved_matrix(values, items, starts, (n_items, n_items))


def _largest_of_rows(matrix: Any, n: int) -> Any:
    """The n largest positive numbers of each row of a CSR matrix; ties go to the earlier item."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    place = np.arange(len(order)) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    largest = order[(place < n) & (matrix.data[order] > 0)]
    largest.sort()
    return sparse.csr_matrix((matrix.data[largest], (rows[largest], matrix.indices[largest])), shape=matrix.shape)
