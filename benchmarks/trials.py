"""Trainings by a list, several at a time: validation figures of each, a line of JSON as soon as it is known.

    python benchmarks/trials.py TRIALS --data-root DIR --out FILE --workers 6 --device cuda

TRIALS has a training in each line, `DATA MODEL NAME=VALUE ...`; `seed=0|1|2` stands for three, and so for any setting
whose values are separated by '|'. What FILE has already is not run again. Nothing here looks at the test part.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from dataclasses import replace
from pathlib import Path
from queue import Empty
from typing import Any

PROTOCOLS = ("sampled", "full")


def expanded(line: str) -> list[str]:
    """One line for each combination of values separated by '|'."""
    return [" ".join(words) for words in itertools.product(*(alternatives(word) for word in line.split()))]


def alternatives(word: str) -> list[str]:
    name, equals, values = word.partition("=")
    return [word] if not equals else [f"{name}={value}" for value in values.split("|")]


class Trials:
    """Runs trainings; data are read once."""

    def __init__(self, data_root: str, device: str) -> None:
        self._data_root, self._device, self._data = data_root, device, {}  # type: ignore[var-annotated]

    def __call__(self, line: str) -> dict[str, Any]:
        from gmlfm import Recommender
        from gmlfm.evaluation.protocols import evaluate_held_out

        name, model, *words = line.split()
        settings: dict[str, Any] = dict(word.split("=", 1) for word in words)
        ties, split = settings.pop("ties", "strict"), settings.pop("split", "auto")
        data = self._load(name, ties)
        started = time.perf_counter()
        recommender = Recommender(model, device=self._device, **settings).fit(data, split)
        run, seconds = recommender.fitted, time.perf_counter() - started
        result = {"trial": line, "seconds": round(seconds, 1), "best_epoch": run.best_epoch, "epochs": len(run.report.curve)}
        for protocol in PROTOCOLS:
            metrics = evaluate_held_out(run.ranker_of("validation"), run.data, run.split, "validation", protocol).balanced()
            result[protocol] = [round(metrics[metric], 4) for metric in ("hr@10", "ndcg@10")]
        dense = {key: value for key, value in run.model.state_dict().items() if value.numel() <= 64 and key != "table"}
        return result | {
            "dense": {key: [round(number, 3) for number in value.flatten().tolist()] for key, value in dense.items()}
        }

    def _load(self, name: str, ties: str) -> Any:
        from gmlfm import load_dataset

        if (name, ties) not in self._data:
            data = load_dataset(name, data_root=self._data_root)
            if ties != data.schema.interactions.ties:
                data = replace(data, schema=replace(data.schema, interactions=replace(data.schema.interactions, ties=ties)))
            self._data[name, ties] = data
        return self._data[name, ties]


def work(queue: Any, results: Any, data_root: str, device: str, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    trials = Trials(data_root, device)
    while (line := queue.get()) is not None:
        try:
            results.put(trials(line))
        except Exception as error:
            results.put({"trial": line, "error": f"{type(error).__name__}: {error}"})
    results.put(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", type=Path)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no training is begun")
    options = parser.parse_args()
    lines = [line for line in options.trials.read_text().splitlines() if line.strip() and not line.startswith("#")]
    done = set()
    if options.out.exists():
        done = {json.loads(line)["trial"] for line in options.out.read_text().splitlines()}
    waiting = [trial for line in lines for trial in expanded(line) if trial not in done]
    context = multiprocessing.get_context("spawn")
    queue, results = context.Queue(options.workers), context.Queue()
    arguments = (queue, results, options.data_root, options.device, options.threads)
    workers = [context.Process(target=work, args=arguments, daemon=True) for _ in range(options.workers)]
    for worker in workers:
        worker.start()
    started, n_left = time.monotonic(), len(workers)
    feeder = itertools.chain(waiting, [None] * len(workers))
    upcoming = next(feeder)
    is_fed = False
    while n_left:
        while not is_fed and not queue.full():
            late = time.monotonic() - started > options.seconds
            if upcoming is not None and late:
                upcoming, feeder = None, iter([None] * (len(workers) - 1))
            queue.put(upcoming)
            upcoming = next(feeder, is_fed)  # type: ignore[arg-type]
            is_fed = upcoming is False
        try:
            result = results.get(timeout=0.2)
        except Empty:
            if not any(worker.is_alive() for worker in workers):
                sys.exit("all workers died")
            continue
        if result is None:
            n_left -= 1
            continue
        with options.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        shown = result.get("error") or f"{result['sampled']} {result['full']} {result['best_epoch']}/{result['epochs']}"
        print(f"{time.monotonic() - started:5.0f} s  {result['trial']}: {shown} ({result.get('seconds', 0)} s)", flush=True)


if __name__ == "__main__":
    main()
