from __future__ import annotations

import pytest

from gmlfm.data.column_words import HEADER_WORDS, ITEM_WORDS, TITLE_WORDS, USER_WORDS, words_of


def test_names_are_split_into_words() -> None:
    assert words_of("buyerId") == words_of("buyer_id") == words_of("Buyer ID") == {"buyer", "id"}
    assert words_of("users") == {"users", "user"}


@pytest.mark.parametrize("name", ["ISBN", "Book-Title", "Book-Author", "Year-Of-Publication", "Publisher", "Image-URL-S"])
def test_the_names_of_a_book_table_are_words_of_headers(name: str) -> None:
    assert words_of(name) & HEADER_WORDS


def test_no_word_speaks_of_users_and_items() -> None:
    assert not USER_WORDS & ITEM_WORDS
    assert not TITLE_WORDS & (USER_WORDS | ITEM_WORDS)
