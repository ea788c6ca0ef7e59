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
        print(
            json.dumps(
                {
                    **about,
                    **found.metrics,
                    **({"groups": found.groups} if found.groups else {}),
                    **({"notes": found.notes} if found.notes else {}),
                }
            )
        )
        return
    published = fitted.settings.preset == "paper" and fitted.settings.task == "topn"
    title = f"{fitted.settings.model} on {fitted.data.name}, {found.protocol}, {options.part}, {fitted.regime}"
    console = Console()
    console.print(title + (", TRAINED AS PUBLISHED" if published else ""), soft_wrap=True, highlight=False)
    table = Table(header_style="bold")
    groups = {"all": found.metrics, **found.groups} if found.groups else {"": found.metrics}
    table.add_column("")
    for name in groups:
        table.add_column(name, justify="right")
    names = [*(["rows"] if found.groups else []), *found.metrics]
    total = sum(one["rows"] for one in found.groups.values())
    for name in names:
        values = [total if (group, name) == ("all", "rows") else means.get(name) for group, means in groups.items()]
        table.add_row(name, *("-" if one is None else f"{one:,.0f}" if name == "rows" else f"{one:.4f}" for one in values))
    console.print(table)
    for note in found.notes:
        console.print(f"[yellow]note[/] {note}", soft_wrap=True)
    reasons = ["the epoch was chosen on the test part"] if published else []
    reasons += ["ties count as hits"] if found.protocol == "paper" else []
    if reasons:
        console.print(f"[yellow]note[/] for comparison with the published figures only: {' and '.join(reasons)}.")
