"""gmlfm bench: what things cost on this machine, as ratios of one run."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from typing import Any

import numpy as np
from rich.console import Console

from gmlfm.cli import bench_train
from gmlfm.cli.data import add_data_options
from gmlfm.cli.main import shared_options
from gmlfm.data.sources import load_dataset
from gmlfm.errors import OptionError


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("bench", help="what things cost on this machine")
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    bench_train.add_to(kinds)
    topn: argparse.ArgumentParser = kinds.add_parser(
        "topn",
        help="exact top-10 of the whole catalogue",
        description="All users against all items, seen items left out, beside scoring every pair through the model in batches; "
        "weights are drawn, not trained, which costs the same.",
    )
    topn.add_argument("data", nargs="?", default="bazaar", metavar="DATA")
    topn.add_argument("--model", default="gml-fm", metavar="NAME")
    topn.add_argument("--k", type=int, default=64)
    topn.add_argument("--threads", type=int, metavar="N")
    topn.add_argument("--users", type=int, metavar="N", help="only so many users (default: all)")
    topn.add_argument("--rounds", type=int, default=3)
    topn.add_argument("--against", default="batched", choices=("batched", "nothing"))
    add_data_options(topn)
    shared_options(topn)
    topn.set_defaults(run=run_topn)


def run_topn(options: argparse.Namespace) -> None:
    import torch

    from gmlfm.evaluation.protocols import PositivesByUser
    from gmlfm.models.base import PairwiseModel
    from gmlfm.recommender import Recommender
    from gmlfm.retrieval import Scorer, best_items

    if options.rounds < 1 or (options.users is not None and options.users < 1):
        raise OptionError("--rounds and --users must be 1 or more.")
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    settings = {"k": options.k, "epochs": 0, "v_scale": 0.3}
    recommender = Recommender(options.model, **settings, **({"threads": options.threads} if options.threads else {})).fit(data)
    scores = recommender.fitted.scores
    if not isinstance(scores, Scorer) or not isinstance(scores.model, PairwiseModel):
        raise OptionError(f"'{options.model}' has no faster form than batches, so there is nothing to compare.")
    users = data.seen_users[: options.users]
    items, had = data.seen_items, PositivesByUser(data)
    gone = [had(int(user)) for user in users]
    started = time.perf_counter()
    scores.score_all(users[:1], items)  # the item side is precomputed once
    prepared = time.perf_counter() - started
    seconds, best = [], None
    for _ in range(options.rounds):
        started = time.perf_counter()
        best = best_items(scores.score_all(users, items), items, 10, gone)
        seconds.append(time.perf_counter() - started)
    assert best is not None
    told: dict[str, Any] = {
        "data": data.name,
        "model": options.model,
        "k": options.k,
        "threads": torch.get_num_threads(),
        "users": len(users),
        "items": len(items),
        "precomputation_seconds": prepared,
        "seconds": min(seconds),
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (20 if sys.platform != "darwin" else 30),
    }
    if options.against == "batched":
        started = time.perf_counter()
        slow = best_items(scores.score_pairs(users, np.broadcast_to(items, (len(users), len(items)))), items, 10, gone)
        told["baseline_seconds"] = time.perf_counter() - started
        told["ratio"] = told["baseline_seconds"] / told["seconds"]
        told["largest_difference"] = float(np.abs(slow.scores - best.scores)[np.isfinite(best.scores)].max())
        same = slow.items == best.items
        # Two items whose scores differ by rounding alone may change places.
        told["same_items"] = bool((same | (np.abs(slow.scores - best.scores) <= 1e-5)).all())
    if options.json:
        print(json.dumps(told))
        return
    console = Console()
    for name, value in told.items():
        console.print(f"{name:>24}  {value:.4g}" if isinstance(value, float) else f"{name:>24}  {value}", highlight=False)
