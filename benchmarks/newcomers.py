"""What cold-start steps, with ids hidden, do for newcomers: the split `newcomers` with and without
them, each seed with a split of its own.

    python benchmarks/newcomers.py ml-1m --data-root DIR --runs runs/newcomers --part validation

A way may also be a model with settings, such as --ways fm "fm history=last,recent,past lr=0.005 epochs=30 history_dropout=0.5".
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
    ways = ["popularity", "cold_start_rate=0", "cold_start_rate=0.1"]
    parser.add_argument("--ways", nargs="+", default=ways, help="popularity, cold_start_rate=SHARE, or a model with settings")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=50)
    options = parser.parse_args()
    data = load_dataset(options.data, data_root=options.data_root)
    for way in options.ways:
        by_group: dict[str, list[dict[str, float]]] = {}
        for seed in options.seeds:
            groups = recommender(way, seed, options, data).evaluate(protocol="sampled", part=options.part).groups
            for name, metrics in groups.items():
                by_group.setdefault(name, []).append(metrics)
            shown = "  ".join(f"{name} {metrics['hr@10']:.4f}/{metrics['ndcg@10']:.4f}" for name, metrics in groups.items())
            print(f"{options.part}  {way:19} seed {seed}  {shown}", flush=True)
        means = {
            name: [float(np.mean([metrics[metric] for metrics in by_seed])) for metric in ("hr@10", "ndcg@10")]
            for name, by_seed in by_group.items()
        }
        shown = "  ".join(f"{name} {hr:.4f}/{ndcg:.4f}" for name, (hr, ndcg) in means.items())
        print(f"{options.part}  {way:19} mean    {shown}")


def recommender(way: str, seed: int, options: argparse.Namespace, data: Dataset) -> Recommender:
    folder = options.runs / f"{way.replace(' ', '-')}-{seed}"
    if (folder / "run.json").exists():
        return Recommender.load(folder)
    if way == "popularity":
        untrained = Recommender("popularity")
    elif not way.startswith("cold_start_rate="):
        model, *settings = way.split()
        untrained = Recommender(model, seed=seed, threads=options.threads, **dict(text.split("=", 1) for text in settings))
    else:
        rate = float(way.removeprefix("cold_start_rate="))
        untrained = Recommender("gml-fm-unit", seed=seed, threads=options.threads, epochs=options.epochs, cold_start_rate=rate)
    return untrained.fit(data, split="newcomers", split_options={"seed": seed}, out=folder)


if __name__ == "__main__":
    main()
