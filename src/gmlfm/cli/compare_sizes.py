"""gmlfm compare --sizes: quality against bytes and seconds, for each k."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from gmlfm.cli.options import comma_list, set_values, split_of
from gmlfm.cli.output import console_for, note, print_json, verbatim
from gmlfm.cli.pictures import PanelPoint, panels_of_lines, to_svg
from gmlfm.data.sources import load_dataset
from gmlfm.errors import OptionError
from gmlfm.progress import activity
from gmlfm.storage import write_text

if TYPE_CHECKING:
    from gmlfm.tuning.sizes import Sizes, SizesPlan

USUAL = "8,16,32,64,128"
_SENSELESS = {  # by option: why it makes no sense with sizes
    "trials": "nothing is searched",
    "seconds": "nothing is searched, and every k is trained whole",
    "protocol": "both protocols are shown",
    "no_refit": "nothing is refitted or tested",
    "preset": "it chooses on the test part",
}


def add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes",
        nargs="?",
        const=USUAL,
        metavar="K,...",
        help=f"instead: train each model at these k (default: {USUAL}) with its defaults and --set, and show its quality on "
        "validation against bytes and seconds: sizes.json, sizes.md and sizes.svg",
    )


def run_sizes(options: argparse.Namespace) -> None:
    from gmlfm.tuning.sizes import compare_sizes

    plan = _plan(options)
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    out, console = Path(options.out), console_for(stderr=options.json)
    sizes = compare_sizes(data, plan, out, threads=options.threads, device=options.device)
    with activity("drawing"):
        write_sizes(sizes, out)
    if options.json:
        print_json(asdict(sizes))
        return
    show_sizes(sizes, console)
    console.print(f"Also in [bold]{verbatim(out / 'sizes.md')}[/], sizes.json and sizes.svg.", soft_wrap=True)


def _plan(options: argparse.Namespace) -> SizesPlan:
    from gmlfm.tuning.sizes import SizesPlan

    for name, why in _SENSELESS.items():
        if getattr(options, name) not in (None, False):
            raise OptionError(f"--{name.replace('_', '-')} makes no sense with --sizes: {why}; leave it out.")
    if options.task != "topn":
        raise OptionError(f"--sizes compares rankings; leave --task {options.task} out.")
    numbers = comma_list(options.sizes)
    if not numbers or not all(number.isdecimal() for number in numbers):
        raise OptionError(f"--sizes takes whole numbers, such as {USUAL}; got '{options.sizes}'. Write DATA before it.")
    split, split_options = split_of(options)
    sizes = tuple(int(number) for number in numbers)
    seeds = 1 if options.seeds is None else options.seeds
    models = tuple(comma_list(options.models))
    plan = SizesPlan(models, sizes, split, seeds, options.seed, set_values(options), split_options, options.inputs)
    plan.check()
    return plan


def show_sizes(sizes: Sizes, console: Console) -> None:
    """Two tables, so that a terminal of 80 columns has room."""
    from gmlfm.tuning.size_table import size_headings, size_legend, size_rows, size_title

    names, rows = size_headings(), size_rows(sizes)
    console.print(verbatim(size_title(sizes)), highlight=False)
    for title, places in {"Quality": [0, 1, 2, 3, 4, 5], "Size": [0, 1, 6, 7, 8, 9, 10]}.items():
        table = Table(title=title, title_justify="left", header_style="bold")
        for place in places:
            table.add_column(names[place], justify="left" if place in (0, 10) else "right", overflow="fold")
        for row in rows:
            table.add_row(*(verbatim(row[place]) for place in places))
        console.print(table)
    console.print(verbatim(size_legend(sizes)), highlight=False)
    for name, why in sizes.failures.items():
        note(console, f"{name} failed: {why}")


def write_sizes(sizes: Sizes, out: Path) -> None:
    """sizes.json is there already."""
    from gmlfm.tuning.size_table import size_markdown

    write_text(out / "sizes.md", size_markdown(sizes))
    if sizes.points:
        caption = "NDCG@10 (full) on validation against bytes and seconds, a line for each model through its k"
        write_text(out / "sizes.svg", to_svg(panels_of_lines(drawn_sizes(sizes), "NDCG@10, validation, full"), caption))


def drawn_sizes(sizes: Sizes) -> dict[str, dict[str, list[PanelPoint]]]:
    """By axis and model the points, in the order of k."""
    from gmlfm.tuning.size_table import NAMES
    from gmlfm.tuning.sizes import AXES

    panels: dict[str, dict[str, list[PanelPoint]]] = {}
    for axis in AXES:
        lines: dict[str, Any] = {model: [] for model in dict.fromkeys(point.model for point in sizes.points)}
        for point in sorted(sizes.points, key=lambda point: point.k):
            cost = getattr(point, axis)
            if cost is not None:
                lines[point.model].append(PanelPoint(float(cost), point.quality, f"{point.k}", axis in point.best_on))
        panels[NAMES[axis]] = lines
    return panels
