"""What commands print: notes, tables and JSON."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@contextmanager
def warnings_as_notes(console: Console) -> Iterator[None]:
    """Prints what the library warns of within the block, each message once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught if warning.category is UserWarning):
        note(console, message)


def note(console: Console, message: str) -> None:
    console.print(f"[yellow]note[/] {escape(message)}", soft_wrap=True)


def users_not_known(frame: pl.DataFrame) -> list[str]:
    """The users whose `known` is false, in their order."""
    return frame.filter(~pl.col("known"))["user"].unique(maintain_order=True).to_list() if "known" in frame.columns else []


def show_rows(frame: pl.DataFrame, console: Console, *, as_json: bool) -> None:
    """A frame as a JSON list, or as a table without the column `known`."""
    if as_json:
        print(json.dumps(frame.to_dicts(), ensure_ascii=False))
        return
    table = Table(header_style="bold")
    names = [name for name in frame.columns if name != "known"]
    for name in names:
        table.add_column(name, justify="right" if name in ("score", "distance", "rank") else "left", overflow="fold")
    for row in frame.select(names).iter_rows():
        table.add_row(*(_cell(value) for value in row))
    console.print(table)


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else escape(str(value))
