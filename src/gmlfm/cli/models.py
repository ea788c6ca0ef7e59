"""gmlfm models: what there is."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from gmlfm.cli.main import shared_options


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("models", help="the models there are, with one line each")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.models.registry import MODELS

    if options.json:
        rows = [
            {
                "name": name,
                "tasks": list(one.tasks),
                "uses_attributes": one.uses_attributes,
                "newcomers": one.newcomers,
                "about": one.about,
                "settings": one.option_names(),
            }
            for name, one in MODELS.items()
        ]
        print(json.dumps(rows))
        return
    table = Table(header_style="bold")
    for heading in ("name", "what it is", "tasks", "attributes", "newcomers", "its equation", "settings of its own"):
        table.add_column(heading, overflow="fold")
    for name, one in MODELS.items():
        uses = "yes" if one.uses_attributes else "no"
        settings = ", ".join(one.option_names()) or "-"
        table.add_row(name, one.about, ", ".join(one.tasks), uses, one.newcomers, one.equation, settings)
    Console().print(table)
