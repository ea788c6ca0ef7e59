"""Where unknown items stand among known ones, for models that read what users did before: set after each epoch.

Steps with ids hidden teach the attributes and leave the unknown item's row open (engines/history.py). It becomes the mean of
the known items' rows, moved as little as gives unknown items the share of the first ten places which new items had of
training's latest choices (new_item_level.py), for users with all that they did; where none was new, the mean stands.
Under losses that compare a target with negatives of its own the row is learned, and moved alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import AttributeTable
from gmlfm.models.base import ItemSide, UserSide
from gmlfm.models.gradient import GradientModel
from gmlfm.training.cold_start import moved_row
from gmlfm.training.new_item_level import new_item_level
from gmlfm.training.sampling.history_batches import TargetBatches

_USERS, _ITEMS, _DRAWS = 256, 1000, 8  # by which the level is found


class HistoryLevel:
    """One epoch's level of unknown items, of a model whose score is an inner product of two sides."""

    def __init__(self, model: GradientModel, table: Tensor, batches: TargetBatches, epoch: int) -> None:
        self._model, self._table, self._batches = model, table, batches
        self._rng = np.random.default_rng([batches.options.seed, 14, epoch])

    @classmethod
    def is_open(cls, model: GradientModel, batches: TargetBatches) -> bool:
        """Whether ids are hidden in steps, so that the unknown item's row is to be set."""
        return batches.options.cold_start_rate > 0 and model.shares_negatives

    def after(self, n_groups: int) -> Iterator[float]:
        """Nothing: the engine takes the steps with ids hidden."""
        yield from ()

    def end(self) -> Iterator[float]:
        self._model.eval()
        with torch.no_grad():
            self._set_level()
        yield from ()

    def _set_level(self) -> None:
        ids, catalogue = self._batches.ids, self._batches.encoded.item
        known = np.flatnonzero(ids.trained_items)
        start = self._table[ids.unknown_item].clone()
        if self._batches.shares_negatives:
            start = self._table[torch.from_numpy(catalogue.ids[known, 0].astype(np.int64)).to(self._table.device)].mean(0)
        if ids.new_items is None or not ids.new_items.is_informative:
            self._table[ids.unknown_item] = start
            return
        chosen = self._rng.permutation(known)[:_ITEMS]
        users = self._batches.draw_users(_USERS, self._rng)
        shown = AttributeTable(catalogue.ids[chosen], catalogue.values[chosen])
        scorer = self._model.over(ItemSide(np.arange(len(catalogue), dtype=np.int32), catalogue)).scorer
        _, vectors = scorer.user_vectors(users)
        teacher, student = (
            vectors @ side.vector.T + side.self_terms
            for side in (scorer.item_side_vectors(shown), scorer.item_side_vectors(shown, start))
        )
        owned = torch.from_numpy(_is_owned(users, len(catalogue))[:, chosen]).to(teacher.device)
        levels = []
        for _ in range(_DRAWS):  # which known items stand for new ones decides much
            order = torch.from_numpy(self._rng.permutation(len(chosen))).to(teacher.device)
            known_scores, unknown_scores, had = (part[:, order] for part in (teacher, student, owned))
            levels.append(new_item_level(known_scores, unknown_scores, had, len(known), ids.new_items))
        level = sum(levels) / len(levels)
        mean = vectors.mean(0)

        def mean_score(row: Tensor) -> Tensor:
            items = scorer.item_side_vectors(shown, row)
            result: Tensor = (items.vector @ mean + items.self_terms).mean()
            return result

        with torch.enable_grad():
            row = moved_row(mean_score, start, level - float(student.mean()))
        self._table[ids.unknown_item] = row


def _is_owned(users: UserSide, n_items: int) -> npt.NDArray[np.bool_]:
    """(N, I): whether the item is in the user's history."""
    assert users.history is not None
    is_owned = np.zeros((len(users), n_items), bool)
    is_owned[np.repeat(np.arange(len(users)), users.history.lengths), users.history.items] = True
    return is_owned
