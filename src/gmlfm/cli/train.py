"""gmlfm train: fit a model and write a run folder."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmlfm.cli.options import (
    DATA_HELP,
    MODEL_HELP,
    add_command,
    add_data_options,
    add_settings,
    add_split,
    settings_of,
    shared_options,
    shared_settings,
    split_of,
)
from gmlfm.cli.output import console_for, note, print_json, verbatim, warnings_as_notes
from gmlfm.cli.progress import EpochLines
from gmlfm.cli.run_report import leave_report, next_commands
from gmlfm.data.prepared import PreparedData
from gmlfm.data.sources import load_dataset
from gmlfm.reading import is_regular

if TYPE_CHECKING:
    from gmlfm.training.settings import Settings


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "train",
        "fit a model and write a run folder",
        "Split, encode, train with early stopping on validation, and save. Stopped in the middle, --resume goes on from the "
        "last epoch to the same weights.",
        [
            "gmlfm train bazaar --out runs/bazaar",
            "gmlfm train ml-1m --model fm --set k=32 --set lr=0.001 --seed 1 --out runs/fm",
            "gmlfm train shop --model my_package.my_module:MyModel --refit --out runs/mine",
            "gmlfm train shop --split files --split-file test=test.tsv --split-file test-candidates=lists.tsv --out runs/pub",
        ],
    )
    parser.add_argument("data", metavar="DATA", help=f"{DATA_HELP}; or a prepared folder")
    parser.add_argument("--model", default="gml-fm", metavar="NAME", help=MODEL_HELP)
    parser.add_argument("--out", required=True, metavar="RUN", help="the run folder to write")
    parser.add_argument("--task", default="topn", metavar="TASK", help="topn, rating or implicit (default: topn)")
    add_split(parser)
    parser.add_argument(
        "--refit", nargs="?", const="yes", choices=("yes", "all"), help="train again on train + validation, or on all rows"
    )
    parser.add_argument("--seed", type=int, help="of weights, negatives and order (default: 0)")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    add_settings(parser)
    parser.add_argument("--config", metavar="FILE", help="settings from a TOML file; --set goes before it")
    parser.add_argument("--preset", metavar="NAME", help="paper: train as published")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier run of the same command stopped")
    parser.add_argument("--force", action="store_true", help="replace the run that is in the folder")
    add_data_options(parser)
    shared_options(parser)
    parser.set_defaults(run=run, help_ends_in=shared_settings)


def run(options: argparse.Namespace) -> None:
    from gmlfm.recommender import Recommender
    from gmlfm.training.trainer import DivergedError, TrainingInterrupted

    recommender = Recommender(options.model, options.task, preset=options.preset, device=options.device, **settings_of(options))
    prepared = is_regular(Path(options.data) / "prepared.json")
    data = (
        PreparedData(options.data)
        if prepared
        else load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    )
    split, split_options = split_of(options)
    refit: bool | str = options.refit == "yes" or (options.refit or False)
    console = console_for(stderr=options.json)
    try:
        with warnings_as_notes(console):
            recommender.fit(
                data,
                split,
                split_options=split_options,
                refit=refit,
                out=options.out,
                resume=options.resume,
                force=options.force,
                observer=EpochLines(console),
            )
    except TrainingInterrupted as error:
        message = (
            f"interrupted; the best epoch so far, {error.best_epoch}, is saved in {options.out}. Go on: {_resuming(options)}"
        )
        raise TrainingInterrupted(error.best_epoch, message) from error
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"interrupted before the first epoch ended; {options.out} holds nothing new.") from error
    except DivergedError as error:
        if not recommender.is_fitted:
            raise
        note(console, str(error))  # the best epoch before it stands
    fitted = recommender.fitted
    for message in (*_history_taken(recommender.settings, fitted.settings), *fitted.split.notes):
        note(console, message)
    commands = next_commands(fitted, options.out, options.model)
    report = leave_report(fitted, Path(options.out), commands, console)
    if options.json:
        about = {"run": options.out, "best_epoch": fitted.best_epoch, "validation": fitted.validation}
        about |= {"diverged": fitted.report.diverged} if fitted.report.diverged else {}
        about |= {"report": str(report)} if report else {}
        print_json({**about, "data_hash": fitted.data.content_hash, "split_hash": fitted.split.hash})
        return
    metrics = ", ".join(f"{name} {value:.4f}" for name, value in fitted.validation.items())
    protocol = f" ({fitted.validation_protocol})" if fitted.validation_protocol else ""
    part = "TEST, as published," if fitted.validation_protocol == "paper" else f"validation{protocol}"
    if fitted.curve:
        result = f": {part} {metrics}" if metrics else ""
        console.print(f"Best epoch {fitted.best_epoch}{result} ({fitted.refit.label}).")
    elif metrics:
        console.print(f"{part[0].upper()}{part[1:]} {metrics} ({fitted.refit.label}).")
    page = f", with curves and settings in {report.name}" if report else ""
    console.print(f"Saved in [bold]{verbatim(options.out)}[/]{page}. Next: {verbatim(commands[0])}", soft_wrap=True)


def _history_taken(asked: Settings, taken: Settings) -> list[str]:
    """What history = auto came to, and why."""
    from gmlfm.training.history_options import AUTO_HISTORY

    if not asked.has_history_settings or asked.history.history != AUTO_HISTORY:
        return []
    if taken.history.roles:
        return [f"history is auto: on ({taken.history.history}), as for top-n where times differ; none trains without."]
    why = "the data do not say what came before what"
    if taken.preset is not None:
        why = f"the preset '{taken.preset}' has none"
    elif taken.task != "topn":
        why = f"the task is {taken.task}"
    return [f"history is auto: none, as {why}."]


def _resuming(options: argparse.Namespace) -> str:
    """The command that goes on with this training."""
    words = [word for word in options.words if word not in ("--force", "--resume")]
    return shlex.join(["gmlfm", *words, "--resume"])
