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
    """Medians over the rounds; the other way's ratio is the median of each round's own."""
    workers: dict[str, _Worker] = {}
    try:
        for way in ("ours", *against):
            with activity(f"loading the data and compiling for {way}"):
                workers[way] = _Worker(replace(task, way=way))
        speeds: dict[str, list[float]] = {way: [] for way in workers}
        last: dict[str, dict[str, Any]] = {}
        for number in range(rounds):
            for way, worker in workers.items():
                with activity(f"round {number + 1} of {rounds}: {way}"):
                    reply = worker.ask(seconds)
                speeds[way].append(reply["instances"] / reply["seconds"])
                last[way] = reply
        parts = workers["ours"].about["parts"]
        with activity("measuring the machine"):
            rates = workers["ours"].ask("rates") if parts else None
    finally:
        for worker in workers.values():
            worker.end()
    speed = statistics.median(speeds["ours"])
    measured = {
        **{name: value for name, value in task.to_dict().items() if name not in ("way", "data_root")},
        "rows": workers["ours"].about["rows"],
        "instances_per_second": speed,
        "rounds": speeds,
        "peak_memory_gib": last["ours"]["peak"] / 2**30,
    }
    if "peak_device" in last["ours"]:
        measured["peak_device_memory_gib"] = last["ours"]["peak_device"] / 2**30
    for way in against:
        measured["against"] = way
        measured["baseline_instances_per_second"] = statistics.median(speeds[way])
        measured["ratio"] = statistics.median(ours / other for ours, other in zip(speeds["ours"], speeds[way], strict=True))
    if parts and rates:
        floor = max(parts["operations"] / rates["operations_per_second"], parts["bytes"] / rates["bytes_per_second"])
        measured["roofline"] = {**parts, **rates, "instances_per_second": 1.0 / floor, "share_reached": speed * floor}
    return measured
