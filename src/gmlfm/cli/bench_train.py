"""gmlfm bench train: instances a second, side by side with other ways to train, and the time to a given quality."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from gmlfm.cli.options import DATA_HELP, MODEL_HELP, add_command, add_data_options, add_settings, settings_of, shared_options
from gmlfm.cli.output import console_for, print_json
from gmlfm.errors import OptionError

if TYPE_CHECKING:
    from gmlfm.training.trainer import EpochReport, Resumable


def add_to(kinds: Any) -> None:
    parser = add_command(
        kinds,
        "train",
        "training steps, and the time to a given quality",
        "Full training steps, every parameter updated, on batches made beforehand. --against runs another way "
        "beside ours in alternating rounds, each in a process of its own, all in PyTorch operation by operation with a dense "
        "table and fused Adam: 'factored' is the paper's K^2 form by outer products, 'factored-product' the same by one matrix "
        "product an instance, 'eager' our own model. Where what users did before is read, steps count whole, their drawing "
        "included, beside a large matrix product of the same threads, and any setting may be given; 'torch' is the same form "
        "in plain PyTorch by embedding bags, 'torch-items' that with the vector of each earlier item computed once, "
        "'torch-unfused' that with Adam as it is by default (steps with ids hidden are ours alone: cold_start_rate=0), "
        "'sasrec' that model. --until trains from nothing, loading and evaluation included, until a "
        "validation result is reached.",
        [
            "gmlfm bench train --model gml-fm-unit --against factored",
            "gmlfm bench train ml-1m --set history=none --set k=64 --set batch_size=256 --threads 2 --against eager --json",
            "gmlfm bench train ml-1m --until hr@10=0.71",
            "gmlfm bench train ml-1m --model fm --set history=last,recent,past --set negatives=512 --against torch",
        ],
    )
    parser.add_argument("data", nargs="?", default="bazaar", metavar="DATA", help=f"{DATA_HELP} (default: bazaar)")
    parser.add_argument("--model", default="gml-fm", metavar="NAME", help=MODEL_HELP)
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    add_settings(parser, "k=32 or batch_size=256, the instances a step (default: k=64; 4096, with a history as in training)")
    parser.add_argument("--threads", type=int, metavar="N", help="(default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="a round takes at least (default: 2)")
    others = ("factored", "factored-product", "eager", "torch", "torch-items", "torch-unfused", "sasrec")
    parser.add_argument("--against", choices=others)
    parser.add_argument("--until", metavar="METRIC=X", help="such as hr@10=0.71 or ndcg@10=0.42, on validation")
    parser.add_argument("--seed", type=int, default=0, help="of --until")
    add_data_options(parser)
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    import torch

    if options.rounds < 1:
        raise OptionError(f"--rounds is {options.rounds}; expected 1 or more.")
    if not 0 < options.seconds < float("inf"):
        raise OptionError(f"--seconds is {options.seconds}; expected a number above 0.")
    from gmlfm.bench.contenders import reads_history

    given = settings_of(options)
    given |= {name: _count(name, given[name]) for name in ("k", "batch_size", "threads") if name in given}
    usual = {"k": 64, "threads": torch.get_num_threads()}
    if not reads_history(options.model, given):
        usual["batch_size"] = 4096
    settings = {**usual, **given}
    measured = _until(options, settings) if options.until else _steps(options, settings)
    if options.json:
        print_json(measured)
        return
    console = console_for(highlight=False)
    for name, value in _flat(measured).items():
        console.print(f"{name:>36}  {_shown(name, value)}", soft_wrap=True)


def _steps(options: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """Instances a second over batches made beforehand."""
    from gmlfm.bench.contenders import Task, reads_history
    from gmlfm.bench.training import measure
    from gmlfm.fitting.plan import chosen_device

    more = {name: value for name, value in settings.items() if name not in ("k", "batch_size", "threads", "seed")}
    if not reads_history(options.model, more):
        for name in more.keys() - {"history"}:
            raise OptionError(f"bench train measures steps by k and batch_size alone; '{name}' goes with --until only.")
        more = {name: more[name] for name in more.keys() & {"history"}}
    k, batch, threads = settings["k"], settings.get("batch_size"), settings["threads"]
    device = chosen_device(options.device)
    task = Task(options.data, options.data_root, options.model, "ours", k, batch, threads, device, settings=more)
    return measure(task, [options.against] if options.against else [], options.rounds, options.seconds)


def _count(name: str, value: Any) -> int:
    if not str(value).isdecimal() or int(value) < 1:
        raise OptionError(f"{name} is {value}; expected a whole number of 1 or more.")
    return int(value)


class _ReachedError(Exception):
    """The validation result that was waited for is reached."""


class _Watch:
    """Times each epoch, and ends the training at the target."""

    def __init__(self, metric: str, target: float) -> None:
        self._metric, self._target = metric, target
        self.epochs: list[dict[str, Any]] = []
        self.started = time.perf_counter()

    def on_step(self, done: int, total: int, loss: float) -> None:
        pass

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self.epochs.append({"seconds": time.perf_counter() - self.started, "epoch": report.epoch, **report.validation})
        if self._metric not in report.validation:
            raise OptionError(f"--until names '{self._metric}'; validation tells {', '.join(report.validation)}.")
        if report.validation[self._metric] >= self._target:
            raise _ReachedError


def _until(options: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """Wall time from before the data are read."""
    metric, equals, target = options.until.partition("=")
    try:
        watch = _Watch(metric.strip(), float(target))
    except ValueError:
        equals = ""
    if not equals:
        raise OptionError(f"--until takes METRIC=X, such as hr@10=0.71; got '{options.until}'.")
    from gmlfm.bench.contenders import refuse_untrained
    from gmlfm.data.sources import load_dataset
    from gmlfm.recommender import Recommender

    refuse_untrained(options.model)
    recommender = Recommender(options.model, device=options.device, **settings)
    typed = recommender.settings.to_dict()["settings"]
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    loading_seconds = time.perf_counter() - watch.started
    reached = False
    try:
        recommender.fit(data, observer=watch)
    except _ReachedError:
        reached = True
    about = {"data": options.data, "model": options.model, **{name: typed.get(name, settings[name]) for name in settings}}
    outcome = {"until": options.until, "reached": reached, "loading_seconds": loading_seconds}
    return {**about, **outcome, "seconds": watch.epochs[-1]["seconds"], "epochs": watch.epochs}


def _flat(measured: dict[str, Any]) -> dict[str, Any]:
    shown = {
        name: value for name, value in measured.items() if name not in ("rounds", "roofline", "by_processor_time", "epochs")
    }
    for part, words in (("roofline", "roofline"), ("by_processor_time", "by processor time")):
        shown |= {f"{words} {name}": value for name, value in measured.get(part, {}).items()}
    for epoch in measured.get("epochs", []):
        values = "  ".join(f"{name} {value:.4g}" for name, value in epoch.items() if name != "epoch")
        shown[f"epoch {epoch['epoch']}"] = values
    return shown


def _shown(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if "per_second" in name else f"{value:.4g}"
    return str(value)
