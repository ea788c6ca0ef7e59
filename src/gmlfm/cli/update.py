"""gmlfm update RUN [DATA]: train on from a run with what is new."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gmlfm.cli.options import DATA_HELP, add_command, add_data_options, add_run, load_run, read_file, shared_options
from gmlfm.cli.output import console_for, note, print_json, verbatim, warnings_as_notes
from gmlfm.cli.progress import EpochLines
from gmlfm.data.sources import load_dataset
from gmlfm.errors import OptionError
from gmlfm.reading import is_regular

_TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz", ".tsv.gz", ".jsonl.gz")


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "update",
        "train on from a run with new rows, users and items",
        "Learn what is new in DATA: rows that differ in user, item or time from those of the run, and new users and items. "
        "DATA may be all of the data again. Without DATA, what was observed (gmlfm observe) is learned. The steps are in "
        "proportion to the new rows; old rows are learned again beside them, against forgetting. The run folder is saved with "
        "the result.",
        [
            "gmlfm update runs/demo shop/dataset.toml",
            "gmlfm update runs/demo today.csv --epochs 5",
            "gmlfm update runs/demo --json",
        ],
    )
    add_run(parser)
    parser.add_argument(
        "data", metavar="DATA", nargs="?", help=f"{DATA_HELP}; or a table of interactions; without it, what was observed"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="over the new rows (default: 3)")
    parser.add_argument("--lr", type=float, metavar="X", help="learning rate (default: a tenth of the run's)")
    parser.add_argument("--replay", type=float, metavar="X", help="old rows beside each new one (default: 1.0)")
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="X",
        help="share of the users whose latest new row is held back, to measure before and after; learned last (default: 0.1)",
    )
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    add_data_options(parser)
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    console = console_for(stderr=options.json)
    recommender = load_run(options)
    data = None if options.data is None else _data_of(options)
    given = {name: getattr(options, name) for name in ("epochs", "lr", "replay", "held_out")}
    chosen = {name: value for name, value in given.items() if value is not None}
    with warnings_as_notes(console):
        report = recommender.update(data, device=options.device, observer=EpochLines(console), **chosen)
    if options.json:
        print_json({"run": options.run_folder, **report.to_dict()})
        return
    counts = [
        (report.n_rows, "row", ""),
        (report.n_history, "row", " of history"),
        (report.n_users, "user", ""),
        (report.n_items, "item", ""),
    ]
    parts = [f"{n:,} new {noun}{'' if n == 1 else 's'}{rest}" for n, noun, rest in counts if n]
    how = "fitted again on all rows" if report.is_refitted else f"{report.n_steps:,} steps, {report.n_replayed:,} rows replayed"
    console.print(f"Learned {', '.join(parts)} ({how}).", soft_wrap=True)
    if report.after:
        figures = ", ".join(f"{name} {report.before[name]:.4f} -> {value:.4f}" for name, value in report.after.items())
        noun = "row" if report.n_held_out == 1 else "rows"
        note(console, f"before and after, on {report.n_held_out:,} new {noun} held back: {figures}.")
    console.print(f"Saved in [bold]{verbatim(options.run_folder)}[/].", soft_wrap=True)


def _data_of(options: argparse.Namespace) -> Any:
    path = Path(options.data)
    if is_regular(path / "prepared.json"):
        raise OptionError(f"update reads data in memory, and {path} is a prepared folder; train it anew.")
    if path.name.endswith(_TABLES):
        return read_file(options.data)
    return load_dataset(options.data, data_root=options.data_root, strict=options.strict)
