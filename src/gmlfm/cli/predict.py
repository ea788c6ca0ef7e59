"""gmlfm predict RUN: the scores of given pairs."""

from __future__ import annotations

import argparse
from typing import Any

from gmlfm.cli.options import TABLE_HELP, add_command, add_context, add_run, context_of, load_run, read_file, shared_options
from gmlfm.cli.output import console_for, note, note_missing_context, show_rows, users_not_known, warnings_as_notes
from gmlfm.errors import OptionError
from gmlfm.progress import activity


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "predict",
        "scores of given users and items",
        "The score of each pair: for ratings the predicted rating, otherwise a number that is higher for what fits better.",
        [
            "gmlfm predict runs/demo --user b0000003 --item t000000001 t000000002",
            "gmlfm predict runs/demo --pairs pairs.csv --json",
        ],
    )
    add_run(parser)
    parser.add_argument("--user", metavar="ID")
    parser.add_argument("--item", nargs="+", action="extend", metavar="ID", help="with --user: one or more items")
    parser.add_argument("--pairs", metavar="FILE", help=f"instead: a table with the columns user and item ({TABLE_HELP})")
    add_context(parser)
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    by_ids = options.user is not None and options.item is not None
    if by_ids == (options.pairs is not None) or (options.user is None) != (options.item is None):
        raise OptionError("say which pairs: --user ID --item ID..., or --pairs FILE.")
    pairs = [(options.user, item) for item in options.item] if by_ids else read_file(options.pairs)
    recommender = load_run(options)
    console = console_for(stderr=options.json)
    note_missing_context(console, recommender, options.context)
    with warnings_as_notes(console), activity("scoring"):
        scores = recommender.predict(pairs, **context_of(options))
    unknown = users_not_known(scores)
    if unknown:
        more = f" and {len(unknown) - 1:,} more users" if len(unknown) > 1 else ""
        note(console, f"nothing is known of user '{unknown[0]}'{more}: the score is the model's for a stranger.")
    show_rows(scores, console, as_json=options.json)
