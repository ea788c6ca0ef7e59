"""How soon a newcomer is known: the newcomer's curve of a model that reads what users did, beside other models and popularity.

    OMP_NUM_THREADS=1 python benchmarks/newcomer_curve.py amazon-office ml-1m --data-root DIR --runs RUNS

Targets are one row of each user whom training never met, the first with ten rows before it; given are the last 0, 1, 3, 5 or 10
of these. Of `ease` and `item-knn` the given rows are the user; `fm` without a history fits a row to them
(a sample of newcomers). Runs that are in the folder already are not trained again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gmlfm import Dataset, Recommender, load_dataset
from gmlfm.evaluation.newcomer_curve import NewcomerCurve

WITH_HISTORY: dict[str, dict[str, Any]] = {
    "amazon-office": {"lr": 0.005, "epochs": 30, "history_dropout": 0.5},
    "ml-1m": {"lr": 0.002, "epochs": 12, "history_dropout": 0.2, "n_negatives": 512},
}


def settings_of(model: str, data: str, epochs: int | None) -> tuple[str, dict[str, Any]]:
    """The model's name and settings; fm+history is fm with all roles."""
    if model != "fm+history":
        return model, {"history": "none"} if model in ("fm", "gml-fm") else {}
    settings = {"history": "last,recent,past", **WITH_HISTORY.get(data, {})}
    return "fm", settings if epochs is None else {**settings, "epochs": epochs}


def recommender(model: str, data: Dataset, name: str, options: argparse.Namespace) -> Recommender:
    folder = options.runs / f"{name}-{model}-{options.seed}"
    if (folder / "run.json").exists():
        return Recommender.load(folder)
    called, settings = settings_of(model, name, options.epochs)
    untrained = Recommender(called, seed=options.seed, threads=options.threads, **settings)
    return untrained.fit(data, split="newcomers", split_options={"seed": options.seed}, out=folder)


def line(name: str, curve: NewcomerCurve) -> str:
    cells = [f"{point.metrics['hr@10']:.3f}/{point.metrics['ndcg@10']:.3f}" for point in curve.points.values()]
    n_rows = len(next(iter(curve.points.values())).rows)
    return f"{name:12}" + "".join(f"{cell:>14}" for cell in cells) + f"{n_rows:>8,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--data-root")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--part", choices=["validation", "test"], default="validation")
    parser.add_argument("--protocol", default="sampled")
    parser.add_argument("--models", nargs="+", default=["popularity", "item-knn", "ease", "fm", "fm+history"])
    parser.add_argument("--counts", type=int, nargs="+", default=[0, 1, 3, 5, 10])
    parser.add_argument("--epochs", type=int, help="of fm+history")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in options.data:
        data = load_dataset(name, data_root=options.data_root)
        print(f"{name}, {options.part}, {options.protocol}: HR@10/NDCG@10 by the number of rows given")
        print(f"{'':12}" + "".join(f"{count:>14}" for count in options.counts) + f"{'users':>8}")
        for model in options.models:
            fitted = recommender(model, data, name, options)
            curve = fitted.newcomer_curve(options.counts, protocol=options.protocol, part=options.part, seed=options.seed)
            print(line(model, curve), flush=True)


if __name__ == "__main__":
    main()
