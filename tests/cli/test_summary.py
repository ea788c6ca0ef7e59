from __future__ import annotations

import io

from rich.console import Console

from gmlfm.cli.summary import show_summary
from gmlfm.data.describe import describe
from gmlfm.data.sources import load_dataset


def test_a_summary_shows_counts_fields_tail_and_split(market: str) -> None:
    console = Console(file=io.StringIO(), width=160)
    summary = describe(load_dataset(market))
    show_summary(summary, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in ("120", "genre", "The long tail", "Split global-time", summary.hash, *summary.notes):
        assert text in shown


def test_a_narrow_terminal_shows_whole_rows(market: str) -> None:
    console = Console(file=io.StringIO(), width=80)
    show_summary(describe(load_dataset(market)), console)
    rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    table = [row for row in rows if row.startswith("│ item │")]
    assert {len(row) for row in table} == {80}
    assert all(row.endswith("│") for row in table)
    assert any("condition" in row for row in table)
