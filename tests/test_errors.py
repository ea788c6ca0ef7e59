from __future__ import annotations

from gmlfm.errors import GmlfmError, NotSupportedError, OptionError, did_you_mean


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
