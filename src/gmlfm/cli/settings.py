"""gmlfm settings: every setting there is."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from gmlfm.cli.options import add_command, shared_options
from gmlfm.cli.output import console_for, print_json, verbatim

_MOST = {"default": 10, "range": 20}  # characters, so that meanings have room on a narrow terminal
_GROUPS = {
    "model": "Settings of the model",
    "training": "Settings of the training",
    "batches": "Settings of the batches",
    "history": "Settings of what users did before",
}


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "settings",
        "every setting: default, range and meaning",
        "The settings that gmlfm train --set KEY=VALUE takes, with their default, range and meaning, and a star if gmlfm "
        "tune searches them. With MODEL, those of that model and its defaults.",
        [
            "gmlfm settings",
            "gmlfm settings gml-fm",
            "gmlfm settings mf --task rating --json",
            "gmlfm settings my_package.my_module:MyModel",
        ],
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="see gmlfm models; or module:Class, a model of your own")
    parser.add_argument("--task", default="topn", metavar="TASK", help="topn, rating or implicit (default: topn)")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.training.settings import settings_table

    rows = settings_table(options.model, options.task)
    if options.json:
        print_json(rows)
        return
    console = console_for()
    for group, title in _GROUPS.items():
        members = [row for row in rows if row["of"] == group]
        if not members:
            continue
        table = Table(title=title, title_justify="left", header_style="bold")
        for heading in ("setting", "default", "range", "meaning"):
            table.add_column(heading, overflow="fold", no_wrap=heading == "setting", max_width=_MOST.get(heading))
        for row in members:
            default = "auto" if row["default"] is None else str(row["default"])
            name = row["name"] + (" *" if row["searched"] else "")
            table.add_row(*map(verbatim, (name, default, str(row["range"] or row["kind"]), row["meaning"])))
        console.print(table)
    console.print(
        "Change one by gmlfm train DATA --out RUN --set KEY=VALUE; gmlfm tune searches those with a *.", soft_wrap=True
    )
