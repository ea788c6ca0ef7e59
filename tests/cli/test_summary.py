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
