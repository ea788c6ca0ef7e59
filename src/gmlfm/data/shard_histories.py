"""What the users of one shard of a prepared folder did before: Histories of the shard as a Dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Dataset, Rows, Side
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import Histories
from gmlfm.data.prepared import PreparedData, Shard


@dataclass(frozen=True)
class ShardUsers:
    """One shard, its users numbered from the first of them on, so that nothing here grows with the users of the others.

    numbers: of its users in the whole folder; local: (rows,) the user of each row, from 0; data: the shard's rows and what
    counts as history alone. The Dataset holds what Histories read: neither items nor, but for ties = "shuffle", ids of users.
    """

    prepared: PreparedData
    shard: Shard
    numbers: range
    data: Dataset

    @classmethod
    def of(cls, prepared: PreparedData, shard: Shard) -> ShardUsers:
        history, info = prepared.history_rows(shard.number), prepared.info
        named = np.concatenate([shard.users, history["user"].to_numpy()])
        numbers = prepared.users_beside(named) if len(named) else range(0)
        has_ids = info.ties == "shuffle" and len(numbers) > 0
        ids = prepared.user_ids(numbers) if has_ids else pl.Series("id", [""]).new_from_index(0, len(numbers))
        first = pl.lit(numbers.start, pl.Int32)
        rows = pl.DataFrame({"user": shard.users, "item": shard.items}).hstack(shard.columns)
        data = Dataset(
            info.schema,
            rows.with_columns(pl.col("user") - first),
            pl.DataFrame(),
            Side(ids, info.user_id_type, pl.DataFrame(), None, 0),
            Side(pl.Series("id", [], dtype=pl.String), info.item_id_type, pl.DataFrame(), None, 0),
            history_rows=history.with_columns(pl.col("user") - first),
        )
        return cls(prepared, shard, numbers, data)

    @property
    def local(self) -> npt.NDArray[np.int32]:
        return self.data.user_numbers

    def encoded(self, items: AttributeTable) -> Encoded:
        """The attributes of these users and of the shard's rows, beside those of all items."""
        chosen, users = slice(self.numbers.start, self.numbers.stop), self.prepared.users
        of_users = AttributeTable(np.asarray(users.ids[chosen]), np.asarray(users.values[chosen]))
        return Encoded(of_users, self.shard.context, items)

    def histories(self, visible: Rows) -> Histories:
        """visible: places of the shard's rows. Whether rows are in an order at all is said of the whole folder."""
        return Histories.of(self.data, visible, ordered=self.prepared.is_ordered)

    def had(self, visible: Rows) -> Histories | None:
        """What users had, where that is more than what is history."""
        return Histories.had(self.data, visible, ordered=self.prepared.is_ordered)
