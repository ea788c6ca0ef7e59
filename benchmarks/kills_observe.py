"""SIGKILL a process that observes, at random moments, start it again, and look for every row that it had answered.

python benchmarks/kills_observe.py --rows 1000 --kills 20
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gmlfm import Recommender
from gmlfm.data.dataset import Dataset

# One row a call, from a number on; each is answered with its number.
OBSERVING = """
import sys, warnings
warnings.simplefilter("ignore")
from gmlfm import Recommender
recommender = Recommender.load(sys.argv[1])
for n in range(int(sys.argv[2]), int(sys.argv[3])):
    recommender.observe({"user": f"w{n % 7}", "item": f"i{n % 5}", "time": None if n % 3 == 0 else n})
    print(n, flush=True)
"""


def row_of(number: int) -> tuple[str, str, int | None, None]:
    return f"w{number % 7}", f"i{number % 5}", None if number % 3 == 0 else number, None


def begun(folder: Path) -> Path:
    """A run that loads in a moment."""
    table = {"user": [f"u{n % 6}" for n in range(60)], "item": [f"i{n % 7}" for n in range(60)], "time": list(range(60))}
    schema = {"interactions": {"user": "user", "item": "item", "time": "time"}}
    Recommender("item-knn").fit(Dataset.from_tables(table, schema=schema), "none", out=folder)
    return folder


def killed(run: Path, number: int, stop: int, n_answers: int, seconds: float) -> int:
    """The first row that was not answered, where the process was killed so many seconds after so many answers."""
    command = [sys.executable, "-c", OBSERVING, str(run), str(number), str(stop)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    answers = [process.stdout.readline() for _ in range(n_answers)]
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    whole = [text for text in ("".join(answers) + rest).split("\n")[:-1] if text]
    return int(whole[-1]) + 1 if whole else number


def lost_rows(run: Path, number: int) -> list[int]:
    """Which of the answered rows the folder does not have. A row without a time that was written twice is there twice."""
    present = set(Recommender.load(run).observed.rows())
    return [n for n in range(number) if row_of(n) not in present]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        run = begun(Path(temporary) / "run")
        clock = time.perf_counter()
        number, lost = 0, set[int]()
        for kill in range(options.kills):
            most = (options.rows - number) // (options.kills - kill)
            number = killed(run, number, options.rows, rng.randint(1, max(most, 1)), 0.003 * rng.random())
            lost |= set(lost_rows(run, number))
        number = killed(run, number, options.rows, options.rows - number, 0.0)
        lost |= set(lost_rows(run, number))
        seconds = time.perf_counter() - clock
        print(f"{options.kills} kills over {number:,} answered observations in {seconds:.0f} s: {len(lost)} of them lost")
        print(json.dumps({"kills": options.kills, "observations": number, "lost": len(lost)}))


if __name__ == "__main__":
    main()
