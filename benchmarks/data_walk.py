"""The walk of the data on MovieLens 1M: archive -> encoded, split and sampled training arrays. At most 3 s is asked.

    python benchmarks/data_walk.py [--data-root DIR]

Without the archive (it may not be shipped) the same shape is made up and walked, from a file of the same format.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

from gmlfm import Encoder, load_dataset, make_split
from gmlfm.errors import DataError
from gmlfm.evaluation.candidates import evaluation_candidates
from gmlfm.training.sampling.negatives import TrainingNegatives, training_sampler


def write_made_up_archive(root: Path) -> None:
    """6,040 users, 3,706 items, 1,000,209 ratings, popularity like a power law."""
    rng = np.random.default_rng(0)
    weights = 1.0 / (np.arange(1, 3707) + 30.0)
    users = np.sort(rng.integers(1, 6041, size=1_000_209))
    items = rng.choice(3706, size=len(users), p=weights / weights.sum()) + 1
    times = 975_000_000 + rng.integers(0, 70_000_000, size=len(users))
    lines = [f"{user}::{item}::{1 + item % 5}::{seconds}" for user, item, seconds in zip(users, items, times, strict=True)]
    (root / "ml-1m").mkdir()
    with zipfile.ZipFile(root / "ml-1m" / "ml-1m.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml-1m/ratings.dat", "\n".join(lines) + "\n")
        user_lines = (f"{user}::{'FM'[user % 2]}::{user % 7}::{user % 21}::0\n" for user in range(1, 6041))
        archive.writestr("ml-1m/users.dat", "".join(user_lines))
        archive.writestr("ml-1m/movies.dat", "".join(f"{film}::Film {film}::G{film % 301}\n" for film in range(1, 3884)))


def walk(root: Path) -> dict[str, float]:
    seconds: dict[str, float] = {}
    last = start = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[name], last = now - last, now

    data = load_dataset("ml-1m", data_root=root)
    lap("read and check")
    split = make_split(data)
    lap("split")
    Encoder.fit(data, split.train).encode(data)
    lap("encode")
    drawn = TrainingNegatives(training_sampler(data, split.train), data.user_numbers[split.train], n=3).of_epoch(0)
    lap(f"{drawn.size:,} negatives")
    evaluation_candidates(data, split.test)
    lap("99 candidates a test user")
    seconds["total"] = time.perf_counter() - start
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made_up_root:
        root = options.data_root
        if root is None:
            try:
                load_dataset("ml-1m")
            except DataError:
                root = Path(made_up_root)
                write_made_up_archive(root)
        walk(root)  # once to have the libraries loaded and the file in the cache
        runs = [walk(root) for _ in range(3)]
        best = {name: round(min(run[name] for run in runs), 3) for name in runs[0] if name in runs[-1]}
    if options.json:
        print(json.dumps(best))
        return
    print(f"ml-1m{' (made up)' if root == Path(made_up_root) else ''}, {platform.machine()}, best of 3, seconds")
    for name, value in best.items():
        print(f"{name:>28}  {value:6.2f}")


if __name__ == "__main__":
    main()
