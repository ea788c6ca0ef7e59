"""gmlfm train: fit a model and write a run folder."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gmlfm.cli.data import add_data_options
from gmlfm.cli.main import shared_options
from gmlfm.data.prepared import PreparedData
from gmlfm.data.sources import load_dataset
from gmlfm.data.splits import SPLITS
from gmlfm.errors import OptionError

if TYPE_CHECKING:
    from gmlfm.training.loop import EpochReport, Resumable


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="fit a model and write a run folder",
        description="Split, encode, train with early stopping on validation, and save. Stopped in the middle, --resume goes on "
        "from the last epoch to the same weights.",
    )
    parser.add_argument(
        "data", metavar="DATA", help="a name, a folder with a dataset.toml or a prepared one, or the path of a .toml"
    )
    parser.add_argument("--model", default="gml-fm", metavar="NAME", help="see gmlfm models (default: gml-fm)")
    parser.add_argument("--out", required=True, metavar="RUN", help="the run folder to write")
    parser.add_argument("--task", default="topn", metavar="TASK", help="topn, rating or implicit (default: topn)")
    parser.add_argument("--split", default="leave-one-out", metavar="NAME", help=f"one of {', '.join(SPLITS)}")
    parser.add_argument(
        "--refit", nargs="?", const="yes", choices=("yes", "all"), help="train again on train + validation, or on all rows"
    )
    parser.add_argument("--seed", type=int, help="of weights, negatives and order (default: 0)")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="a setting, such as k=32 or lr=0.001"
    )
    parser.add_argument("--config", metavar="FILE", help="settings from a TOML file; --set goes before it")
    parser.add_argument("--preset", metavar="NAME", help="paper: train as published")
    parser.add_argument("--resume", action="store_true", help="go on where an earlier run of the same command stopped")
    add_data_options(parser)
    shared_options(parser)
    parser.set_defaults(run=run)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """--config, then --set, then --seed and --threads."""
    given: dict[str, Any] = {}
    if options.config:
        try:
            given.update(tomllib.loads(Path(options.config).read_text(encoding="utf-8-sig")))
        except (OSError, ValueError) as error:
            raise OptionError(f"--config {options.config} cannot be read ({error}).") from error
    for one in options.settings:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise OptionError(f"--set takes KEY=VALUE, such as k=32; got '{one}'.")
        given[name.strip()] = value.strip()
    for name in given.keys() & {"device", "model", "preset", "task"}:
        raise OptionError(f"{name} is an option of its own; use --{name} {given[name]}.")
    if options.seed is not None:
        given["seed"] = options.seed
    if options.threads is not None:
        if options.threads < 1:
            raise OptionError(f"--threads is {options.threads}; expected 1 or more.")
        given["threads"] = options.threads
    return given


def run(options: argparse.Namespace) -> None:
    from gmlfm.recommender import Recommender

    recommender = Recommender(options.model, options.task, preset=options.preset, device=options.device, **settings_of(options))
    prepared = (Path(options.data) / "prepared.json").is_file()
    data = (
        PreparedData(options.data)
        if prepared
        else load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    )
    refit: bool | str = options.refit == "yes" or (options.refit or False)
    console = Console(stderr=options.json)
    with TrainingBar(console) as bar:
        recommender.fit(data, options.split, refit=refit, out=options.out, resume=options.resume, observer=bar)
    fitted = recommender.fitted
    for note in fitted.split.notes:
        console.print(f"[cyan]note[/] {note}", soft_wrap=True)
    if options.json:
        told = {"run": options.out, "best_epoch": fitted.best_epoch, "validation": fitted.validation}
        print(json.dumps({**told, "data_hash": fitted.data.content_hash, "split_hash": fitted.split.hash}))
        return
    found = ", ".join(f"{name} {value:.4f}" for name, value in fitted.validation.items())
    part = "TEST, as published," if fitted.validation_protocol == "paper" else "validation"
    if fitted.history:
        console.print(f"Best epoch {fitted.best_epoch}" + (f": {part} {found}" if found else "") + f" ({fitted.regime}).")
    console.print(f"Saved in [bold]{options.out}[/]. Next: gmlfm evaluate {options.out}", soft_wrap=True)


class TrainingBar:
    """A bar a training, and a line an epoch."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._task = self._progress.add_task("epoch 1", total=None, told="")
        self._shown = 0

    def __enter__(self) -> TrainingBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_step(self, done: int, total: int, loss: float) -> None:
        self._progress.update(self._task, completed=done, total=total, told=f"loss {loss:.4f}")

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        found = "  ".join(f"{name} {value:.4f}" for name, value in report.validation.items())
        best = "  best so far" if report.best and report.validation else ""
        speed = f"{report.instances_per_second / 1e3:.0f} k instances/s"
        self._console.print(
            f"epoch {report.epoch:>3}  loss {report.loss:.4f}  {found}  {speed}{best}", highlight=False, soft_wrap=True
        )
        self._progress.update(self._task, description=f"epoch {report.epoch + 1}", completed=0)
