"""gmlfm init FILE...: look at somebody's tables and write their dataset.toml."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gmlfm.cli.options import TABLE_HELP, add_command, shared_options
from gmlfm.cli.output import console_for, note, print_json, verbatim
from gmlfm.data.schema import Field, InteractionsSchema, SideSchema
from gmlfm.data.sources.inspection import Inspected, inspect_files, write_schema
from gmlfm.progress import activity


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "init",
        "look at your tables and write their dataset.toml",
        "Look at tables of interactions, users and items, guess what their columns are, show the guesses with "
        "their reasons and write a commented dataset.toml. Nothing is asked and no table is changed.",
        [
            "gmlfm init purchases.csv buyers.csv catalogue.csv",
            "gmlfm init orders.parquet --user customer --out shop/dataset.toml",
        ],
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help=TABLE_HELP)
    parser.add_argument("--out", metavar="FILE", help="where to write (default: dataset.toml beside the first file)")
    parser.add_argument("--user", metavar="COLUMN", help="the column of the user, where the guess is wrong")
    parser.add_argument("--item", metavar="COLUMN", help="the column of the item, where the guess is wrong")
    parser.add_argument(
        "--header", choices=("true", "false"), help="whether the files have a header line, where the guess is wrong"
    )
    parser.add_argument("--force", action="store_true", help="replace a dataset.toml that is there")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    files = [Path(name) for name in options.files]
    target = Path(options.out) if options.out else files[0].parent / "dataset.toml"
    header = None if options.header is None else options.header == "true"
    with activity(f"looking at {len(files)} file{'s' if len(files) > 1 else ''}"):
        inspected = inspect_files(files, target.parent, user=options.user, item=options.item, header=header)
    with activity("reading them as described"):
        data = write_schema(inspected, target, force=options.force)
    warnings = [*inspected.guess.warnings, *data.warnings]
    if options.json:
        written = {"path": str(target), "files": inspected.files, "reasons": inspected.guess.reasons, "warnings": warnings}
        print_json(written)
        return
    console = console_for()
    show(inspected, console)
    for warning in warnings:
        note(console, warning)
    console.print(f"Wrote [bold]{verbatim(target)}[/]. Next: gmlfm data describe {verbatim(target)}", soft_wrap=True)


def show(inspected: Inspected, console: Console) -> None:
    """What was guessed, and why."""
    table = Table(title="What was guessed, and why", title_justify="left", header_style="bold")
    for heading in ("table", "column", "is", "because"):
        table.add_column(heading, overflow="fold")
    schema, reasons = inspected.schema, inspected.guess.reasons
    for title, spec in (("interactions", schema.interactions), ("users", schema.users), ("items", schema.items)):
        if spec is None:
            continue
        how = inspected.files[inspected.guess.tables[title]]
        table.add_row(f"[bold]{title}[/]", verbatim(spec.path or ""), "file", verbatim(how))
        for key, column, meaning in _columns(title, spec):
            table.add_row("", verbatim(column), meaning, verbatim(reasons.get(key, "")))
        for sentence in reasons.get(f"{title}.unused", "").splitlines()[1:]:
            column, _, reason = sentence.partition(": ")
            table.add_row("", f"[dim]{verbatim(column)}[/]", "[dim]not used[/]", f"[dim]{verbatim(reason)}[/]")
        table.add_section()
    console.print(table)


def _columns(title: str, spec: InteractionsSchema | SideSchema) -> list[tuple[str, str, str]]:
    """Of each column that is used: its key in the reasons, its name, and what it is."""
    roles = ("user", "item", "time", "label", "weight", "event") if isinstance(spec, InteractionsSchema) else ("id", "title")
    rows = [(f"{title}.{role}", str(getattr(spec, role)), role) for role in roles if getattr(spec, role) is not None]
    fields: tuple[Field, ...] = () if isinstance(spec, InteractionsSchema) else spec.fields
    return rows + [(f"{title}.fields.{field.name}", field.name, field.kind) for field in fields]
