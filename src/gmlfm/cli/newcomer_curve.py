"""gmlfm evaluate RUN --curve: how soon somebody new is known, as a table, JSON and a picture."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gmlfm.cli.options import comma_list
from gmlfm.cli.output import console_for, note, print_json, verbatim
from gmlfm.cli.pictures import lines_with_intervals, picture_path, write_picture
from gmlfm.errors import OptionError
from gmlfm.progress import activity

if TYPE_CHECKING:
    from gmlfm.evaluation.newcomer_curve import NewcomerCurve
    from gmlfm.fitting import FittedRun

INTERVAL = "normal, over users"


def add_curve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--curve",
        action="store_true",
        help="the newcomer's curve: a target of each user whom training never met, with the last rows before it given",
    )
    parser.add_argument("--counts", metavar="N,...", help="of the curve: how many rows are given (default: 0,1,3,5,10)")


def check_curve_options(options: argparse.Namespace) -> None:
    for name in ("counts", "picture"):
        if getattr(options, name) is not None and not options.curve:
            raise OptionError(f"--{name} belongs to the newcomer's curve; give --curve, too.")
    picture_path(options.picture)


def show_curve(fitted: FittedRun, options: argparse.Namespace, cutoffs: tuple[int, ...]) -> None:
    from gmlfm.recommender.evaluating import evaluate_curve

    counts, picture = counts_of(options.counts), picture_path(options.picture)
    with activity(f"evaluating {fitted.settings.model} on newcomers", "rows") as shown:
        curve = evaluate_curve(
            fitted, counts, options.protocol, options.part, options.seed, cutoffs, options.users, shown.update
        )
    metric = f"ndcg@{max(cutoffs)}"
    if picture is not None:
        with activity(f"drawing {picture}"):
            caption = f"{metric} of newcomers by the number of their rows that are given"
            write_picture(
                lines_with_intervals(drawn(curve, metric, fitted.settings.model), "rows given", metric), caption, picture
            )
    if options.json:
        print_json(as_json(options, fitted, curve))
        return
    console = console_for()
    title = f"{fitted.settings.model} on {fitted.data.name}, newcomers of the {options.part} part ({options.protocol}), "
    console.print(verbatim(title + fitted.refit.label), soft_wrap=True, highlight=False)
    console.print(_table(curve))
    first = next(iter(curve.points.values()))
    for message in (*curve.notes, f"a target of each of {len(first.rows):,} newcomers; ± is the 95 % interval, {INTERVAL}."):
        note(console, message)


def counts_of(text: str | None) -> tuple[int, ...]:
    from gmlfm.evaluation.newcomer_curve import COUNTS, MOST_GIVEN

    if text is None:
        return COUNTS
    numbers = comma_list(text)
    if not numbers or not all(number.isdecimal() and int(number) <= MOST_GIVEN for number in numbers):
        raise OptionError(f"--counts takes whole numbers from 0 to {MOST_GIVEN:,}, such as 0,1,3,5,10; got '{text}'.")
    return tuple(sorted({int(number) for number in numbers}))


def drawn(curve: NewcomerCurve, metric: str, model: str) -> dict[str, dict[float, tuple[float, float, float]]]:
    """For each line its points: rows given -> low, mean, high."""
    points: dict[float, tuple[float, float, float]] = {
        count: _with_interval(evaluation.metrics[metric], evaluation.intervals.get(metric))
        for count, evaluation in curve.points.items()
    }
    popular = _with_interval(curve.baseline.metrics[metric], curve.baseline.intervals.get(metric))
    return {model: points, "popularity": dict.fromkeys(points, popular)}


def _with_interval(mean: float, interval: tuple[float, float] | None) -> tuple[float, float, float]:
    low, high = (mean, mean) if interval is None else interval
    return low, mean, high


def as_json(options: argparse.Namespace, fitted: FittedRun, curve: NewcomerCurve) -> dict[str, Any]:
    first = next(iter(curve.points.values()))
    points = [
        {
            "given": count,
            **evaluation.metrics,
            "standard_errors": evaluation.errors,
            "intervals": evaluation.intervals,
        }
        for count, evaluation in curve.points.items()
    ]
    return {
        "run": options.run_folder,
        "model": fitted.settings.model,
        "protocol": options.protocol,
        "part": options.part,
        "refit": fitted.refit.value,
        "split_hash": fitted.split.hash,
        "candidates_hash": first.candidates_hash,
        "newcomers": len(first.rows),
        "interval": INTERVAL,
        "curve": points,
        "baseline": {"name": "popularity", **curve.baseline.metrics, "intervals": curve.baseline.intervals},
        **({"notes": list(curve.notes)} if curve.notes else {}),
    }


def _table(curve: NewcomerCurve) -> Table:
    """A column for each number of rows given, popularity behind them; a metric's interval stands below its mean."""
    table = Table(header_style="bold")
    columns = {**{str(count): evaluation for count, evaluation in curve.points.items()}, "popularity": curve.baseline}
    for heading in ("rows given", *columns):
        table.add_column(heading, justify="left" if heading == "rows given" else "right")
    for name in next(iter(curve.points.values())).queries:
        table.add_row(name, *(_shown(part.metrics[name], part.intervals.get(name)) for part in columns.values()))
    return table


def _shown(mean: float, interval: tuple[float, float] | None) -> str:
    return f"{mean:.4f}" if interval is None else f"{mean:.4f}\n± {(interval[1] - interval[0]) / 2:.3f}"
