"""gmlfm explain RUN: why an item is recommended."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gmlfm.cli.main import shared_options
from gmlfm.cli.report import Report
from gmlfm.errors import OptionError
from gmlfm.storage import write_text

_BAR = 24


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="why a score is what it is",
        description="The exact sum that a score consists of, by fields: the global term, linear terms, and each pair of "
        "attributes with its weight and distance. --against compares with another item, or with the mean of the catalogue.",
    )
    parser.add_argument("run_folder", metavar="RUN")
    parser.add_argument("--user", required=True, metavar="ID")
    parser.add_argument("--item", required=True, metavar="ID")
    parser.add_argument("--against", metavar="ID", help="another item, or: mean")
    parser.add_argument("-n", type=int, default=12, help="how many terms are shown (default: 12)")
    parser.add_argument("--picture", metavar="FILE", help="an .svg file to write")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.recommender import Recommender

    if options.n < 1:
        raise OptionError(f"-n is {options.n}; expected 1 or more.")
    recommender = Recommender.load(options.run_folder)
    found = recommender.explain(options.user, options.item)
    if options.against is None:
        grouped, title = found.by_fields(), f"{options.item} for {options.user}: {found.score:.4f}"
    else:
        other = None if options.against == "mean" else options.against
        grouped = recommender.contrast(options.user, options.item, other)
        against = "the catalogue's mean" if other is None else other
        title = f"{options.item} for {options.user} against {against}: {sum(grouped.values()):+.4f}"
    if options.picture:
        shown = {_named(fields): value for fields, value in list(grouped.items())[: options.n]}
        write_text(Path(options.picture), Report(title).waterfall(title, shown))
    if options.json:
        told = {"score": found.score, "terms": [asdict(one) for one in found.terms], "by_fields": _listed(found.by_fields())}
        print(json.dumps({**told, **({"against": _listed(grouped)} if options.against else {})}))
        return
    console = Console()
    if recommender.fitted.encoder.user_numbers([options.user])[0] < 0:
        note = "nothing is known of this user: recommend would show what is popular; this is the model's score for a stranger."
        console.print(f"[yellow]note[/] {note}", soft_wrap=True)
    table = Table(title=escape(title), title_justify="left", header_style="bold")
    table.add_column("fields", overflow="fold")
    table.add_column("adds", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    largest = max(abs(value) for value in grouped.values()) or 1.0
    for fields, value in list(grouped.items())[: options.n]:
        width = round(_BAR * abs(value) / largest)
        left = " " * _BAR if value >= 0 else " " * (_BAR - width) + f"[red]{'█' * width}[/]"
        right = f"[green]{'█' * width}[/]" if value >= 0 else ""
        table.add_row(escape(_named(fields)), f"{value:+.4f}", f"{left}│{right}")
    rest = sum(list(grouped.values())[options.n :])
    if len(grouped) > options.n:
        table.add_row(f"[dim]{len(grouped) - options.n} more[/]", f"{rest:+.4f}", "")
    console.print(table)
    strongest = sorted((one for one in found.terms if one.kind == "pair"), key=lambda one: -abs(one.value))[:3]
    for one in strongest:
        far = "" if one.distance is None else f" (weight {one.weight:+.3f} x distance {one.distance:.3f})"
        console.print(escape(f"{' x '.join(one.attributes)}: {one.value:+.4f}{far}"), soft_wrap=True, highlight=False)


def _listed(grouped: dict[tuple[str, ...], float]) -> list[dict[str, Any]]:
    return [{"fields": list(fields), "value": value} for fields, value in grouped.items()]


def _named(fields: tuple[str, ...]) -> str:
    return " x ".join(fields) if fields else "the same for everything"
