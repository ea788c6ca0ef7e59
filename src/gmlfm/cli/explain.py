"""gmlfm explain RUN: why an item is recommended."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from gmlfm.cli.options import add_command, add_context, add_run, context_of, load_run, shared_options
from gmlfm.cli.output import console_for, note, print_json, verbatim
from gmlfm.cli.report import Report
from gmlfm.errors import OptionError
from gmlfm.progress import activity
from gmlfm.storage import write_text

_BAR = 24


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "explain",
        "why a score is what it is",
        "The exact sum that a score consists of, by fields: the global term, linear terms, and each pair of "
        "attributes with its weight and distance. --against compares with another item, or with the mean of the catalogue.",
        [
            "gmlfm explain runs/demo --user b0000003 --item t000000001",
            "gmlfm explain runs/demo --user b0000003 --item t000000001 --against mean --picture why.svg",
        ],
    )
    add_run(parser)
    parser.add_argument("--user", required=True, metavar="ID")
    parser.add_argument("--item", required=True, metavar="ID")
    parser.add_argument("--against", metavar="ID", help="another item, or: mean")
    add_context(parser)
    parser.add_argument("-n", type=int, default=12, help="how many terms are shown (default: 12)")
    parser.add_argument("--picture", metavar="FILE", help="an .svg file to write")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.n < 1:
        raise OptionError(f"-n is {options.n}; expected 1 or more.")
    context = context_of(options)
    recommender = load_run(options)
    other = None if options.against == "mean" else options.against
    with activity("explaining"):
        explanation = recommender.explain(options.user, options.item, **context)
        grouped = explanation.by_fields()
        if options.against is not None:
            grouped = recommender.contrast(options.user, options.item, other, **context)
    if options.against is None:
        title = f"{options.item} for {options.user}: {explanation.score:.4f}"
    else:
        against = "the catalogue's mean" if other is None else other
        title = f"{options.item} for {options.user} against {against}: {sum(grouped.values()):+.4f}"
    if options.picture:
        largest_terms = {_named(fields): value for fields, value in list(grouped.items())[: options.n]}
        write_text(Path(options.picture), Report(title).waterfall(title, largest_terms))
    if options.json:
        terms, by_fields = [asdict(term) for term in explanation.terms], _listed(explanation.by_fields())
        against_other = {"against": _listed(grouped)} if options.against else {}
        print_json({"score": explanation.score, "terms": terms, "by_fields": by_fields, **against_other})
        return
    console = console_for()
    if recommender.fitted.encoder.user_numbers([options.user])[0] < 0:
        note(
            console,
            "nothing is known of this user: recommend would show what is popular; this is the model's score for a stranger.",
        )
    table = Table(title=verbatim(title), title_justify="left", header_style="bold")
    table.add_column("fields", overflow="fold")
    table.add_column("adds", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    largest = max(abs(value) for value in grouped.values()) or 1.0
    for fields, value in list(grouped.items())[: options.n]:
        width = round(_BAR * abs(value) / largest)
        left = " " * _BAR if value >= 0 else " " * (_BAR - width) + f"[red]{'█' * width}[/]"
        right = f"[green]{'█' * width}[/]" if value >= 0 else ""
        table.add_row(verbatim(_named(fields)), f"{value:+.4f}", f"{left}│{right}")
    rest = sum(list(grouped.values())[options.n :])
    if len(grouped) > options.n:
        table.add_row(f"[dim]{len(grouped) - options.n} more[/]", f"{rest:+.4f}", "")
    console.print(table)
    strongest = sorted((term for term in explanation.terms if term.kind == "pair"), key=lambda term: -abs(term.value))[:3]
    for term in strongest:
        factors = "" if term.distance is None else f" (weight {term.weight:+.3f} x distance {term.distance:.3f})"
        console.print(verbatim(f"{' x '.join(term.attributes)}: {term.value:+.4f}{factors}"), soft_wrap=True, highlight=False)


def _listed(grouped: dict[tuple[str, ...], float]) -> list[dict[str, Any]]:
    return [{"fields": list(fields), "value": value} for fields, value in grouped.items()]


def _named(fields: tuple[str, ...]) -> str:
    return " x ".join(fields) if fields else "the same for everything"
