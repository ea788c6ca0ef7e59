"""Whether sasrec reaches its published level: ML-1M by file order, NDCG@10 .59 among 99 sampled items or .166 among all.

python benchmarks/sasrec_level.py [--data-root DIR] [--device cuda] [--set NAME=VALUE ...]     # a line for each epoch
python benchmarks/sasrec_level.py --test     # refit on train + validation, then the test part: once, at the end
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from gmlfm import Dataset, Recommender, load_dataset
from gmlfm.evaluation.protocols import evaluate_held_out
from gmlfm.training.trainer import EpochReport, NullObserver, Resumable


class Lines(NullObserver):
    def __init__(self) -> None:
        self._started = time.perf_counter()

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        figures = "  ".join(f"{name} {value:.4f}" for name, value in report.validation.items())
        seconds, speed = time.perf_counter() - self._started, report.instances_per_second
        print(f"{report.epoch:>3}  loss {report.loss:.4f}  {figures}  {speed / 1e3:.0f} k rows/s  {seconds:.0f} s", flush=True)


def with_ties(data: Dataset, ties: str) -> Dataset:
    schema = replace(data.schema, interactions=replace(data.schema.interactions, ties=ties))
    return replace(data, schema=schema)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-1m", help="a dataset's name (default: ml-1m)")
    parser.add_argument("--data-root")
    parser.add_argument("--ties", default="file", choices=("file", "strict", "shuffle"))
    parser.add_argument("--model", default="sasrec")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting (default: as below)")
    parser.add_argument("--test", action="store_true", help="train on train + validation as well, then evaluate the test part")
    options = parser.parse_args()
    data = with_ties(load_dataset(options.data, data_root=options.data_root), options.ties)
    given = dict(text.split("=", 1) for text in options.set)
    # Early stopping would end training before the schedule has lowered the rate.
    settings = {"batch_size": "4096", "epochs": "30", "patience": given.get("epochs", "30"), **given}
    recommender = Recommender(options.model, device=options.device, **settings)
    print(f"{options.model} on {options.data}, ties {options.ties}, {settings}", flush=True)
    started = time.perf_counter()
    recommender.fit(data, refit=options.test, observer=Lines())
    run = recommender.fitted
    print(f"best epoch {run.best_epoch}, {run.validation_protocol} validation; {time.perf_counter() - started:.0f} s")
    part = "test" if options.test else "validation"
    for protocol in ("sampled", "full"):
        metrics = evaluate_held_out(run.ranker_of(part), run.data, run.split, part, protocol).balanced()
        print(f"{part} {protocol}: " + ", ".join(f"{name} {metrics[name]:.4f}" for name in ("hr@10", "ndcg@10")))


if __name__ == "__main__":
    main()
