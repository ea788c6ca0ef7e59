"""gmlfm compare: several methods under equal budgets, one table, significance."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from gmlfm.cli.compare_sizes import add_sizes, run_sizes
from gmlfm.cli.options import DATA_HELP, add_command, add_settings, comma_list, set_values, split_of
from gmlfm.cli.output import console_for, note, print_json, verbatim
from gmlfm.cli.report import Report
from gmlfm.cli.tune import add_search_options, budget_of
from gmlfm.data.sources import load_dataset
from gmlfm.progress import activity
from gmlfm.storage import write_text

if TYPE_CHECKING:
    from gmlfm.tuning import Comparison


_MOST = {"method": 12}  # characters of a column on a narrow terminal; others have 20
_WORDS = ("method", "against the best other", "best values at a border")


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "compare",
        "several methods under equal budgets, one table",
        "Tune each model with the same budget on validation, train the best settings with several seeds, test "
        "once, and write table.md, table.html and picture.svg. Stopped in the middle, the same command goes on. "
        "--seconds are those of the whole command: each model has an equal share for its search and its final trainings, which "
        "are estimated from its trials and set apart. A model gets three trials and its final trainings even where its share "
        "is too small; that is said after the first trial of each, and the table shows the share. A trial that the end of the "
        "share cuts short counts if it has a whole epoch; the seconds of a killed trial or training do not count. A model that "
        "still rises when its seconds end gets half as many epochs again in its final trainings, and the table says so. "
        "--inputs keeps models that know who and what alone apart from models that read what users did before.",
        [
            "gmlfm compare bazaar --models gml-fm,fm,popularity --trials 10 --out studies/bazaar",
            "gmlfm compare bazaar --models fm,my_package.my_module:MyModel --seconds 1200 --out studies/mine",
            "gmlfm compare bazaar --models gml-fm,fm,mf --set k=64 --set gml-fm.layers=1 --seconds 1800 --out studies/k64",
            "gmlfm compare bazaar --inputs paper --models gml-fm,fm,mf,ease,popularity --seconds 1800 --out studies/paper",
            "gmlfm compare bazaar --inputs history --models gml-fm,fm,sasrec,ease --seconds 3600 --out studies/history",
            "gmlfm compare bazaar --inputs history --models gml-fm,fm --sizes 8,16,32 --out studies/sizes",
        ],
    )
    parser.add_argument("data", metavar="DATA", help=DATA_HELP)
    parser.add_argument("--models", required=True, metavar="A,B,C", help="see gmlfm models; or module:Class, your own")
    parser.add_argument("--seeds", type=int, metavar="N", help="trainings of the best settings (default: 3; of --sizes: 1)")
    parser.add_argument("--protocol", metavar="NAME", help="of the test: full, sampled or paper (default: full)")
    parser.add_argument(
        "--inputs",
        metavar="KIND",
        help="what all methods read of a user: paper (who and what alone) or history (what they did before, too); "
        "without it each reads what its settings say, and the table says so",
    )
    parser.add_argument("--no-refit", action="store_true", help="test what was trained without the validation rows")
    add_sizes(parser)
    add_search_options(parser, "instead: of the whole command, an equal share for each model's search and final trainings")
    about = "a setting that is fixed, not searched: KEY for every model that has it, MODEL.KEY for one; such as"
    add_settings(parser, "k=64 or fm.lr=0.001", about)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.tuning import Plan, compare

    if options.sizes is not None:
        run_sizes(options)
        return
    split, split_options = split_of(options)
    plan = Plan(
        tuple(comma_list(options.models)),
        options.task,
        split,
        "full" if options.protocol is None else options.protocol,
        3 if options.seeds is None else options.seeds,
        not options.no_refit,
        options.seed,
        options.preset,
        set_values(options),
        split_options,
        options.inputs,
    )
    plan.check()
    budget = budget_of(options)
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    out = Path(options.out)
    console = console_for(stderr=options.json)
    comparison = compare(
        data,
        plan,
        budget,
        out,
        threads=options.threads,
        device=options.device,
        note=lambda message: note(console, message),
    )
    with activity("drawing"):
        write(comparison, out)
    if options.json:
        print_json(asdict(comparison))
        return
    show(comparison, console)
    console.print(f"Also in [bold]{verbatim(out / 'table.md')}[/], table.html and picture.svg.", soft_wrap=True)


def show(comparison: Comparison, console: Console) -> None:
    """Two tables, so that a terminal of 80 columns has room: what the test says, and how the settings were found."""
    from gmlfm.tuning.table import FIXED, N_RESULTS, headings, legend, text_rows, title

    names, rows = headings(comparison), text_rows(comparison)
    is_fixed = names[-1] == FIXED
    columns = {"Test": list(range(N_RESULTS)), "Search": [0, *range(N_RESULTS, len(names) - is_fixed)]}
    console.print(verbatim(title(comparison)), highlight=False)
    for part, places in columns.items():
        cells = {names[place]: [row[place] for row in rows] for place in places}
        widths = {name: max(map(len, (name, *texts))) for name, texts in cells.items()}
        if sum(widths.values()) + 3 * len(widths) + 1 > console.width:
            widths = {name: min(_MOST.get(name, 20), _longest_part(name, texts)) for name, texts in cells.items()}
        table = Table(title=part, title_justify="left", header_style="bold")
        for name, width in widths.items():
            table.add_column(name, justify="left" if name in _WORDS else "right", overflow="fold", width=width)
        for row in zip(*cells.values(), strict=True):
            table.add_row(*(_broken(cell, width) for cell, width in zip(row, widths.values(), strict=True)))
        console.print(table)
    if is_fixed:
        fixed = "; ".join(f"{row[0]}: {row[-1]}" for row in rows if row[-1] != "-")
        console.print(verbatim(f"Fixed settings: {fixed}."), highlight=False)
    console.print(verbatim(legend(comparison)), highlight=False)
    for name, why in comparison.failures.items():
        note(console, f"{name} could not take part: {why}")


def _longest_part(heading: str, cells: Iterable[str]) -> int:
    """A heading may be broken between words, a cell after commas and before brackets."""
    parts = [part for cell in cells for part in re.split(r"(?<=,) | (?=\()", cell)]
    return max(map(len, (*heading.split(), *parts)))


def _broken(cell: str, width: int) -> str:
    """What stands in brackets has a line of its own where it does not fit beside the rest."""
    parts = re.split(r" (?=\()", cell) if len(cell) > width else [cell]
    return "\n".join(map(verbatim, parts))


def write(comparison: Comparison, out: Path) -> None:
    from gmlfm.tuning.table import headings, legend, markdown, text_rows, title

    write_text(out / "table.md", markdown(comparison))
    report = Report(title(comparison))
    report.table(headings(comparison), text_rows(comparison))
    report.text(legend(comparison))
    for name, why in comparison.failures.items():
        report.text(f"{name} could not take part: {why}")
    metric = "NDCG@10" if comparison.task == "topn" else "RMSE"
    caption = f"{metric} on the test part, with 95 % intervals"
    ranges = {row.model: (row.low, row.means[comparison.metric], row.high) for row in comparison.rows}
    drawing = report.ranges(caption, ranges, f"{metric}, {'higher' if comparison.task == 'topn' else 'lower'} is better")
    report.write(out / "table.html")
    write_text(out / "picture.svg", drawing)
