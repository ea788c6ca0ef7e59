from __future__ import annotations

import polars as pl
import pytest

from gmlfm.data.profiles import profile
from gmlfm.data.titles import title_column

BOOKS = [f"The Story Nr {n}" for n in range(30)]
BRANDS = ["Penguin", "Harper", "Seuil"] * 10
TEXTS = [f"{'A very long description of it. ' * 9}{n}" for n in range(30)]
PAGES = [f"http://example.com/{n}" for n in range(30)]


@pytest.mark.parametrize(
    ("side", "columns", "title"),
    [
        ("items", {"Book-Title": BOOKS, "Publisher": BRANDS}, "Book-Title"),
        ("items", {"product_name": BOOKS, "brand_name": BRANDS}, "product_name"),
        ("items", {"brand_name": BRANDS}, None),
        ("items", {"brandName": BOOKS, "titles": BRANDS}, "titles"),
        ("items", {"label name": BOOKS}, "label name"),  # mostly different: nothing to train on
        ("items", {"title": PAGES, "b": BRANDS}, None),
        ("items", {"a": PAGES, "b": TEXTS, "c": BRANDS, "d": BOOKS}, "d"),
        ("users", {"a": BOOKS}, None),
        ("users", {"full_name": BOOKS, "city_name": BRANDS}, "full_name"),
    ],
)
def test_the_title_is_found_by_its_name_or_its_texts(side: str, columns: dict[str, list[str]], title: str | None) -> None:
    column = title_column([profile(pl.Series(name, values)) for name, values in columns.items()], side)
    assert (column.name if column else None) == title
