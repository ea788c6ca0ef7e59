"""gmlfm similar RUN: the nearest items or users in the learned metric."""

from __future__ import annotations

import argparse
from typing import Any

from gmlfm.cli.options import add_command, add_run, load_run, shared_options
from gmlfm.cli.output import console_for, show_rows
from gmlfm.errors import OptionError
from gmlfm.progress import activity


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "similar",
        "the nearest items or users in the learned metric",
        "The items nearest to an item, or the users nearest to a user, by the distance between their positions.",
        ["gmlfm similar runs/demo --item t000000001", "gmlfm similar runs/demo --user b0000003 -n 5 --json"],
    )
    add_run(parser)
    parser.add_argument("--item", metavar="ID")
    parser.add_argument("--user", metavar="ID")
    parser.add_argument("-n", type=int, default=10, help="how many (default: 10)")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if (options.item is None) == (options.user is None):
        raise OptionError("say what to compare with: --item ID or --user ID.")
    recommender = load_run(options)
    with activity("measuring distances"):
        if options.item is not None:
            neighbours = recommender.similar_items(options.item, options.n)
        else:
            neighbours = recommender.similar_users(options.user, options.n)
    show_rows(neighbours, console_for(), as_json=options.json)
