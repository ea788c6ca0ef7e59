from __future__ import annotations

import pytest

from gmlfm.data.split_rules import auto_split, repeats_note, time_cuts


@pytest.mark.parametrize(
    ("task", "declares_time", "has_all_times", "sells_once", "expected"),
    [
        ("topn", False, True, True, "random"),
        ("topn", True, True, False, "leave-one-out"),
        ("topn", True, True, True, "global-time"),
        ("topn", True, False, True, "leave-one-out"),
        ("rating", True, True, True, "leave-one-out"),
    ],
)
def test_auto_is_chosen_by_times_and_single_units(
    task: str, declares_time: bool, has_all_times: bool, sells_once: bool, expected: str
) -> None:
    name, reason = auto_split(
        task,  # type: ignore[arg-type]
        declares_time=declares_time,
        has_all_times=has_all_times,
        sells_once=sells_once,
    )
    assert name == expected
    assert bool(reason) == (expected != "leave-one-out")


def test_time_is_cut_behind_a_share_of_the_rows() -> None:
    assert time_cuts(100, 0.1, 0.1) == (79, 89)
    assert time_cuts(1, 0.1, 0.1) == (0, 0)


def test_a_note_on_repeats_only_where_there_are_some() -> None:
    assert repeats_note(0, 9, "keep") == []
    assert repeats_note(3, 1009, "keep") == ['3 of 1,009 tested pairs are also training pairs (repeats = "keep").']
    assert repeats_note(3, 9, "merge") == ["3 of 9 tested pairs are also training pairs (in another context)."]
