"""gmlfm tune: search a model's settings on validation."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gmlfm.cli.options import (
    DATA_HELP,
    MODEL_HELP,
    add_command,
    add_data_options,
    add_settings,
    add_split,
    set_values,
    shared_options,
    split_of,
)
from gmlfm.cli.output import console_for, print_json
from gmlfm.data.sources import load_dataset
from gmlfm.data.splits import AUTO
from gmlfm.errors import OptionError
from gmlfm.storage import write_text

if TYPE_CHECKING:
    from gmlfm.tuning import Budget


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "tune",
        "search a model's settings on validation",
        "Try settings by Optuna until the budget is spent, choose on validation, and write best.toml for "
        "gmlfm train --config. Stopped in the middle, the same command goes on; several processes may run it on one folder.",
        [
            "gmlfm tune bazaar --trials 20 --out studies/bazaar",
            "gmlfm tune ml-1m --model fm --seconds 3600 --set k=64 --threads 4 --out studies/fm",
        ],
    )
    parser.add_argument("data", metavar="DATA", help=DATA_HELP)
    parser.add_argument("--model", default="gml-fm", metavar="NAME", help=MODEL_HELP)
    seconds = "instead: how long is tried; a trial that is cut short counts if it has a whole epoch, a killed one does not"
    add_search_options(parser, seconds)
    add_settings(parser, about="a setting that is fixed and not searched, such as")
    parser.set_defaults(run=run)


def add_search_options(parser: argparse.ArgumentParser, seconds: str) -> None:
    """seconds: what --seconds means."""
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder of the study")
    parser.add_argument("--trials", type=int, metavar="N", help="how many settings are tried of each model (default: 20)")
    parser.add_argument("--seconds", type=float, metavar="S", help=seconds)
    parser.add_argument("--task", default="topn", metavar="TASK", help="topn, rating or implicit (default: topn)")
    add_split(parser)
    parser.add_argument("--preset", metavar="NAME", help="paper: the grid and the training of the paper")
    parser.add_argument("--seed", type=int, default=0, help="of the search and of its trainings (default: 0)")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    add_data_options(parser)
    shared_options(parser)


def budget_of(options: argparse.Namespace) -> Budget:
    from gmlfm.tuning import Budget

    if options.trials is not None and options.seconds is not None:
        raise OptionError("give --trials or --seconds, not both.")
    trials = 20 if options.trials is None and options.seconds is None else options.trials
    return Budget(trials, options.seconds)


def run(options: argparse.Namespace) -> None:
    from gmlfm.tuning import Search, tune

    budget = budget_of(options)
    split, split_options = split_of(options)
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    out = Path(options.out)
    search = Search(
        data,
        options.model,
        out,
        options.task,
        split,
        options.preset,
        options.seed,
        options.threads,
        options.device,
        set_values(options),
        split_options,
    )
    console = console_for(stderr=options.json)
    tuned = tune(search, budget)
    best = {**tuned.fixed, **tuned.settings}
    lines = [f"{name} = {json.dumps('auto' if value is None else value)}\n" for name, value in best.items()]
    write_text(out / "best.toml", "".join(lines))
    if options.json:
        print_json(asdict(tuned))
        return
    table = Table(title=f"{tuned.model} on {data.name}: {tuned.trials} trials in {tuned.seconds:.0f} s", title_justify="left")
    table.add_column("setting")
    table.add_column("best", justify="right")
    table.add_column("")
    for name, value in best.items():
        shown = f"{value:.4g}" if isinstance(value, float) else "auto" if value is None else str(value)
        remark = "fixed" if name in tuned.fixed else "at a border of its range" if name in tuned.at_border else ""
        table.add_row(name, shown, remark)
    console.print(table)
    metrics = ", ".join(f"{name} {value:.4f}" for name, value in tuned.validation.items())
    part = "TEST, as published," if tuned.preset == "paper" and tuned.task == "topn" else "Validation"
    usual = {"--task": ("topn", options.task), "--split": (AUTO, options.split), "--preset": (None, options.preset)}
    more = "".join(f" {name} {value}" for name, (default, value) in usual.items() if value != default)
    more += "".join(f" --split-file {part}" for part in options.split_files)
    command = f"gmlfm train {options.data} --model {tuned.model}{more} --config {out / 'best.toml'} --out RUN"
    console.print(f"{part} {metrics}. Next: {command}", soft_wrap=True)
