"""gmlfm add-items RUN FILE: new items enter a run's catalogue."""

from __future__ import annotations

import argparse
from typing import Any

from gmlfm.cli.options import TABLE_HELP, add_command, add_run, load_run, read_file, shared_options
from gmlfm.cli.output import console_for, print_json, verbatim, warnings_as_notes
from gmlfm.progress import activity


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "add-items",
        "new items for a run's catalogue, without training",
        "New items enter the catalogue from their attributes alone, and can be recommended from then on. The table has the "
        "columns of the item table that the run was trained with; the run folder is saved with them.",
        [
            "gmlfm add-items runs/demo new.csv",
            "gmlfm add-items runs/demo prices.csv --update",
            "gmlfm add-items runs/demo new.parquet --json",
        ],
    )
    add_run(parser)
    parser.add_argument("file", metavar="FILE", help=TABLE_HELP)
    parser.add_argument(
        "--update", action="store_true", help="items of the catalogue may be among them, and take over the columns of FILE"
    )
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    table = read_file(options.file)
    recommender = load_run(options)
    console = console_for(stderr=options.json)
    n_before = len(recommender.fitted.data.items)
    with warnings_as_notes(console), activity("encoding"):
        recommender.add_items(table, update=options.update)
    n_added = len(recommender.fitted.data.items) - n_before
    recommender.save(options.run_folder)
    if options.json:
        print_json({"run": options.run_folder, "added": n_added, "updated": table.height - n_added})
        return
    noun = "item is" if n_added == 1 else "items are"
    changed = f", {table.height - n_added:,} changed" if options.update else ""
    console.print(f"{n_added:,} new {noun} in the catalogue of {verbatim(options.run_folder)}{changed}.", soft_wrap=True)
