from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from gmlfm.data.sources.headers import first_row_is_header

NAMES = ["Ann", "Bob", "Cho", "Dan", "Eve", "Fay", "Gus", "Hal", "Ivy", "Jon"]
SURNAMES = ["Smith", "Jones", "Rossi", "Olsen", "Chen", "Weber"]
CITIES = ["Rome", "Oslo", "Paris", "Lima", "Kyiv", "Bern"]
WORDS = ["shadow", "river", "night", "house", "king", "winter", "stone", "secret", "garden", "song"]
PUBLISHERS = ["Penguin", "Harper", "Random House", "Publisher", "Oxford University Press"]


class Cells:
    """Draws the cells of made-up tables."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def choice(self, values: list[str]) -> str:
        return values[self._rng.integers(len(values))]

    def title(self) -> str:
        return " ".join(self.choice(WORDS).capitalize() for _ in range(self._rng.integers(1, 5)))

    def author(self) -> str:
        return f"{self.choice(NAMES)} {self.choice(SURNAMES)}"

    def code(self, alphabet: str, length: int) -> str:
        return "".join(self.choice(list(alphabet)) for _ in range(length))

    def book(self) -> list[str]:
        isbn = self.code("0123456789", 10)
        addresses = [f"http://images.example.com/{isbn}.{size}.jpg" for size in "SML"]
        return [isbn, self.title(), self.author(), self.choice(PUBLISHERS), *addresses]


TABLES: dict[str, tuple[list[str], Callable[[Cells], list[str]]]] = {
    "books, one publisher called Publisher": (
        ["ISBN", "Book-Title", "Book-Author", "Publisher", "Image-URL-S", "Image-URL-M", "Image-URL-L"],
        Cells.book,
    ),
    "words that nobody knows": (["wer", "was", "wo"], lambda cells: [cells.author(), cells.title(), cells.choice(CITIES)]),
    "people": (["name", "city"], lambda cells: [cells.author(), cells.choice(CITIES)]),
    "words alone": (["user", "item"], lambda cells: [cells.choice(NAMES).lower(), cells.choice(WORDS)]),
    "each value once": (["user", "item"], lambda cells: [cells.code("abcdefghij", 9), cells.code("abcdefghij", 9)]),
    "values that are words of headers": (
        ["kind", "what"],
        lambda cells: [cells.choice(["book", "movie", "game"]), cells.choice(["rating", "review", "click"])],
    ),
    "codes": (["u", "i"], lambda cells: [f"u{cells.code('123', 2)}", f"p{cells.code('123', 2)}"]),
    "numbers": (["u", "i", "r"], lambda cells: [cells.code("123", 2), cells.code("123", 2), cells.code("12345", 1)]),
    "German": (["Titel", "Autor", "Verlag"], lambda cells: [cells.title(), cells.author(), cells.choice(PUBLISHERS)]),
}


def frame(rows: list[list[str]]) -> pl.DataFrame:
    return pl.DataFrame({f"column_{place}": cells for place, cells in enumerate(zip(*rows, strict=True))})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("table", TABLES)
def test_a_header_is_told_from_a_row(table: str, seed: int) -> None:
    header, row = TABLES[table]
    cells = Cells(seed)
    rows = [row(cells) for _ in range(60)]
    assert first_row_is_header(frame([header, *rows]))
    assert not first_row_is_header(frame(rows))


def test_few_rows_are_enough_where_shapes_differ() -> None:
    assert first_row_is_header(frame([["user", "item"]]))
    assert first_row_is_header(frame([["a", "b"], ["1", "2"]]))
    assert not first_row_is_header(frame([["1", "1"], ["1", "2"]]))
    assert not first_row_is_header(frame([["ann", "2020-01-01"], ["bob", "2020-01-02"], ["ann", "2020-01-03"]]))


def test_missing_cells_and_long_texts_do_no_harm() -> None:
    long = "word " * 50_000
    named = pl.DataFrame({"a": [None, "1", "2", "3"], "b": ["text", long, None, long], "c": ["user", "x", "y", "x"]})
    assert first_row_is_header(named)  # as a pandas index is written
    assert not first_row_is_header(named.slice(1))
