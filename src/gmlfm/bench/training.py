"""Rounds of training, ours and another's in turn."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gmlfm.bench.contenders import Task
from gmlfm.errors import OptionError
from gmlfm.progress import activity
from gmlfm.training.sampling.batches import ALL_NEGATIVES

_SECONDS_TO_END = 30


class _Worker:
    def __init__(self, task: Task) -> None:
        command = [sys.executable, "-m", "gmlfm.bench.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.about = self.ask(task.to_dict())
        except BaseException:
            self.end()
            raise

    def ask(self, question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise OptionError(f"a side of the comparison ended early, with exit code {self._process.wait(_SECONDS_TO_END)}.")
        reply: dict[str, Any] = json.loads(answer)
        if "error" in reply:
            raise OptionError(reply["error"])
        return reply

    def end(self) -> None:
        """It ends when there are no more questions."""
        with self._process:
            if self._process.stdin is not None and not self._process.stdin.closed:
                with suppress(BrokenPipeError):  # what a worker that is gone never read
                    self._process.stdin.close()
            try:
                self._process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                self._process.kill()


def measure(task: Task, against: Sequence[str], rounds: int, seconds: float) -> dict[str, Any]:
    """Medians over the rounds; the other way's ratio is the median of each round's own. Where a step is a softmax, each round
    has a large matrix product of the same threads, too."""
    workers: dict[str, _Worker] = {}
    try:
        for way in ("ours", *against):
            with activity(f"loading the data and compiling for {way}"):
                workers[way] = _Worker(replace(task, **_way(way)))
        replies: dict[str, list[dict[str, Any]]] = {way: [] for way in workers}
        products: list[dict[str, Any]] = []
        about = workers["ours"].about
        for number in range(rounds):
            for way, worker in workers.items():
                with activity(f"round {number + 1} of {rounds}: {way}"):
                    replies[way].append(worker.ask(seconds))
            if about.get("softmax_operations"):
                with activity(f"round {number + 1} of {rounds}: a large matrix product"):
                    products.append(workers["ours"].ask("sgemm"))
        parts = about["parts"]
        with activity("measuring the machine"):
            rates = workers["ours"].ask("rates") if parts else None
    finally:
        for worker in workers.values():
            worker.end()
    speeds = {way: [reply["instances"] / reply["seconds"] for reply in of_way] for way, of_way in replies.items()}
    speed, last = statistics.median(speeds["ours"]), replies["ours"][-1]
    measured = {
        **{name: value for name, value in task.to_dict().items() if name not in ("way", "data_root", "settings")},
        "rows": about["rows"],
        "instances_per_second": speed,
        "rounds": speeds,
        "peak_memory_gib": last["peak"] / 2**30,
    }
    if "peak_device" in last:
        measured["peak_device_memory_gib"] = last["peak_device"] / 2**30
    for way in against:
        measured["against"] = way
        measured["baseline_instances_per_second"] = statistics.median(speeds[way])
        measured["ratio"] = _median_ratio(speeds["ours"], speeds[way])
    if parts and rates:
        floor = max(parts["operations"] / rates["operations_per_second"], parts["bytes"] / rates["bytes_per_second"])
        measured["roofline"] = {**parts, **rates, "instances_per_second": 1.0 / floor, "share_reached": speed * floor}
    if products:
        n_negatives = about["settings"]["n_negatives"]
        measured["batch"], measured["n_negatives"] = about["batch"], "all" if n_negatives == ALL_NEGATIVES else n_negatives
        measured |= _of_sgemm(about["softmax_operations"], replies["ours"], products)
        # Beside other programs the clock counts their time, too.
        busy = {way: [reply["instances"] / reply["busy"] for reply in of_way] for way, of_way in replies.items()}
        measured["by_processor_time"] = {
            "instances_per_second": statistics.median(busy["ours"]),
            **_of_sgemm(about["softmax_operations"], replies["ours"], products, "busy"),
        }
        for way in against:
            measured["by_processor_time"]["ratio"] = _median_ratio(busy["ours"], busy[way])
    return measured


def _way(way: str) -> dict[str, Any]:
    """Another model takes its own kind of steps, by its own defaults."""
    return {"way": "ours", "model": way, "settings": {}, "batch": None} if way == "sasrec" else {"way": way}


def _of_sgemm(
    operations: float, replies: list[dict[str, Any]], products: list[dict[str, Any]], clock: str = "seconds"
) -> dict[str, float]:
    """The rate of the softmax's products in whole steps, and as a share of the large product's rate, round by round."""
    reached = [operations * reply["instances"] / reply[clock] / 1e9 for reply in replies]
    possible = [product["operations"] / product[clock] / 1e9 for product in products]
    share = _median_ratio(reached, possible)
    return {"gflops": statistics.median(reached), "sgemm_gflops": statistics.median(possible), "share": share}


def _median_ratio(ours: list[float], others: list[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, others, strict=True))
