"""Groups: users and the items they are scored with, as attribute arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.training.sampling.new_items import NewItems

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """B groups of G items: users with context (B, F), items (B, G, F'), labels (B, G), weights (B,).

    An item without a training positive, drawn as a negative, stands at the negative-only row (see IdRows), not at the unknown
    one, which would learn that the unknown is never chosen.
    """

    user_ids: Ints
    user_x: Floats
    item_ids: Ints
    item_x: Floats
    labels: Floats
    weights: Floats | None

    def __len__(self) -> int:
        return len(self.labels)

    def steps(self, size: int) -> Iterator[Batch]:
        """The same groups, `size` at a time."""
        for start in range(0, len(self), size):
            block = slice(start, start + size)
            yield Batch(
                self.user_ids[block],
                self.user_x[block],
                self.item_ids[block],
                self.item_x[block],
                self.labels[block],
                None if self.weights is None else self.weights[block],
            )


@dataclass(frozen=True)
class IdRows:
    """What training knows of ids: the unknown rows of both sides, and what had a training positive.

    negative_only_row: the id's missing row, which nothing else uses and scoring never sees. It takes up that items without a
    positive are always negatives; otherwise their attributes alone would, and those typical of new items would come last.
    trained_rows: the attribute rows that some item with a positive carries. A value that none of them has would only ever be
    drawn as a negative and learn that it is never chosen: such values are left out of training, as ids are.
    new_items: how often what is chosen is new; None where that is not known.
    """

    unknown_user: int
    unknown_item: int
    negative_only_row: int
    trained_items: npt.NDArray[np.bool_]
    trained_rows: npt.NDArray[np.bool_]
    new_items: NewItems | None = None

    @classmethod
    def from_counts(
        cls,
        fields: Sequence[FieldCode],
        counts: npt.NDArray[Any],
        items: AttributeTable,
        new_items: NewItems | None = None,
        *,
        as_published: bool = False,
    ) -> IdRows:
        """counts: how often each item was chosen. as_published: every item is trained by its own row, chosen or not."""
        user, item = (next(code for code in fields if code.part == side and code.kind == "id") for side in ("user", "item"))
        is_trained = np.ones(len(counts), bool) if as_published else counts > 0
        rows = np.zeros(fields[-1].end, bool)
        rows[items.ids[is_trained]] = True
        return cls(user.unknown_row, item.unknown_row, item.missing_row, is_trained, rows, new_items)


def make_batch(
    users: AttributeTable, catalogue: AttributeTable, items: Ints, labels: Floats, weights: Floats | None, id_rows: IdRows
) -> Batch:
    item_ids, item_x = catalogue.ids[items], catalogue.values[items]
    is_untrained = ~id_rows.trained_items[items] & (labels < 0)
    if is_untrained.any():
        item_x[is_untrained] *= id_rows.trained_rows[item_ids[is_untrained]]
        item_ids[:, :, 0][is_untrained], item_x[:, :, 0][is_untrained] = id_rows.negative_only_row, 1.0
    return Batch(np.array(users.ids), users.values, item_ids, item_x, labels, weights)
