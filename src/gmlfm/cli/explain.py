"""gmlfm explain RUN: why an item is recommended."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gmlfm.cli.options import add_command, add_context, add_picture, add_run, context_of, load_run, shared_options
from gmlfm.cli.output import console_for, field_names, note, note_missing_context, print_json, verbatim, warnings_as_notes
from gmlfm.cli.pictures import picture_path, signed_bars, write_picture
from gmlfm.errors import OptionError
from gmlfm.progress import activity

if TYPE_CHECKING:
    from gmlfm.retrieval.explaining import Explanation

Grouped = dict[tuple[str, ...], float]
_MOST_BAR, _STRONGEST = 24, 3


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "explain",
        "why a score is what it is",
        "The exact sum that a score consists of, by fields: the global term, linear terms, and each pair of "
        "attributes with its weight and distance; where the run reads what users did before, first what each earlier item "
        "adds. --against compares with another item, or with the mean of the catalogue.",
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
    add_picture(parser)
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.n < 1:
        raise OptionError(f"-n is {options.n}; expected 1 or more.")
    context, picture = context_of(options), picture_path(options.picture)
    recommender = load_run(options)
    console = console_for(stderr=options.json)
    note_missing_context(console, recommender, options.context)
    other = None if options.against == "mean" else options.against
    with warnings_as_notes(console), activity("explaining"):
        explanation = recommender.explain(options.user, options.item, **context)
        grouped, title = explanation.by_fields(), f"{options.item} for {options.user}: {explanation.score:.4f}"
        if options.against is not None:
            grouped = recommender.contrast(options.user, options.item, other, **context)
            name = "the catalogue's mean" if other is None else other
            title = f"{options.item} for {options.user} against {name}: {sum(grouped.values()):+.4f}"
    by_event = explanation.by_event()
    steps, n_shown = [(field_names(fields), value) for fields, value in grouped.items()], options.n
    if by_event and options.against is None:
        steps = explanation.steps(options.n)
        n_shown = len(steps)
    if picture is not None:
        with activity(f"drawing {picture}"):
            write_picture(signed_bars(dict(steps[:n_shown]), "what it adds to the score"), title, picture)
    if options.json:
        terms, by_fields = [term.to_dict() for term in explanation.terms], _listed(explanation.by_fields())
        against_other = {"against": _listed(grouped)} if options.against else {}
        of_history = {"by_event": [{"item": item, "value": value} for item, value in by_event.items()]} if by_event else {}
        print_json({"score": explanation.score, "terms": terms, "by_fields": by_fields, **of_history, **against_other})
        return
    if recommender.fitted.encoder.user_numbers([options.user])[0] < 0:
        message = (
            "nothing is known of this user: recommend would show what is popular; this is the model's score for a stranger."
        )
        note(console, message)
    console.print(_table(title, steps, n_shown, console.width))
    for text in _strongest_terms(explanation) if options.against is None else _differences(explanation, grouped, other):
        console.print(verbatim(text), soft_wrap=True, highlight=False)


def _table(title: str, steps: list[tuple[str, float]], n: int, width: int) -> Table:
    """The bars share the width with the names of the steps."""
    half = max(5, min(_MOST_BAR, (width - 50) // 2))
    table = Table(title=verbatim(title), title_justify="left", header_style="bold")
    table.add_column("what", overflow="fold")
    table.add_column("adds", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    largest = max(abs(value) for _, value in steps) or 1.0
    for name, value in steps[:n]:
        length = round(half * abs(value) / largest)
        left = " " * half if value >= 0 else " " * (half - length) + f"[red]{'█' * length}[/]"
        right = f"[green]{'█' * length}[/]" if value >= 0 else ""
        table.add_row(verbatim(name), f"{value:+.4f}", f"{left}│{right}")
    if len(steps) > n:
        table.add_row(f"[dim]{len(steps) - n} more[/]", f"{sum(value for _, value in steps[n:]):+.4f}", "")
    return table


def _strongest_terms(explanation: Explanation) -> list[str]:
    pairs = sorted((term for term in explanation.terms if term.kind == "pair"), key=lambda term: -abs(term.value))
    texts = []
    for term in pairs[:_STRONGEST]:
        factors = "" if term.distance is None else f" (weight {term.weight:+.3f} x distance {term.distance:.3f})"
        texts.append(f"{' x '.join(term.attributes)}: {term.value:+.4f}{factors}")
    return texts


def _differences(explanation: Explanation, grouped: Grouped, other: str | None) -> list[str]:
    """Of the largest differences what the item has and what the other one has, or the catalogue in the mean."""
    own, labels, name = explanation.by_fields(), explanation.labels(), "in the mean" if other is None else f"of {other}"
    texts = []
    for fields, difference in list(grouped.items())[:_STRONGEST]:
        value = own.get(fields, 0.0)
        texts.append(f"{labels.get(fields, field_names(fields))}: {value:+.4f}, {value - difference:+.4f} {name}")
    return texts


def _listed(grouped: Grouped) -> list[dict[str, Any]]:
    return [{"fields": list(fields), "value": value} for fields, value in grouped.items()]
