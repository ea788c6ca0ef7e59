"""gmlfm add-items RUN FILE: new items enter a run's catalogue."""

from __future__ import annotations

import argparse
from typing import Any

from gmlfm.cli.options import TABLE_HELP, add_command, add_run, load_run, read_file, shared_options
from gmlfm.cli.output import console_for, print_json, verbatim, warnings_as_notes


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "add-items",
        "new items for a run's catalogue, without training",
        "New items enter the catalogue from their attributes alone, and can be recommended from then on. The table has the "
        "columns of the item table that the run was trained with; the run folder is saved with them.",
        ["gmlfm add-items runs/demo new.csv", "gmlfm add-items runs/demo new.parquet --json"],
    )
    add_run(parser)
    parser.add_argument("file", metavar="FILE", help=TABLE_HELP)
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    table = read_file(options.file)
    recommender = load_run(options)
    console = console_for(stderr=options.json)
    with warnings_as_notes(console):
        recommender.add_items(table)
    recommender.save(options.run_folder)
    if options.json:
        print_json({"run": options.run_folder, "added": table.height})
        return
    noun = "item is" if table.height == 1 else "items are"
    console.print(f"{table.height:,} new {noun} in the catalogue of {verbatim(options.run_folder)}.", soft_wrap=True)
