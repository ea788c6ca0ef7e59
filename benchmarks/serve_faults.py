"""What a served run keeps to while it is reloaded, killed and asked for long.

    python benchmarks/serve_faults.py --run RUN

reloads: another run takes the place of the one that is served, a hundred times, under a load of recommendations and events;
    every answer must be 200 and the list that the run of its stamp gives, and every acknowledged event must be kept.
kills: SIGKILL at ten moments of a load of events; every acknowledged one must be there after the restart.
ready: seconds from the start of the process to the first /health/ready, of RUN; at most three.
memory: resident memory, second by second, under a load of recommendations for random users of RUN; its slope once all is warm.

Prints a table; exit 1 where something failed. Reloads and kills use a small market of their own.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gmlfm import Recommender
from gmlfm.bench.serve import Aim, market_run, requests_of
from gmlfm.bench.serve_load import Load, drive, post
from gmlfm.bench.serve_process import ServerProcess
from gmlfm.data.encoding import Encoder
from gmlfm.runs.generation import model_folder

N_ASKED = 40  # users whose lists are compared
READY_SECONDS, READY_STARTS = 3.0, 5
MIB_PER_MINUTE = 1.0  # that resident memory may grow by
OK = 200


@dataclass
class Outcome:
    """figures: what was measured; faults: what failed, in words."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = ", ".join(
            f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value:,}" for name, value in self.figures.items()
        )
        return "\n".join(
            [
                f"{self.name:>10}  {'FAILED' if self.faults else 'ok':>6}  {shown}",
                *(f"{'':>20}{fault}" for fault in self.faults[:5]),
            ]
        )


class Events:
    """Rows that differ, each with the status of its answer."""

    def __init__(self, recommender: Recommender) -> None:
        latest = recommender.observed.index.latest_time
        self._items, self._next = recommender.fitted.data.items.ids.to_list(), 0
        self._latest = 0 if latest is None else int(latest)
        self.acknowledged: list[tuple[str, str, int]] = []

    def row(self) -> tuple[str, str, int]:
        number, self._next = self._next, self._next + 1
        return f"w{number % 97}", self._items[number % len(self._items)], self._latest + 1 + number


def event_request(row: tuple[str, str, int], host: str) -> bytes:
    user, item, at = row
    return post("/events", json.dumps({"events": [{"user": user, "item": item, "time": at}]}).encode(), host)


