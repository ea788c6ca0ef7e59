"""gmlfm evaluate RUN: metrics on the held-out part, with their interval over users and a baseline beside them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gmlfm.cli.newcomer_curve import INTERVAL, add_curve, check_curve_options, show_curve
from gmlfm.cli.options import add_command, add_picture, add_run, comma_list, load_run, shared_options
from gmlfm.cli.output import console_for, note, print_json, verbatim
from gmlfm.errors import OptionError
from gmlfm.progress import activity

if TYPE_CHECKING:
    from gmlfm.evaluation.protocols import Evaluation
    from gmlfm.fitting import FittedRun

_HOW = {"full": "each item among all candidates", "sampled": "each item among 99 others", "paper": "as published"}


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "evaluate",
        "metrics of a run on its held-out part",
        "Rank each tested item among its candidates: full (every item the user never had; where items sell once, those that "
        "could be had), sampled (99 of them, seeded) or paper (as published, ties counting as hits). Metrics are expectations "
        "over tied orders, with their 95 % interval over users; beside them popularity, fitted on the same rows, over the same "
        "candidates (for ratings the mean of the training labels).",
        [
            "gmlfm evaluate runs/demo",
            "gmlfm evaluate runs/demo --protocol sampled --cutoffs 5,10,20 --json",
            "gmlfm evaluate runs/large --users 2000",
            "gmlfm evaluate runs/mine --curve --protocol sampled --picture curve.svg",
            "gmlfm evaluate runs/mine --model my_package.my_module:MyModel",
        ],
    )
    add_run(parser)
    parser.add_argument("--protocol", default="full", metavar="NAME", help="full, sampled or paper (default: full)")
    parser.add_argument("--part", default="test", metavar="PART", help="test or validation (default: test)")
    parser.add_argument("--cutoffs", metavar="N,...", help="lengths of the list that metrics look at, such as 5,10,20")
    parser.add_argument("--users", type=int, metavar="N", help="a seeded sample of so many tested users (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sampled candidates and users (default: 0)")
    add_curve(parser)
    add_picture(parser)
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.evaluation.protocols import check_protocol
    from gmlfm.recommender.evaluating import baseline_name

    cutoffs = _cutoffs(options.cutoffs)
    if options.users is not None and options.users < 1:
        raise OptionError(f"--users is {options.users}; expected a whole number of 1 or more.")
    check_curve_options(options)
    recommender = load_run(options)
    check_protocol(options.protocol, options.seed)
    fitted = recommender.fitted
    if options.curve:
        show_curve(fitted, options, cutoffs)
        return
    evaluation = _evaluated(fitted, options, cutoffs, baseline=False)
    baseline, name = _evaluated(fitted, options, cutoffs, baseline=True), baseline_name(fitted)
    if options.json:
        print_json(_as_json(options, fitted, evaluation, baseline, name))
        return
    console = console_for()
    published = fitted.settings.as_published
    how = f"{evaluation.protocol}: {_HOW[evaluation.protocol]}" if evaluation.protocol in _HOW else evaluation.protocol
    title = f"{fitted.settings.model} on {fitted.data.name}, {options.part} part ({how}), {fitted.refit.label}"
    console.print(verbatim(title) + (", TRAINED AS PUBLISHED" if published else ""), soft_wrap=True, highlight=False)
    console.print(_table(fitted.settings.model, evaluation, baseline, name))
    for message in _notes(evaluation, options.users):
        note(console, message)
    reasons = ["the epoch was chosen on the test part"] if published else []
    reasons += ["ties count as hits"] if evaluation.protocol == "paper" else []
    if reasons:
        note(console, f"for comparison with the published figures only: {' and '.join(reasons)}.")


def _evaluated(fitted: FittedRun, options: argparse.Namespace, cutoffs: tuple[int, ...], *, baseline: bool) -> Evaluation:
    from gmlfm.recommender.evaluating import baseline_name, evaluate_part

    name = baseline_name(fitted) if baseline else fitted.settings.model
    with activity(f"evaluating {name}", "rows") as shown:
        return evaluate_part(
            fitted, options.protocol, options.part, options.seed, cutoffs, options.users, shown.update, baseline=baseline
        )


def _as_json(
    options: argparse.Namespace, fitted: FittedRun, evaluation: Evaluation, baseline: Evaluation, baseline_name: str
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "run": options.run_folder,
        "model": fitted.settings.model,
        "protocol": evaluation.protocol,
        "part": options.part,
        "refit": fitted.refit.value,
        "split_hash": fitted.split.hash,
        "candidates_hash": evaluation.candidates_hash,
        **evaluation.metrics,
        "tested_rows": _n_rows(evaluation),
        "tested_users": len(set(evaluation.users.tolist())),
        "standard_errors": evaluation.errors,
        "intervals": evaluation.intervals,
        "interval": INTERVAL,
        "baseline": {"name": baseline_name, **baseline.metrics, "intervals": baseline.intervals},
    }
    more = {"groups": evaluation.groups, "notes": list(evaluation.notes)}
    if options.users is not None:
        more["sample_seed"] = options.seed
    if baseline.groups:
        result["baseline"]["groups"] = baseline.groups
    return result | {name: value for name, value in more.items() if value or name == "sample_seed"}


def _n_rows(evaluation: Evaluation) -> int:
    return len(next(iter(evaluation.queries.values())))


def _table(model: str, evaluation: Evaluation, baseline: Evaluation, baseline_name: str) -> Table:
    table = Table(header_style="bold")
    intervals, groups = evaluation.intervals, evaluation.groups
    for heading in ("", model, "95 % interval", baseline_name, *groups):
        table.add_column(heading, justify="right" if heading else "left")
    if groups:
        table.add_row("rows", f"{_n_rows(evaluation):,}", "", "", *(f"{means['rows']:,.0f}" for means in groups.values()))
    for name, value in evaluation.metrics.items():
        interval = "-" if name not in intervals else "{:.4f} - {:.4f}".format(*intervals[name])
        by_group = (f"{means[name]:.4f}" if name in means else "-" for means in groups.values())
        table.add_row(name, f"{value:.4f}", interval, f"{baseline.metrics[name]:.4f}", *by_group)
    return table


def _notes(evaluation: Evaluation, n_asked: int | None) -> list[str]:
    n_users = len(set(evaluation.users.tolist()))
    notes = [*evaluation.notes, f"{_n_rows(evaluation):,} rows of {n_users:,} users are tested; the interval is {INTERVAL}."]
    if n_asked is not None and n_asked <= n_users:
        errors = ", ".join(f"{name} {error:.4f}" for name, error in list(evaluation.errors.items())[:2])
        notes.append(f"standard errors of the sample: {errors}; coverage and novelty are those of the sample.")
    return notes


def _cutoffs(text: str | None) -> tuple[int, ...]:
    from gmlfm.retrieval import DEFAULT_N

    if text is None:
        return (DEFAULT_N,)
    numbers = comma_list(text)
    if not numbers or not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise OptionError(f"--cutoffs takes whole numbers of 1 or more, such as 5,10,20; got '{text}'.")
    return tuple(int(number) for number in numbers)
