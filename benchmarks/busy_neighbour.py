"""Training, top-n and evaluation on an idle machine, beside one busy core, and under a quota of one processor.

python benchmarks/busy_neighbour.py ml-1m --data-root DIR --repeats 3 --before CHECKOUT

--before: another checkout, measured in turn with this one. The quota needs a cgroup that this process may make.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
QUOTA = Path("/sys/fs/cgroup/cpu/gmlfm-benchmark")
EVALUATE = """
import json, sys, time
from gmlfm import Recommender, load_dataset
rec = Recommender("fm", history="none", k=32, epochs=1, seed=0)
rec.fit(load_dataset(sys.argv[1], data_root=sys.argv[2] if sys.argv[2:] else None))
rates = {}
for protocol in ("sampled", "full"):
    rec.evaluate(protocol=protocol)
    times = []
    for _ in range(3):
        clock = time.perf_counter()
        rec.evaluate(protocol=protocol)
        times.append(time.perf_counter() - clock)
    rates[protocol] = 1 / sorted(times)[1]
print(json.dumps(rates))
"""
TRAIN = ["-m", "gmlfm", "bench", "train", "--model", "gml-fm-unit", "--json", "--rounds", "5", "--seconds", "1"]
TASKS = {
    "train, batch 256": [*TRAIN, "--set", "batch_size=256"],
    "train, batch 4096": TRAIN,
    "top-n": ["-m", "gmlfm", "bench", "topn", "--json", "--rounds", "5", "--against", "nothing"],
    "evaluation": ["-c", EVALUATE],
}


def rates(tree: Path, task: str, data: list[str], threads: int, is_limited: bool) -> dict[str, float]:
    """How much a second: instances, users, evaluations."""
    words = (
        [*TASKS[task], *data]
        if task == "evaluation"
        else [*TASKS[task], data[0], *(["--data-root", data[1]] if data[1:] else [])]
    )
    words += ["--threads", str(threads)] if threads and task != "evaluation" else []
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    if threads and task == "evaluation":
        environment |= {"OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
        words = ["-c", f"import torch; torch.set_num_threads({threads})\n" + EVALUATE, *data]
    enter = (lambda: (QUOTA / "cgroup.procs").write_text(str(os.getpid()))) if is_limited else None
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd="/", capture_output=True, text=True, preexec_fn=enter, timeout=900
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    measured = json.loads(done.stdout)
    if task == "evaluation":
        return {f"evaluation, {name}": rate for name, rate in measured.items()}
    return {task: measured["users"] / measured["seconds"] if task == "top-n" else measured["instances_per_second"]}


@contextmanager
def neighbour(is_busy: bool) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if is_busy else None
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


@contextmanager
def quota() -> Iterator[bool]:
    try:
        QUOTA.mkdir()
        (QUOTA / "cpu.cfs_quota_us").write_text("100000")
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        QUOTA.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="bazaar")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    options = parser.parse_args()
    data = [options.data, *([str(options.data_root.resolve())] if options.data_root else [])]
    trees = {"now": HERE} | ({"before": options.before.resolve()} if options.before else {})
    measured: dict[tuple[str, str], list[float]] = {}
    with quota() as has_quota:
        states = [("idle", 0, False, False), ("one thread", 1, False, False), ("busy", 0, True, False)]
        states += [("quota of 1", 0, False, True)] if has_quota else []
        for _ in range(options.repeats):
            for task in options.tasks:
                for state, threads, is_busy, is_limited in states:
                    for name, tree in trees.items():
                        with neighbour(is_busy):
                            for label, rate in rates(tree, task, data, threads, is_limited).items():
                                measured.setdefault((label, f"{state}, {name}"), []).append(rate)
                                print(f"{label:22} {state:12} {name:7} {rate:14,.2f}", flush=True)
    print("\nMedians, a second; in brackets the ratio to one thread of the same tree:")
    for label in dict.fromkeys(label for label, _ in measured):
        print(label)
        for name in trees:
            alone = statistics.median(measured[label, f"one thread, {name}"])
            for state, *_ in states:
                rate = statistics.median(measured[label, f"{state}, {name}"])
                print(f"    {name:7} {state:12} {rate:14,.2f} ({rate / alone:.2f})")


if __name__ == "__main__":
    main()
