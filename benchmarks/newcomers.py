"""What hiding ids does for newcomers: the split `newcomers` with and without it, each seed with a split of its own.

    python benchmarks/newcomers.py ml-1m --data-root DIR --runs runs/newcomers --part validation

Runs that are in the folder already are not trained again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from gmlfm import Dataset, Recommender, load_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--data-root")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--part", choices=["validation", "test"], default="validation")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", default=["popularity", "hide=0", "hide=0.1"], help="popularity, or hide=SHARE")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    data = load_dataset(given.data, data_root=given.data_root)
    for way in given.ways:
        found: dict[str, list[dict[str, float]]] = {}
        for seed in given.seeds:
            groups = recommender(way, seed, given, data).evaluate(protocol="sampled", part=given.part).groups
            for name, one in groups.items():
                found.setdefault(name, []).append(one)
            told = "  ".join(f"{name} {one['hr@10']:.4f}/{one['ndcg@10']:.4f}" for name, one in groups.items())
            print(f"{given.part}  {way:10} seed {seed}  {told}", flush=True)
        means = {
            name: [float(np.mean([one[metric] for one in several])) for metric in ("hr@10", "ndcg@10")]
            for name, several in found.items()
        }
        print(
            f"{given.part}  {way:10} mean    " + "  ".join(f"{name} {hr:.4f}/{ndcg:.4f}" for name, (hr, ndcg) in means.items())
        )


def recommender(way: str, seed: int, given: argparse.Namespace, data: Dataset) -> Recommender:
    folder = given.runs / f"{way}-{seed}"
    if (folder / "model").exists():
        return Recommender.load(folder)
    if way == "popularity":
        made = Recommender("popularity")
    else:
        made = Recommender("gml-fm", seed=seed, threads=given.threads, cold_start_rate=float(way.removeprefix("hide=")))
    return made.fit(data, split="newcomers", split_options={"seed": seed}, out=folder)


if __name__ == "__main__":
    main()
