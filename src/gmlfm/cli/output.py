"""What commands print: notes, tables and JSON. What came from tables, files and servers is shown as text, whatever it holds."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from gmlfm.escaping import json_text, terminal_text

if TYPE_CHECKING:
    from gmlfm.recommender import Recommender


def console_for(*, stderr: bool = False, **options: Any) -> Console:
    """The console that a command prints to; nothing that it is given to print can steer the terminal."""
    console = Console(stderr=stderr, **options)
    console.push_render_hook(_AsText())
    return console


class _AsText(RenderHook):
    """The net below `verbatim`: whatever reaches the console unescaped is written out."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Harmless(renderable) for renderable in renderables]


class _Harmless:
    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(terminal_text(segment.text, lines=True), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._renderable)


def verbatim(text: object) -> str:
    """Somebody's text, such as a title, an id or a path, as markup that shows it on one line as it is."""
    return escape(terminal_text(str(text)))


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    print(json_text(json.dumps(value, ensure_ascii=False)))


@contextmanager
def warnings_as_notes(console: Console, noted: set[str] | None = None) -> Iterator[None]:
    """Prints what the library warns of within the block, each message once, and none of those `noted` before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    noted = set() if noted is None else noted
    for message in dict.fromkeys(str(warning.message) for warning in caught if warning.category is UserWarning):
        if message not in noted:
            note(console, message)
        noted.add(message)


def note(console: Console, message: str) -> None:
    console.print(f"[yellow]note[/] {verbatim(message)}", soft_wrap=True)


def note_missing_context(console: Console, recommender: Recommender, context: str | None) -> None:
    """Training always had a context where the data have one; without it, its fields count as missing or unknown."""
    fields = [field.name for field in recommender.fitted.data.schema.interactions.context]
    if fields and context is None:
        example = f"--context {fields[0]}=..."
        note(console, f"the run learned from the occasion, too ({', '.join(fields)}); say more with {example}")


def field_names(fields: Iterable[str]) -> str:
    """Fields of a term in words: the field `item` holds its id, `user` theirs; none at all is the global term."""
    return " x ".join({"item": "item id", "user": "user id"}.get(field, field) for field in fields) or "the same for everything"


def users_not_known(frame: pl.DataFrame) -> list[str]:
    """The users whose `known` is false, in their order."""
    return frame.filter(~pl.col("known"))["user"].unique(maintain_order=True).to_list() if "known" in frame.columns else []


def show_rows(frame: pl.DataFrame, console: Console, *, as_json: bool) -> None:
    """A frame as a JSON list, or as a table without the column `known` and without users that have no id."""
    if as_json:
        print_json(frame.to_dicts())
        return
    table = Table(header_style="bold")
    names = [name for name in frame.columns if name != "known" and not (name == "user" and frame[name].is_null().all())]
    for name in names:
        table.add_column(name, justify="right" if name in ("score", "distance", "rank") else "left", overflow="fold")
    for row in frame.select(names).iter_rows():
        table.add_row(*(_cell(value) for value in row))
    console.print(table)


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else verbatim(value)
