"""A dataset's summary, drawn for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from gmlfm.cli.output import verbatim
from gmlfm.data.describe import Summary, TailStep

_BAR = 36


def show_summary(summary: Summary, console: Console, next_command: str = "") -> None:
    counts = Table(title=f"{verbatim(summary.name)}  [dim]{summary.hash}[/]", title_justify="left", header_style="bold")
    for heading in ("users", "items", "attributes", "interactions", "sparsity", "catalogue"):
        counts.add_column(heading, justify="right")
    numbers = (summary.users, summary.items, summary.attributes, summary.interactions)
    counts.add_row(*(f"{number:,}" for number in numbers), f"{summary.sparsity:.2%}", f"{summary.catalogue:,}")
    console.print(counts)
    if summary.positives < summary.interactions:
        console.print(f"{summary.positives:,} interactions are positive.")
    if summary.tied_rows:
        console.print(f"{summary.tied_rows:.1%} of the positive rows have the time of another row of their user.")
    console.print(_fields(summary, console.width))
    console.print("[bold]The long tail[/]: items by how often they occur, how many, and their share of all rows")
    most = max((step.items for step in summary.tail), default=0)
    for step in summary.tail:
        console.print(_bar(step, most), highlight=False)
    console.print(_split(summary))
    messages = [f"[cyan]note[/] {verbatim(note)}" for note in summary.notes]
    messages += [f"[yellow]warning[/] {verbatim(warning)}" for warning in summary.warnings]
    for message in messages:
        console.print(message, soft_wrap=not console.is_terminal)  # a pipe's reader wants one line each
    if next_command:
        console.print(f"Next: {verbatim(next_command)}", soft_wrap=True)


def _fields(summary: Summary, width: int) -> Table:
    """Examples have the room that is left."""
    table = Table(title="Fields", title_justify="left", header_style="bold")
    table.add_column("of", no_wrap=True)
    name_width = min(max((len(field.name) for field in summary.fields), default=0), 18)
    table.add_column("field", overflow="fold", width=max(name_width, 5))
    table.add_column("kind", no_wrap=True)
    table.add_column("values", justify="right", no_wrap=True)
    table.add_column("missing", justify="right", no_wrap=True)
    table.add_column("such as", overflow="ellipsis", no_wrap=True, max_width=max(12, min(30, width - name_width - 44)))
    for field in summary.fields:
        missing = f"{field.missing:.1%}" if field.missing else "-"
        table.add_row(field.part, verbatim(field.name), field.kind, f"{field.values:,}", missing, verbatim(field.example))
    return table


def _bar(step: TailStep, most: int) -> str:
    high = "" if step.high == step.low else "+" if step.high is None else f"-{step.high:,}"
    width = max(1, round(_BAR * step.items / most))
    return f"{step.low:>6,}{high:<6} [green]{'█' * width:<{_BAR}}[/] {step.items:>8,} {step.share:>7.1%}"


def _split(summary: Summary) -> Table:
    split = summary.split
    table = Table(title=f"Split {split['name']}  [dim]{split['hash']}[/]", title_justify="left", header_style="bold")
    for heading in ("part", "rows", "users", "of them new", "items", "of them new"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    table.add_row("train", f"{split['train']['rows']:,}")
    for part in ("validation", "test"):
        table.add_row(part, *(f"{split[part][key]:,}" for key in ("rows", "users", "new_users", "items", "new_items")))
    return table