def lost(folder: Path, acknowledged: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    kept = {(user, item, at) for user, item, at, _ in Recommender.load(folder).observed.rows()}
    return [row for row in acknowledged if row not in kept]


@contextmanager
def loading(
    server: ServerProcess, requests: Sequence[bytes], rate: float, seconds: float, on_answer: Callable[[int, int, bytes], None]
) -> Iterator[list[Load]]:
    """In a thread, while the block runs and until it is over; the load is in the list then."""
    result: list[Load] = []

    def run() -> None:
        result.append(drive(server.host, server.port, requests, rate, seconds, connections=16, on_answer=on_answer))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield result
    finally:
        thread.join()


def reloads(folder: Path, n: int, rate: float) -> Outcome:
    """folder: holds a run, and is changed."""
    outcome = Outcome("reloads")
    first = Recommender.load(folder)
    users = first.fitted.data.users.ids.head(N_ASKED).to_list()
    second = Recommender("gml-fm", v_scale=0.3, epochs=0, seed=9).fit(first.fitted.data)
    both = [first, second]
    expected = [{user: listed(recommender, user) for user in users} for recommender in both]
    if expected[0] == expected[1]:
        raise AssertionError("the two runs must differ")
    which: dict[str, int] = {str(first.about["generation"]): 0}
    events = Events(first)
    rows, host = [events.row() for _ in range(100_000)], "127.0.0.1"
    asked = [users[number % len(users)] for number in range(len(rows))]
    requests = [
        event_request(rows[number], host)
        if number % 2
        else post("/recommend", json.dumps({"user": asked[number], "n": 10}).encode(), host)
        for number in range(len(rows))
    ]
    answers: list[tuple[int, int, bytes]] = []
    over, broken = threading.Event(), [0.0]
    with ServerProcess(folder) as server:
        seconds_each = 0.0

        def chunks() -> list[Load]:
            loads, start = [], 0
            while not over.is_set():
                part = requests[start : start + round(rate)]  # a second of it
                loads.append(
                    drive(
                        server.host,
                        server.port,
                        part,
                        rate,
                        1.0,
                        connections=16,
                        on_answer=lambda number, status, body, start=start: answers.append((start + number, status, body)),
                    )
                )
                start += len(part)
            return loads

        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(chunks)
            try:
                began = time.perf_counter()
                for number in range(1, n + 1):
                    both[number % 2].save(folder, force=True)
                    which[str(both[number % 2].about["generation"])] = number % 2
                    status, body = server.ask("POST", "/reload")
                    if status != OK or json.loads(body)["swapped"] != [folder.name]:
                        outcome.faults.append(f"reload {number}: {status} {body[:200]!r}")
                seconds_each = (time.perf_counter() - began) / n
            finally:
                over.set()
            loads = load.result()
        broken[0] = sum(one.errors for one in loads)
        stamps = set()
        for number, status, body in answers:
            if status != OK:
                outcome.faults.append(f"request {number}: {status} {body[:200]!r}")
            elif number % 2:
                events.acknowledged.append(rows[number])
            else:
                answer = json.loads(body)
                stamps.add(answer["run"]["generation"])
                fault = mixed(answer, expected[which[answer["run"]["generation"]]][asked[number]])
                if fault:
                    outcome.faults.append(f"user {asked[number]} by {answer['run']}: {fault}")
        if broken[0] and not outcome.faults:
            outcome.faults.append(f"{broken[0]:g} connections broke or had no answer in time")
    gone = lost(folder, events.acknowledged)
    if gone:
        outcome.faults.append(f"{len(gone):,} acknowledged events are lost, the first {gone[0]}")
    late = max(one.quantile(1.0) for one in loads)
    outcome.figures = {
        "reloads": n,
        "seconds each": seconds_each,
        "answers": len(answers) - len(events.acknowledged),
        "runs that answered": len(stamps),
        "events kept": len(events.acknowledged) - len(gone),
        "failed": int(broken[0]),
        "latest answer ms": late,
    }
    return outcome


def listed(recommender: Recommender, user: str) -> list[tuple[str, float]]:
    table = recommender.recommend([user], 10)
    return list(zip(table["item"].to_list(), table["score"].to_list(), strict=True))


def mixed(answer: dict[str, Any], expected: list[tuple[str, float]]) -> str:
    """How an answer is not the one that its run gives; '' where it is."""
    items = [item["item"] for item in answer["items"]]
    if items != [item for item, _ in expected]:
        return f"{items[:3]} ... instead of {[item for item, _ in expected[:3]]} ..."
    differences = [abs(item["score"] - score) for item, (_, score) in zip(answer["items"], expected, strict=True)]
    return "" if max(differences, default=0.0) < 1e-5 else f"scores differ by {max(differences):g}"


def kills(folder: Path, n: int, rate: float, seed: int = 0) -> Outcome:
    outcome, draw = Outcome("kills"), random.Random(seed)
    events = Events(Recommender.load(folder))
    server, n_gone, ready = ServerProcess(folder), 0, []
    for number in range(n):
        server.start()
        ready.append(server.ready_seconds)
        rows = [events.row() for _ in range(round(20 * rate))]
        requests = [event_request(row, server.host) for row in rows]
        moment = draw.uniform(0.3, 1.5)

        def note(number: int, status: int, body: bytes, rows: list[tuple[str, str, int]] = rows) -> None:
            if status == OK:
                events.acknowledged.append(rows[number])

        with loading(server, requests, rate, moment + 0.2, note):
            time.sleep(moment)
            server.kill()
        gone = lost(folder, events.acknowledged)
        n_gone += len(gone)
        if gone:
            outcome.faults.append(f"kill {number + 1} after {moment:.2f} s: {len(gone)} lost, the first {gone[0]}")
    if not events.acknowledged:
        outcome.faults.append("no event was acknowledged before the kills, so nothing was shown")
    with ServerProcess(folder) as server:  # and the service itself counts them
        for user, item, at in events.acknowledged[-N_ASKED:]:
            history = json.loads(server.get(f"/users/{user}?limit=200")[1])["history"]
            if (item, at) not in {(row["item"], row["time"]) for row in history}:
                outcome.faults.append(f"the service does not know {user, item, at}")
    outcome.figures = {"kills": n, "events acknowledged": len(events.acknowledged), "lost": n_gone, "ready s": max(ready)}
    return outcome


def readiness(folder: Path, starts: int) -> Outcome:
    seconds = []
    for _ in range(starts):
        with ServerProcess(folder) as server:
            seconds.append(server.ready_seconds)
    outcome = Outcome("ready", {"starts": starts, "median s": statistics.median(seconds), "worst s": max(seconds)})
    if statistics.median(seconds) > READY_SECONDS:
        outcome.faults.append(f"later than {READY_SECONDS:g} seconds")
    return outcome


def memory(folder: Path, minutes: float, rate: float) -> Outcome:
    """Slope over the second half, when caches are as full as they get."""
    encoder, sizes = Encoder.load(model_folder(folder) / "encoder"), []
    with ServerProcess(folder) as server:
        requests = requests_of("recommend", encoder, f"{server.host}:{server.port}", Aim())
        seconds = 60.0 * minutes
        with loading(server, requests, rate, seconds, lambda number, status, body: None) as loads:
            began = time.perf_counter()
            while time.perf_counter() - began < seconds:
                sizes.append((time.perf_counter() - began, server.resident_bytes() / 2**20))
                time.sleep(min(1.0, seconds / 60))
    times, mib = np.array(sizes).T
    later = times >= times[-1] / 2
    slope = 60.0 * float(np.polyfit(times[later], mib[later], 1)[0])
    outcome = Outcome("memory", {"minutes": minutes, "requests": loads[0].n, "failed": loads[0].errors})
    places = np.linspace(0, len(mib) - 1, 6).astype(int)
    outcome.figures |= {f"MiB at {times[place]:.0f} s": float(mib[place]) for place in places}
    outcome.figures["MiB a minute"] = slope
    if slope > MIB_PER_MINUTE:
        outcome.faults.append(f"grows by more than {MIB_PER_MINUTE:g} MiB a minute")
    if loads[0].errors:
        outcome.faults.append(f"{loads[0].errors} requests failed")
    return outcome


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="for ready and memory (default: a small market)")
    parser.add_argument("--reloads", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--starts", type=int, default=READY_STARTS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second")
    options = parser.parse_args(words)
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        small = market_run(1_000, Path(scratch) / "small")
        run = small if options.run is None else options.run.absolute()
        for wanted, part in (
            (options.starts, lambda: readiness(run, options.starts)),
            (options.reloads, lambda: reloads(market_run(1_000, Path(scratch) / "reloaded"), options.reloads, options.rate)),
            (options.kills, lambda: kills(market_run(1_000, Path(scratch) / "killed"), options.kills, options.rate)),
            (options.minutes, lambda: memory(run, options.minutes, options.rate)),
        ):
            if wanted:
                outcomes.append(part())
                print(outcomes[-1], flush=True)
    return 1 if any(outcome.faults for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
