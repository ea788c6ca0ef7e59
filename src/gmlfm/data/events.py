"""Kinds of events: which rows of the interactions are learned and recommended, and which count as history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.columns import Origin, as_text, column
from gmlfm.data.schema import InteractionsSchema
from gmlfm.errors import DataError, did_you_mean

_MOST_KINDS_SHOWN = 5
_MOST_KINDS = 1_000
HISTORY_COLUMNS = {"user": pl.Int32(), "item": pl.Int32(), "before": pl.Int64(), "is_had": pl.Boolean()}


@dataclass(frozen=True)
class EventRoles:
    """By row of a table: whether its kind is one of `targets`, and whether it is one of `history_events`."""

    is_target: pl.Series
    is_history: pl.Series

    @classmethod
    def of(cls, kinds: pl.Series | None, spec: InteractionsSchema, n: int) -> EventRoles:
        """kinds: of n rows, None where no column of events is declared; a missing kind is in no list of kinds."""
        return cls(_is_in(kinds, spec.targets, n), _is_in(kinds, spec.history_events, n))

    @property
    def is_used(self) -> pl.Series:
        return self.is_target | self.is_history

    def filter(self, is_chosen: pl.Series) -> EventRoles:
        return EventRoles(self.is_target.filter(is_chosen), self.is_history.filter(is_chosen))


def event_kinds(table: pl.DataFrame, spec: InteractionsSchema, origin: Origin) -> pl.Series | None:
    """The kind of each row as text; None where no column of events is declared."""
    if spec.event is None:
        return None
    return as_text(column(table, spec.event, origin, "event"), origin)


class KindTally:
    """The kinds met in a table that is read at once or in pieces, and the rows that are not learned."""

    def __init__(self, spec: InteractionsSchema) -> None:
        self._spec = spec
        self._kinds: set[str] = set()
        self._unused: set[str] = set()
        self._n_rows = self._n_missing = self._n_unused = 0

    def add(self, kinds: pl.Series | None, roles: EventRoles) -> None:
        if kinds is None:
            return
        self._n_rows += len(kinds)
        self._n_missing += kinds.null_count()
        self._n_unused += int((~roles.is_used).sum())
        distinct = set(kinds.drop_nulls().unique().to_list())
        named = {*(self._spec.targets or ()), *(self._spec.history_events or ())}
        # A column of ids, declared by mistake, may have any number of kinds.
        self._kinds |= distinct & named | set(sorted(distinct)[: max(_MOST_KINDS - len(self._kinds), 0)])
        unused = kinds.filter(~roles.is_used).drop_nulls().unique().sort().head(_MOST_KINDS_SHOWN + 1)
        self._unused = set(sorted({*self._unused, *unused.to_list()})[: _MOST_KINDS_SHOWN + 1])

    def check(self, name: str) -> None:
        """Refuse a kind of `targets` or `history_events` that no row of the table has."""
        spec, present = self._spec, sorted(self._kinds)
        for key, named in (("targets", spec.targets), ("history_events", spec.history_events)):
            for kind in named or ():
                if kind not in self._kinds:
                    hint = did_you_mean(kind, present)
                    raise DataError(f"[interactions] {key} names '{kind}', but no row of {name} has it in '{spec.event}'{hint}")

    def notes(self) -> list[str]:
        """What is said of rows without a kind, and of rows whose kind is in neither list."""
        notes = []
        if self._n_missing:
            notes.append(f"{self._n_missing:,} interactions have no event; they are of none of the kinds that are named.")
        if self._n_unused:
            names = sorted(self._unused)
            shown = ", ".join(names[:_MOST_KINDS_SHOWN]) + (", ..." if len(names) > _MOST_KINDS_SHOWN else "")
            notes.append(
                f"{self._n_unused:,} of {self._n_rows:,} rows of the interactions are left out: their event "
                f"({shown or 'none'}) is in neither targets nor history_events."
            )
        return notes


def no_history() -> pl.DataFrame:
    return pl.DataFrame(schema=HISTORY_COLUMNS)


def history_alone(
    rows: pl.DataFrame, target_places: npt.NDArray[np.int64], had: npt.NDArray[np.int64], others: npt.NDArray[np.int64]
) -> pl.DataFrame:
    """The rows at the places `had` and `others`, in the order of the file, as rows that count as history alone.

    rows: user, item and perhaps time of all rows; target_places: where those that are targets stand, ascending.
    """
    places = np.sort(np.concatenate([had, others]))
    added = [
        pl.Series("before", np.searchsorted(target_places, places).astype(np.int64)),
        pl.Series("is_had", np.isin(places, had)),
    ]
    names = [*HISTORY_COLUMNS, *(["time"] if "time" in rows.columns else [])]
    return rows[places].with_columns(added).select(names).cast({"user": pl.Int32, "item": pl.Int32})


def _is_in(kinds: pl.Series | None, named: tuple[str, ...] | None, n: int) -> pl.Series:
    if kinds is None or named is None:
        return pl.Series([True]).new_from_index(0, n)
    return kinds.is_in(list(named)).fill_null(False)
