from __future__ import annotations

import json
from typing import Any

import pytest

from gmlfm.runs.event_lines import ObservedRow, encoded, observed_content, parsed

ROWS: list[ObservedRow] = [
    ("u1", "i1", 5, None),
    ("u1", "i2", None, None),
    ("é\n", "i1", -2.5, "click"),
    ("", "i3", 2**62, "a\0b"),
]


def test_observed_rows_come_back_as_they_were() -> None:
    event = parsed(encoded({"n": 3, **observed_content(ROWS), "at": "now"}))
    assert event is not None
    assert event["rows"] == ROWS
    assert [len(row) for row in json.loads(encoded({"n": 3, **observed_content(ROWS)}))["rows"]] == [3, 3, 4, 4]


@pytest.mark.parametrize(
    "row",
    [
        [],
        ["u"],
        ["u", "i"],
        ["u", "i", 1, "e", "more"],
        [1, "i", 1],
        ["u", None, 1],
        ["u", "i", "1"],
        ["u", "i", True],
        ["u", "i", float("inf")],
        ["u", "i", float("nan")],
        ["u", "i", 2**63],
        ["u", "i", [1]],
        ["u", "i", 1, 7],
        "uit",
        {"u": 1, "i": 2, "t": 3},
        7,
        None,
    ],
    ids=str,
)
def test_what_is_no_row_is_no_event_although_its_checksum_fits(row: Any) -> None:
    good = {"kind": "observed", "n": 1, "rows": [["u", "i", 1]]}
    assert parsed(encoded(good)) is not None
    assert parsed(encoded({**good, "rows": [["u", "i", 1], row]})) is None
    assert parsed(encoded({**good, "rows": row})) is None or row == []
