"""gmlfm compare: several methods under equal budgets, one table, significance."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from gmlfm.cli.report import Report
from gmlfm.cli.tune import add_search_options, budget_of
from gmlfm.data.sources import load_dataset
from gmlfm.storage import write_text

if TYPE_CHECKING:
    from gmlfm.tuning import Comparison


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "compare",
        help="several methods under equal budgets, one table",
        description="Tune each model with the same budget on validation, train the best settings with several seeds, test "
        "once, and write table.md, table.html and picture.svg. Stopped in the middle, the same command goes on.",
    )
    parser.add_argument("data", metavar="DATA", help="a name, a folder with a dataset.toml, or the path of a .toml")
    parser.add_argument("--models", required=True, metavar="A,B,C", help="see gmlfm models")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of the best settings (default: 3)")
    parser.add_argument(
        "--protocol", default="full", metavar="NAME", help="of the test: full, sampled or paper (default: full)"
    )
    parser.add_argument("--no-refit", action="store_true", help="test what was trained without the validation rows")
    add_search_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.tuning import compare
    from gmlfm.tuning.comparison import Plan

    plan = Plan(
        tuple(one.strip() for one in options.models.split(",") if one.strip()),
        options.task,
        options.split,
        options.protocol,
        options.seeds,
        not options.no_refit,
        options.seed,
        options.preset,
    )
    plan.check()
    budget = budget_of(options)
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    out = Path(options.out)
    console = Console(stderr=options.json)
    with console.status("comparing") as status:
        found = compare(
            data,
            plan,
            budget,
            out,
            threads=options.threads,
            device=options.device,
            tell=lambda name, n, s: status.update(f"tuning {name}: {n} trials, {s:.0f} s"),
            tested=lambda name, seed: status.update(f"training {name} with seed {seed} for the test"),
        )
    write(found, out)
    if options.json:
        print(json.dumps(asdict(found)))
        return
    show(found, console)
    console.print(f"Also in [bold]{out / 'table.md'}[/], table.html and picture.svg.", soft_wrap=True)


def show(found: Comparison, console: Console) -> None:
    from gmlfm.tuning.table import headings, legend, lines, title

    table = Table(title=title(found), title_justify="left", header_style="bold")
    for at, name in enumerate(headings(found)):
        table.add_column(name, justify="left" if at == 0 else "right", overflow="fold")
    for row in lines(found):
        table.add_row(*row)
    console.print(table)
    console.print(legend(found))
    for name, why in found.failures.items():
        console.print(f"[yellow]note[/] {name} could not take part: {why}", soft_wrap=True)


def write(found: Comparison, out: Path) -> None:
    from gmlfm.tuning.table import headings, legend, lines, markdown, title

    write_text(out / "table.md", markdown(found))
    report = Report(title(found))
    report.table(headings(found), lines(found))
    report.text(legend(found))
    for name, why in found.failures.items():
        report.text(f"{name} could not take part: {why}")
    caption = f"{'NDCG@10' if found.task == 'topn' else 'RMSE'} on the test part, with 95 % intervals"
    ranges = {row.model: (row.low, row.means[found.metric], row.high) for row in found.rows}
    drawing = report.ranges(caption, ranges)
    report.write(out / "table.html")
    write_text(out / "picture.svg", drawing)
