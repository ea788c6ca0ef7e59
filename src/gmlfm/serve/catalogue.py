"""Items and users of a run as answers show them: titles, attributes, search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.fitting import FittedRun
from gmlfm.recommender.run_index import RunIndex

_MOST_CARDS, _CARDS_MADE_AT_ONCE = 100_000, 20_000


class Catalogue:
    """Of one run, which never changes; what is looked up is kept."""

    def __init__(self, index: RunIndex) -> None:
        self.run: FittedRun = index.run
        self._index = index
        self._cards: dict[int, dict[str, Any]] = {}
        self._made_once: dict[str, Any] = {}

    def warm(self) -> None:
        _ = self.item_texts
        # Made one by one they would cost the first answers some milliseconds each, in which others wait.
        self.cards(np.argsort(-self._n_rows_by_item, kind="stable")[:_CARDS_MADE_AT_ONCE].tolist())

    def cards(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """item, title and attributes of each; to be copied before it is changed."""
        cards = self._cards  # which another thread may replace meanwhile; one that is replaced loses nothing
        missing = [number for number in dict.fromkeys(numbers) if number not in cards]
        if missing:
            if len(cards) + len(missing) > _MOST_CARDS:
                cards = self._cards = {number: cards[number] for number in numbers if number in cards}
            cards.update(zip(missing, self._made(missing), strict=True))
        return [cards[number] for number in numbers]

    def _made(self, numbers: list[int]) -> list[dict[str, Any]]:
        items, places = self.run.data.items, np.array(numbers, np.int64)
        ids = self.run.encoder.ids_of_items(places).to_list()
        titles = [None] * len(ids) if items.titles is None else items.titles.gather(places).to_list()
        rows: list[dict[str, Any]] = items.fields[places].to_dicts() if items.fields.width else [{}] * len(ids)
        return [
            {"item": item, "title": title, "attributes": shown_values(row)}
            for item, title, row in zip(ids, titles, rows, strict=True)
        ]

    def made_once(self, name: str, make: Callable[[], Any]) -> Any:
        """What is made once of a run, by name."""
        if name not in self._made_once:
            self._made_once[name] = make()
        return self._made_once[name]

    def numbers_of(self, items: Sequence[Any]) -> list[int]:
        """-1 for what is not in the catalogue."""
        numbers = self._index.item_numbers
        return [numbers.get(str(item), -1) for item in items]

    def user_attributes(self, number: int) -> dict[str, Any]:
        fields = self.run.data.users.fields
        return shown_values(fields.row(number, named=True)) if fields.width and number >= 0 else {}

    @cached_property
    def item_texts(self) -> pl.DataFrame:
        """id, title in lower case."""
        items = self.run.data.items
        titles = items.ids.clear().extend_constant(None, len(items)) if items.titles is None else items.titles
        lower = [self.run.encoder.item_ids.cast(pl.String).str.to_lowercase(), titles.cast(pl.String).str.to_lowercase()]
        return pl.DataFrame([lower[0].alias("id"), lower[1].alias("title")])

    @cached_property
    def _user_texts(self) -> pl.DataFrame:
        return pl.DataFrame([self.run.encoder.user_ids.cast(pl.String).str.to_lowercase().alias("id")])

    @cached_property
    def _n_rows_by_item(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.run.data.item_numbers, minlength=len(self.run.data.items))

    @cached_property
    def _n_rows_by_user(self) -> npt.NDArray[np.int64]:
        return np.bincount(self.run.data.user_numbers, minlength=len(self.run.data.users))

    def find_items(self, words: str, limit: int, offset: int = 0) -> tuple[list[int], int]:
        """Item numbers: the id itself first, then what begins with the words, then what holds them; the commonest first."""
        return _search(self.item_texts, words, limit, offset, self._n_rows_by_item)

    def find_users(self, words: str, limit: int, offset: int = 0) -> tuple[list[int], int]:
        return _search(self._user_texts, words, limit, offset, self._n_rows_by_user)


def _search(texts: pl.DataFrame, words: str, limit: int, offset: int, weights: npt.NDArray[np.int64]) -> tuple[list[int], int]:
    words = words.strip().lower()
    if not words:
        return np.argsort(-weights, kind="stable")[offset : offset + limit].tolist(), texts.height
    named = [column for column in texts.iter_columns()]
    holds = np.zeros(texts.height, bool)
    rank = np.full(texts.height, 2, np.int8)
    for column in named:
        holds |= column.str.contains(words, literal=True).fill_null(False).to_numpy()
    places = np.flatnonzero(holds)
    for column in named:
        some = column.gather(places)
        rank[places[some.str.starts_with(words).fill_null(False).to_numpy()]] = 1
    rank[places[named[0].gather(places).eq(words).to_numpy()]] = 0
    order = np.lexsort((-weights[places], rank[places]))
    return places[order][offset : offset + limit].tolist(), len(places)


def shown_values(row: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON has them: what is no number there is missing."""
    return {name: _shown(value) for name, value in row.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, Iterable):
        return [_shown(part) for part in value]
    return str(value)
