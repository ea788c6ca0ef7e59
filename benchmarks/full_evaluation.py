"""Full evaluation at size: users x items ranked by `fm`, beside one float32 matrix product (sgemm) of the same shapes.

    python benchmarks/full_evaluation.py [--users 33615] [--items 341000] [--k 64] [--threads 2] [--json]

The data are made up: each user has some rows, items are drawn evenly, weights are drawn, not trained, which costs the same.
Half the rate of sgemm is asked: a ratio of at most 2. Besides the wall clock, processor time is given, which a busy machine
disturbs less.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import polars as pl
import torch

from gmlfm import Dataset, Recommender


def made_up(n_users: int, n_items: int) -> Dataset:
    rng = np.random.default_rng(0)
    n_rows = max(n_items, 5 * n_users)
    items = (
        np.concatenate([np.arange(n_items), rng.integers(n_items, size=n_rows - n_items)])
        if n_rows > n_items
        else np.arange(n_items)
    )
    users = np.concatenate([np.repeat(np.arange(n_users), 5), rng.integers(n_users, size=n_rows - 5 * n_users)])
    table = {"user": users, "item": rng.permutation(items), "time": rng.integers(10**6, size=n_rows)}
    schema = {"interactions": {"user": "user", "item": "item", "time": "time"}, "items": {"id": "item", "sells_once": False}}
    return Dataset.from_tables(pl.DataFrame(table), items=pl.DataFrame({"item": np.arange(n_items)}), schema=schema)


def measured(work: Any) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def sgemm(n_users: int, n_items: int, k: int, rows_per_block: int = 512) -> Any:
    """All scores, a block of users at a time into the same memory."""
    rng = np.random.default_rng(0)
    users, items = (torch.from_numpy(rng.normal(size=(n, k)).astype(np.float32)) for n in (n_users, n_items))
    scores = torch.empty(rows_per_block, n_items)

    def work() -> None:
        for start in range(0, n_users, rows_per_block):
            block = users[start : start + rows_per_block]
            torch.mm(block, items.T, out=scores[: len(block)])

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=33_615)
    parser.add_argument("--items", type=int, default=341_000)
    parser.add_argument("--k", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    data = made_up(options.users, options.items)
    recommender = Recommender("fm", history="none", k=options.k, epochs=0, v_scale=0.3, threads=options.threads).fit(
        data, "leave-one-out"
    )
    torch.set_num_threads(options.threads)
    n_tested = len(recommender.fitted.split.test)
    product = sgemm(n_tested, len(data.seen_items), options.k)
    measured(sgemm(512, len(data.seen_items), options.k))
    recommender.evaluate(users=8)  # the item side, the kernel
    before = measured(product)
    evaluation = measured(recommender.evaluate)
    after = measured(product)
    fastest = tuple(min(pair) for pair in zip(before, after, strict=True))
    result = {
        "tested": n_tested,
        "items": len(data.seen_items),
        "k": options.k,
        "threads": options.threads,
        "seconds": evaluation[0],
        "sgemm_seconds": fastest[0],
        "ratio": evaluation[0] / fastest[0],
        "processor_seconds": evaluation[1],
        "sgemm_processor_seconds": fastest[1],
        "processor_ratio": evaluation[1] / fastest[1],
    }
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:>24}  {value:,.2f}" if isinstance(value, float) else f"{name:>24}  {value:,}")


if __name__ == "__main__":
    main()
