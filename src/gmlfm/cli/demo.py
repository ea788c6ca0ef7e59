"""gmlfm demo: the walk of the data on the built-in market."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from gmlfm.cli.main import shared_options
from gmlfm.cli.summary import show_summary
from gmlfm.data.dataset import Dataset
from gmlfm.data.describe import describe
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.negatives import TrainingNegatives, evaluation_candidates, training_sampler
from gmlfm.data.sources import load_dataset
from gmlfm.data.sources.bazaar import Market, Oracle
from gmlfm.data.sources.bazaar.tables import item_number
from gmlfm.data.splits import Split, make_split


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="the walk of the data on the built-in market",
        description="Make the built-in second-hand market, describe it, split and encode it, draw negatives, and show what a "
        "training row looks like and how far a perfect recommender could come.",
    )
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    console = Console(stderr=options.json)
    start = time.perf_counter()
    data = load_dataset("bazaar")
    console.rule("1. The market")
    summary = describe(data)
    show_summary(summary, console)
    split = make_split(data)
    encoder = Encoder.fit(data, split.train)
    encoded = encoder.encode(data)
    negatives = TrainingNegatives(training_sampler(data, split), data.user_numbers[split.train], n=4).of_epoch(0)
    console.rule("2. One training row, and one of its negatives")
    row = int(split.train[0])
    console.print(_training_row(data, encoder, encoded, row, int(negatives[0, 0])))
    console.print(
        f"{len(split.train):,} such rows, each with {negatives.shape[1]} fresh negatives an epoch: {negatives.size:,} draws."
    )
    console.rule("3. How far a recommender can come here")
    ceiling, popular = _hit_rates(data, split)
    console.print(
        f"HR@10 among 100 (sampled, test): popularity {popular:.3f}, the oracle that knows every taste {ceiling:.3f}."
    )
    console.print(f"Made, checked, split, encoded and sampled in {time.perf_counter() - start:.1f} s.")
    console.print("Your own tables: [bold]gmlfm init FILE...[/], then [bold]gmlfm data describe[/].")
    if options.json:
        print(json.dumps({"hash": data.content_hash, "popularity": popular, "oracle": ceiling}))


def _training_row(data: Dataset, encoder: Encoder, encoded: Encoded, row: int, negative: int) -> Table:
    table = Table(header_style="bold")
    for heading in ("of", "field", "this purchase", "x", "a negative", "x"):
        table.add_column(heading, justify="right" if heading == "x" else "left")
    user, item = int(data.user_numbers[row]), int(data.item_numbers[row])
    for part, side, numbers in (("user", encoded.user, (user, user)), ("item", encoded.item, (item, negative))):
        left, right = (encoder.attribute_names(side.ids[number]) for number in numbers)
        for at in range(left.height):
            xs = [f"{side.values[number, at]:.2f}" for number in numbers]
            table.add_row(
                part, left["field"][at], left["value"][at], xs[0], right["value"][at] if part == "item" else "same", xs[1]
            )
    return table


def _hit_rates(data: Dataset, split: Split) -> tuple[float, float]:
    """HR@10 of the oracle and of popularity, in expectation over ties; the evaluation room will take this over."""
    drawn, _ = evaluation_candidates(data, split.test)
    candidates = np.concatenate([data.item_numbers[split.test][:, None], drawn], axis=1)
    n, width = candidates.shape
    users = np.repeat(data.user_numbers[split.test].astype(np.int64), width)
    days = np.repeat(data.interactions["time"].to_numpy()[split.test] // 86_400_000_000, width)
    numbers = item_number(pl.Series(data.items.ids)).to_numpy()
    oracle = Oracle(Market()).score(users, numbers[candidates.ravel()], days).reshape(n, width)
    popularity = np.bincount(data.item_numbers[split.train], minlength=len(data.items))[candidates]
    rates = []
    for scores in (oracle, popularity):
        better = (scores[:, 1:] > scores[:, :1]).sum(axis=1)
        tied = (scores[:, 1:] == scores[:, :1]).sum(axis=1)
        rates.append(float(np.clip((10 - better) / (tied + 1), 0, 1).mean()))
    return rates[0], rates[1]
