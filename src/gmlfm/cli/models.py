"""gmlfm models: what there is."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from gmlfm.cli.main import shared_options
from gmlfm.models.spaces import Choice


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("models", help="the models there are, with one line each")
    parser.add_argument("name", nargs="?", metavar="NAME", help="one model in detail")
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
    if options.name is not None:
        _one(options.name)
        return
    table = Table(header_style="bold")
    for heading in ("name", "what it is", "tasks", "attributes", "newcomers"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for name, one in MODELS.items():
        table.add_row(name, one.about, ", ".join(one.tasks), "yes" if one.uses_attributes else "no", one.newcomers)
    console = Console()
    console.print(table)
    console.print("gmlfm models NAME tells a model's settings, and what gmlfm tune tries.")


def _one(name: str) -> None:
    from gmlfm.models.registry import model_info
    from gmlfm.tuning.spaces import defaults, search_space

    info = model_info(name)
    space = search_space(name, info.tasks[0])
    begin = defaults(name, info.tasks[0], space)
    console = Console()
    console.print(f"[bold]{name}[/]: {info.about}. Its equation is in src/gmlfm/{info.equation}.", soft_wrap=True)
    uses = "uses attributes" if info.uses_attributes else "uses ids alone"
    console.print(f"Tasks: {', '.join(info.tasks)}; {uses}; newcomers: {info.newcomers}.", soft_wrap=True)
    console.print(f"Settings of its own: {', '.join(info.option_names()) or 'none'}", soft_wrap=True)
    table = Table(title="what gmlfm tune tries", title_justify="left", header_style="bold")
    for heading in ("setting", "by default", "range"):
        table.add_column(heading, overflow="fold")
    for setting, one in space.items():
        shown = (
            ", ".join(str(value) or "none" for value in one.values)
            if isinstance(one, Choice)
            else f"{one.low:g} to {one.high:g}"
        )
        table.add_row(setting, str(begin.get(setting, "-")), shown)
    if space:
        console.print(table)
