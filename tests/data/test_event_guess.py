from __future__ import annotations

import polars as pl
import pytest

from gmlfm.data.event_guess import guess_event


@pytest.mark.parametrize(
    ("kinds", "targets", "history"),
    [
        (["click", "cart", "purchase"], ("purchase",), None),
        (["view", "addtocart", "transaction"], ("transaction",), None),
        (["ADD_TO_CART", "Buy", "PageView", None], ("Buy",), None),
        (["view", "cart", "remove_from_cart", "purchase"], ("purchase",), ("cart", "purchase", "view")),
        (["order", "rent", "cancel_order", "click", "hover"], ("order", "rent"), ("click", "hover", "order", "rent")),
        (["click", "view"], (), None),  # nothing is had
        (["order"], (), None),
        (["order", "sale"], (), None),  # nothing is history alone
        (["web", "app", "shop order", "fax", "mail"], (), None),
        ([f"order {number}" for number in range(30)], (), None),
        ([], (), None),
    ],
)
def test_kinds_are_known_by_their_words(kinds: list[str], targets: tuple[str, ...], history: tuple[str, ...] | None) -> None:
    for values in (pl.Series("what", kinds, dtype=pl.String), pl.Series("what", kinds, dtype=pl.Categorical)):
        guess = guess_event([pl.Series("n", [1, 2]), pl.Series("colour", ["red", "blue"]), values])
        if not targets:
            assert guess is None
            continue
        assert guess is not None
        assert (guess.column, guess.targets, guess.history) == ("what", targets, history)
        assert set(guess.reasons) == {"event", "targets"} | ({"history_events"} if history else set())
        assert guess.reasons["event"] == f"kinds of events: {', '.join(sorted({kind for kind in kinds if kind}))}"
