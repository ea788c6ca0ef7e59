from __future__ import annotations

import io
import json
import warnings

import polars as pl
import pytest
from rich.console import Console

from gmlfm.cli.output import show_rows, warnings_as_notes


def test_warnings_become_notes_each_once() -> None:
    console = Console(file=io.StringIO(), width=200)
    with warnings_as_notes(console):
        for message in ("n is [large]", "n is [large]", "another"):
            warnings.warn(message, stacklevel=1)
    assert console.file.getvalue().splitlines() == ["note n is [large]", "note another"]  # type: ignore[attr-defined]


def test_rows_for_machines_and_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame({"item": ["a", "[b]"], "score": [0.123456, None], "known": [True, False]})
    show_rows(frame, Console(stderr=True), as_json=True)
    assert json.loads(capsys.readouterr().out) == frame.to_dicts()
    show_rows(frame, Console(), as_json=False)
    shown = capsys.readouterr().out
    assert "0.1235" in shown
    assert "[b]" in shown
    assert "known" not in shown
