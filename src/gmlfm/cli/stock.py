"""gmlfm sold, gmlfm back: which items can be recommended."""

from __future__ import annotations

import argparse
from typing import Any

from gmlfm.cli.options import add_command, add_run, load_run, shared_options
from gmlfm.cli.output import console_for, print_json, verbatim


def add_to(commands: Any) -> None:
    _add(
        commands,
        "sold",
        "items that can no longer be recommended",
        "Mark items as sold: they are left out from the next recommendation on, without training. The mark is kept with the "
        "run; gmlfm back takes it away.",
        ["gmlfm sold runs/demo t000000001 t000000002"],
    )
    _add(
        commands,
        "back",
        "sold items that can be recommended again",
        "Take away the mark that gmlfm sold made.",
        ["gmlfm back runs/demo t000000001"],
    )


def _add(commands: Any, name: str, about: str, description: str, examples: list[str]) -> None:
    parser = add_command(commands, name, about, description, examples)
    add_run(parser)
    parser.add_argument("items", nargs="+", metavar="ITEM", help="an item's id")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    recommender = load_run(options)
    mark = recommender.mark_sold if options.command == "sold" else recommender.mark_back
    mark(options.items)
    if options.json:
        print_json({"run": options.run_folder, options.command: options.items})
        return
    noun = "item is" if len(options.items) == 1 else "items are"
    where = verbatim(options.run_folder)
    console_for().print(f"{len(options.items)} {noun} marked {options.command} in {where}.", soft_wrap=True)
