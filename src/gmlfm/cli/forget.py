"""gmlfm forget RUN --user ID: take a user out of a run."""

from __future__ import annotations

import argparse
from typing import Any

from gmlfm.cli.options import add_command, add_run, load_run, shared_options
from gmlfm.cli.output import console_for, print_json, verbatim, warnings_as_notes


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "forget",
        "take a user out of a run",
        "Remove a user's id, attributes, interactions and learned row from the run folder, and the checkpoints that hold them. "
        "The user counts as unknown from then on. The dataset's files are not touched.",
        ["gmlfm forget runs/demo --user b0000003"],
    )
    add_run(parser)
    parser.add_argument("--user", required=True, metavar="ID")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    recommender = load_run(options)
    console = console_for(stderr=options.json)
    with warnings_as_notes(console):
        recommender.forget(options.user)
    if options.json:
        print_json({"run": options.run_folder, "forgotten": options.user})
        return
    console.print(f"The user '{verbatim(options.user)}' is gone from {verbatim(options.run_folder)}.", soft_wrap=True)
