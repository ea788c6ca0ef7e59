"""Groups: those who ask and the items they are asked about, as attribute rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.data.dataset import Rows
from gmlfm.data.encoding import Encoded, Encoder

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Batch:
    """B groups of G items: user side (users with context) (B, F), item side (items) (B, G, F'), labels (B, G), weights (B,).

    An item without a training positive, drawn as a negative, stands at the decoy row (see IdRows), not at the unknown one,
    which would learn that the unknown is never bought.
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
            part = slice(start, start + size)
            yield Batch(
                self.user_ids[part],
                self.user_x[part],
                self.item_ids[part],
                self.item_x[part],
                self.labels[part],
                None if self.weights is None else self.weights[part],
            )


@dataclass(frozen=True)
class IdRows:
    """What training knows of ids: the unknown rows of both sides, and what had a training positive.

    decoy: the id's missing row, which nothing else uses and scoring never sees. It takes up that items without a positive are
    always negatives; their attributes alone would otherwise have to, and those typical of new items would come last.
    trained_rows: the attribute rows that some item with a positive carries. A value that none of them has would only ever be
    drawn as a negative and learn that it is never chosen: such values are left out of training, as ids are.
    first_choices: the chance that the next choice is of an item never chosen before, which is (Good and Turing) the share of
    items chosen once among all choices.
    """

    unknown_user: int
    unknown_item: int
    negative_only_row: int
    trained_items: npt.NDArray[np.bool_]
    trained_rows: npt.NDArray[np.bool_]
    first_choices: float

    @classmethod
    def of(cls, encoder: Encoder, items: Ints, item_table: AttributeTable) -> IdRows:
        return cls.between(encoder.fields, np.bincount(items, minlength=len(item_table)), item_table)

    @classmethod
    def between(cls, fields: Sequence[FieldCode], counts: npt.NDArray[Any], item_table: AttributeTable) -> IdRows:
        """counts: how often each item was chosen."""
        user, item = (next(one for one in fields if one.part == side and one.kind == "id") for side in ("user", "item"))
        trained = counts > 0
        rows = np.zeros(fields[-1].end, bool)
        rows[item_table.ids[trained]] = True
        first_choices = float((counts == 1).sum() / max(counts.sum(), 1))
        return cls(user.unknown_row, item.unknown_row, item.missing_row, trained, rows, first_choices)


def user_side_of(encoded: Encoded, users: npt.NDArray[np.integer[Any]], rows: Rows | None) -> AttributeTable:
    """Users with the context of their interaction rows; without rows the context is left out."""
    ids, x = encoded.user.ids[users], encoded.user.values[users]
    if rows is None or encoded.context.ids.shape[1] == 0:
        return AttributeTable(ids, x)
    return AttributeTable(
        np.concatenate([ids, encoded.context.ids[rows]], axis=1), np.concatenate([x, encoded.context.values[rows]], axis=1)
    )


def make_batch(
    user_side: AttributeTable, items_table: AttributeTable, items: Ints, labels: Floats, weights: Floats | None, known: IdRows
) -> Batch:
    item_ids, item_x = items_table.ids[items], items_table.values[items]
    untrained = ~known.trained_items[items] & (labels < 0)
    if untrained.any():
        item_x[untrained] *= known.trained_rows[item_ids[untrained]]
        item_ids[:, :, 0][untrained], item_x[:, :, 0][untrained] = known.negative_only_row, 1.0
    return Batch(np.array(user_side.ids), user_side.values, item_ids, item_x, labels, weights)
