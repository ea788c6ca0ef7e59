"""gmlfm bench train: instances a second, side by side with other ways to train, and the time to a given quality."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gmlfm.cli.data import add_data_options
from gmlfm.cli.main import shared_options
from gmlfm.errors import OptionError

if TYPE_CHECKING:
    from gmlfm.training.loop import EpochReport, Resumable


def add_to(kinds: Any) -> None:
    parser: argparse.ArgumentParser = kinds.add_parser(
        "train",
        help="training steps, and the time to a given quality",
        description="Full training steps, every parameter updated, on batches made beforehand. --against runs another way "
        "beside ours in alternating rounds, each in a process of its own, all in PyTorch operation by operation with a dense "
        "table and fused Adam: 'factored' is the paper's K^2 form by outer products, 'factored-product' the same by one matrix "
        "product an instance, 'eager' our own model. --until trains from nothing, loading and evaluation included, until a "
        "validation result is reached.",
    )
    parser.add_argument("data", nargs="?", default="bazaar", metavar="DATA")
    parser.add_argument("--model", default="gml-fm", metavar="NAME")
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4096, metavar="N", help="instances a step (default: 4096)")
    parser.add_argument("--threads", type=int, metavar="N", help="(default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="a round takes at least (default: 2)")
    parser.add_argument("--against", choices=("factored", "factored-product", "eager"))
    parser.add_argument("--until", metavar="METRIC=X", help="such as hr@10=0.71 or ndcg@10=0.42, on validation")
    parser.add_argument("--seed", type=int, default=0, help="of --until")
    add_data_options(parser)
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    import torch

    for name, least in (("k", 1), ("batch", 1), ("rounds", 1)):
        if getattr(options, name) < least:
            raise OptionError(f"--{name} is {getattr(options, name)}; expected {least} or more.")
    if options.threads is not None and options.threads < 1:
        raise OptionError(f"--threads is {options.threads}; expected 1 or more.")
    if not 0 < options.seconds < float("inf"):
        raise OptionError(f"--seconds is {options.seconds}; expected a number above 0.")
    threads = options.threads or torch.get_num_threads()
    if options.until:
        told = _until(options, threads)
    else:
        from gmlfm.bench.contenders import Task
        from gmlfm.bench.training import measure
        from gmlfm.fitting.plan import chosen_device

        device = chosen_device(options.device)
        task = Task(options.data, options.data_root, options.model, "ours", options.k, options.batch, threads, device)
        told = measure(task, [options.against] if options.against else [], options.rounds, options.seconds)
    if options.json:
        print(json.dumps(told))
        return
    console = Console(highlight=False)
    for name, value in _flat(told).items():
        console.print(f"{name:>36}  {_shown(name, value)}", soft_wrap=True)


class _ReachedError(Exception):
    """The wanted validation result is there."""


class _Watch:
    def __init__(self, metric: str, wanted: float) -> None:
        self._metric, self._wanted = metric, wanted
        self.epochs: list[dict[str, Any]] = []
        self.started = time.perf_counter()

    def on_step(self, done: int, total: int, loss: float) -> None:
        pass

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self.epochs.append({"seconds": time.perf_counter() - self.started, "epoch": report.epoch, **report.validation})
        if self._metric not in report.validation:
            raise OptionError(f"--until names '{self._metric}'; validation tells {', '.join(report.validation)}.")
        if report.validation[self._metric] >= self._wanted:
            raise _ReachedError


def _until(options: argparse.Namespace, threads: int) -> dict[str, Any]:
    """Wall time from before the data are read."""
    metric, equals, wanted = options.until.partition("=")
    try:
        watch = _Watch(metric.strip(), float(wanted))
    except ValueError:
        equals = ""
    if not equals:
        raise OptionError(f"--until takes METRIC=X, such as hr@10=0.71; got '{options.until}'.")
    from gmlfm.bench.contenders import refuse_untrained
    from gmlfm.data.sources import load_dataset
    from gmlfm.recommender import Recommender

    refuse_untrained(options.model)

    settings: dict[str, Any] = {"k": options.k, "batch_size": options.batch, "threads": threads, "seed": options.seed}
    recommender = Recommender(options.model, device=options.device, **settings)
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    loaded = time.perf_counter() - watch.started
    reached = False
    try:
        recommender.fit(data, observer=watch)
    except _ReachedError:
        reached = True
    told = {"data": options.data, "model": options.model, **settings, "until": options.until, "reached": reached}
    return {**told, "loading_seconds": loaded, "seconds": watch.epochs[-1]["seconds"], "epochs": watch.epochs}


def _flat(told: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in told.items() if name not in ("rounds", "roofline", "epochs")}
    for name, value in told.get("roofline", {}).items():
        shown[f"roofline {name}"] = value
    for one in told.get("epochs", []):
        shown[f"epoch {one['epoch']}"] = "  ".join(f"{name} {value:.4g}" for name, value in one.items() if name != "epoch")
    return shown


def _shown(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if "per_second" in name else f"{value:.4g}"
    return str(value)
