"""gmlfm evaluate RUN"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from gmlfm.cli.main import shared_options


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "evaluate",
        help="metrics of a run on its own held-out part",
        description="Rank each tested item among its candidates: full (every item the user never had), sampled (99 of them, "
        "seeded) or paper (as published, ties counting as hits). Metrics are expectations over tied orders.",
    )
    parser.add_argument("run_folder", metavar="RUN")
    parser.add_argument("--protocol", default="full", metavar="NAME", help="full, sampled or paper (default: full)")
    parser.add_argument("--part", default="test", metavar="PART", help="test or validation (default: test)")
    parser.add_argument("--seed", type=int, default=0, help="of the sampled candidates (default: 0)")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.recommender import Recommender

    recommender = Recommender.load(options.run_folder)
    found = recommender.evaluate(protocol=options.protocol, part=options.part, seed=options.seed)
    fitted = recommender.fitted
    about = {
        "run": options.run_folder,
        "model": fitted.settings.model,
        "protocol": found.protocol,
        "part": options.part,
        "regime": fitted.regime,
        "split_hash": fitted.split.hash,
        "candidates_hash": found.candidates_hash,
    }
    if options.json:
        print(json.dumps({**about, **found.metrics, **({"groups": found.groups} if found.groups else {})}))
        return
    published = recommender.about.get("preset") == "paper"
    title = f"{fitted.settings.model} on {fitted.data.name}, {found.protocol}, {options.part}, {fitted.regime}"
    table = Table(title=title + (", TRAINED AS PUBLISHED" if published else ""), title_justify="left", header_style="bold")
    for name in (*(("group", "rows") if found.groups else ()), *found.metrics):
        table.add_column(name, justify="right")
    whole = [f"{value:.4f}" for value in found.metrics.values()]
    table.add_row(*(("all", f"{sum(one['rows'] for one in found.groups.values()):,.0f}") if found.groups else ()), *whole)
    for group, means in found.groups.items():
        shown = [f"{means[name]:.4f}" if name in means else "-" for name in found.metrics]
        table.add_row(group, f"{means['rows']:,.0f}", *shown)
    console = Console()
    console.print(table)
    if published or found.protocol == "paper":
        console.print("[yellow]note[/] for comparison with the published figures only: the epoch was chosen on the test part.")
