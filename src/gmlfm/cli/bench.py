"""gmlfm bench: what things cost on this machine, as ratios of one run."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import Any

import numpy as np

from gmlfm.cli import bench_serve, bench_train
from gmlfm.cli.options import DATA_HELP, MODEL_HELP, add_command, add_data_options, add_settings, settings_of, shared_options
from gmlfm.cli.output import console_for, print_json
from gmlfm.data.sources import load_dataset
from gmlfm.errors import OptionError
from gmlfm.progress import activity

_MOST_SCORES, _MOST_PAIRS = 40_000_000, 500_000


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "bench",
        "what things cost on this machine",
        "Measure training steps, top-n ranking or a served run on this machine, beside another way to do the same.",
        ["gmlfm bench train --against factored", "gmlfm bench topn ml-1m --json", "gmlfm bench serve runs/ml-1m"],
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    bench_train.add_to(kinds)
    bench_serve.add_to(kinds)
    topn = add_command(
        kinds,
        "topn",
        "exact top-10 of the whole catalogue",
        "Users against all items, seen items left out, beside scoring every pair through the model in batches, which is "
        "measured on half a million pairs and counted for as many users; weights are drawn, not trained, which costs the same.",
        ["gmlfm bench topn", "gmlfm bench topn ml-1m --set k=32 --threads 2 --rounds 5 --json"],
    )
    topn.add_argument("data", nargs="?", default="bazaar", metavar="DATA", help=f"{DATA_HELP} (default: bazaar)")
    topn.add_argument("--model", default="gml-fm", metavar="NAME", help=MODEL_HELP)
    add_settings(topn, "k=32 (default: k=64)")
    topn.add_argument("--threads", type=int, metavar="N")
    topn.add_argument("--users", type=int, metavar="N", help="so many users (default: all, at most 40 million scores)")
    topn.add_argument("--rounds", type=int, default=3)
    topn.add_argument("--against", default="batched", choices=("batched", "nothing"))
    add_data_options(topn)
    shared_options(topn)
    topn.set_defaults(run=run_topn)


def run_topn(options: argparse.Namespace) -> None:
    import torch

    from gmlfm.evaluation.protocols import PositivesByUser
    from gmlfm.recommender import Recommender
    from gmlfm.retrieval import DEFAULT_N, best_items

    if options.rounds < 1 or (options.users is not None and options.users < 1):
        raise OptionError("--rounds and --users must be 1 or more.")
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    settings = {"k": 64, "v_scale": 0.3, **settings_of(options), "epochs": 0}
    recommender = Recommender(options.model, **settings).fit(data)
    ranker = recommender.fitted.ranker
    if not ranker.model.caches_items:
        raise OptionError(f"'{options.model}' has no faster form than batches, so there is nothing to compare.")
    items, positives = data.seen_items, PositivesByUser(data)
    users = data.seen_users[: options.users or max(1, _MOST_SCORES // len(items))]
    excluded = [positives(int(user)) for user in users]
    started = time.perf_counter()
    with activity("precomputing the item side"):
        ranker.score_all(users[:1], items)  # once
    precomputation_seconds = time.perf_counter() - started
    seconds, best = [], None
    for number in range(options.rounds):
        with activity(f"round {number + 1} of {options.rounds}"):
            started = time.perf_counter()
            best = ranker.top_items(users, items, DEFAULT_N, excluded)
            seconds.append(time.perf_counter() - started)
    assert best is not None
    measured: dict[str, Any] = {
        "data": data.name,
        "model": options.model,
        "k": recommender.settings.to_dict()["settings"]["k"],
        "threads": torch.get_num_threads(),
        "users": len(users),
        "items": len(items),
        "precomputation_seconds": precomputation_seconds,
        "seconds": min(seconds),
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (20 if sys.platform != "darwin" else 30),
    }
    if options.against == "batched":
        some = users[: max(1, _MOST_PAIRS // len(items))]
        started = time.perf_counter()
        every_pair = np.broadcast_to(items, (len(some), len(items)))
        with activity("pair after pair"):
            batched = best_items(ranker.score_pairs(some, every_pair), items, DEFAULT_N, excluded[: len(some)])
        # Pair after pair: each user costs the same.
        measured["baseline_seconds"] = (time.perf_counter() - started) * len(users) / len(some)
        measured["baseline_users"] = len(some)
        measured["ratio"] = measured["baseline_seconds"] / measured["seconds"]
        best_items_of_some, scores = best.items[: len(some)], best.scores[: len(some)]
        measured["largest_difference"] = float(np.abs(batched.scores - scores)[np.isfinite(scores)].max())
        same = batched.items == best_items_of_some
        # Two items whose scores differ by rounding alone may change places.
        measured["same_items"] = bool((same | (np.abs(batched.scores - scores) <= 1e-5)).all())
    if options.json:
        print_json(measured)
        return
    console = console_for()
    for name, value in measured.items():
        console.print(f"{name:>24}  {value:.4g}" if isinstance(value, float) else f"{name:>24}  {value}", highlight=False)
