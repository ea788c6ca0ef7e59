"""gmlfm evaluate RUN: metrics on the held-out part."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from gmlfm.cli.options import add_command, add_run, comma_list, load_run, shared_options
from gmlfm.cli.output import note
from gmlfm.errors import OptionError


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "evaluate",
        "metrics of a run on its held-out part",
        "Rank each tested item among its candidates: full (every item the user never had), sampled (99 of them, "
        "seeded) or paper (as published, ties counting as hits). Metrics are expectations over tied orders.",
        [
            "gmlfm evaluate runs/demo",
            "gmlfm evaluate runs/demo --protocol sampled --cutoffs 5,10,20 --json",
            "gmlfm evaluate runs/mine --model my_package.my_module:MyModel",
        ],
    )
    add_run(parser)
    parser.add_argument("--protocol", default="full", metavar="NAME", help="full, sampled or paper (default: full)")
    parser.add_argument("--part", default="test", metavar="PART", help="test or validation (default: test)")
    parser.add_argument("--cutoffs", metavar="N,...", help="lengths of the list that metrics look at, such as 5,10,20")
    parser.add_argument("--seed", type=int, default=0, help="of the sampled candidates (default: 0)")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    cutoffs = _cutoffs(options.cutoffs)
    recommender = load_run(options)
    evaluation = recommender.evaluate(protocol=options.protocol, part=options.part, seed=options.seed, **cutoffs)
    fitted = recommender.fitted
    about = {
        "run": options.run_folder,
        "model": fitted.settings.model,
        "protocol": evaluation.protocol,
        "part": options.part,
        "refit": fitted.refit.value,
        "split_hash": fitted.split.hash,
        "candidates_hash": evaluation.candidates_hash,
    }
    if options.json:
        more = {"groups": evaluation.groups, "notes": evaluation.notes}
        print(json.dumps({**about, **evaluation.metrics, **{name: value for name, value in more.items() if value}}))
        return
    published = fitted.settings.as_published
    title = f"{fitted.settings.model} on {fitted.data.name}, {evaluation.protocol}, {options.part}, {fitted.refit.label}"
    console = Console()
    console.print(title + (", TRAINED AS PUBLISHED" if published else ""), soft_wrap=True, highlight=False)
    table = Table(header_style="bold")
    groups = {"all": evaluation.metrics, **evaluation.groups} if evaluation.groups else {"": evaluation.metrics}
    table.add_column("")
    for name in groups:
        table.add_column(name, justify="right")
    names = [*(["rows"] if evaluation.groups else []), *evaluation.metrics]
    total = sum(means["rows"] for means in evaluation.groups.values())
    for name in names:
        values = [total if (group, name) == ("all", "rows") else means.get(name) for group, means in groups.items()]
        table.add_row(
            name, *("-" if value is None else f"{value:,.0f}" if name == "rows" else f"{value:.4f}" for value in values)
        )
    console.print(table)
    for message in evaluation.notes:
        note(console, message)
    reasons = ["the epoch was chosen on the test part"] if published else []
    reasons += ["ties count as hits"] if evaluation.protocol == "paper" else []
    if reasons:
        note(console, f"for comparison with the published figures only: {' and '.join(reasons)}.")


def _cutoffs(text: str | None) -> dict[str, Any]:
    """The keyword `cutoffs` of evaluate, where it was given."""
    if text is None:
        return {}
    numbers = comma_list(text)
    if not numbers or not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise OptionError(f"--cutoffs takes whole numbers of 1 or more, such as 5,10,20; got '{text}'.")
    return {"cutoffs": tuple(int(number) for number in numbers)}
