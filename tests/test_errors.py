from __future__ import annotations

import pytest

from gmlfm.errors import DataError, GmlfmError, NotSupportedError, OptionError, did_you_mean, printable


def test_a_close_choice_is_offered_in_its_own_case() -> None:
    assert did_you_mean("gmlfm", ["GML-FM", "fm"]) == "; did you mean 'GML-FM'?"


def test_otherwise_the_choices_are_listed_the_first_twenty_of_many() -> None:
    assert did_you_mean("x", ["red", "blue"]) == "; known: red, blue."
    listed = did_you_mean("?", [f"choice{number}" for number in range(25)])
    assert listed.endswith("choice19, ....")
    assert did_you_mean("x", []) == "."


def test_what_a_model_cannot_do_is_wrong_use() -> None:
    assert issubclass(NotSupportedError, OptionError)
    assert issubclass(OptionError, GmlfmError)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("two\nlines\r\n", "two\\nlines\\r\\n"),
        ("\x9b2J \u202etxt.exe \ud800", "\\x9b2J \\u202etxt.exe \\ud800"),
        ("Ōsaka　日本 🦆 it's\u00a0fine", "Ōsaka　日本 🦆 it's\u00a0fine"),
    ],
)
def test_foreign_text_is_shown_as_text(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert str(DataError(f"got {text}.")) == f"got {shown}."


def test_a_long_cell_leaves_the_beginning_and_the_end_of_a_message() -> None:
    message = str(DataError(f"t.csv line 3 holds {'x' * 1_000_000}; expected a number."))
    assert len(message) < 2_000
    assert message.startswith("t.csv line 3 holds xxx")
    assert message.endswith("xxx; expected a number.")
