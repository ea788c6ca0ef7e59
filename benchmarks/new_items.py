"""How often items that came after training are recommended, beside how often they are chosen.

    python benchmarks/new_items.py amazon-office --data-root DIR

The latest tenth of the rows is put aside, and with it every item that has its first row there. What is left is trained on as a
user would, in each refit regime; then those items are added by add_items, and each user with rows put aside gets a top 10.
Printed: the share of the places that new items take, beside the share of these users' choices that went to new items.
The name `made` stands for an ordinary shop, made up here, whose catalogue is renewed as time goes on.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gmlfm import Dataset, Recommender, load_dataset

REGIMES: dict[str, Any] = {"none": False, "validation": True, "all": "all"}


@dataclass(frozen=True)
class Future:
    """Data before a moment; the choices after it by users known before; the items that are new then, as a table."""

    past: Dataset
    choices: pl.DataFrame
    new_items: pl.DataFrame


def cut(data: Dataset, share: float) -> Future:
    rows = data.order_in_time(data.positive_rows)
    n_past = round(len(rows) * (1 - share))
    past, later = rows[:n_past], rows[n_past:]
    known_items = np.unique(data.item_numbers[past])
    new_items = np.setdiff1d(data.item_numbers[later], known_items)

    def interactions(chosen: np.ndarray) -> pl.DataFrame:
        named = {"user": data.users.ids[data.user_numbers[chosen]], "item": data.items.ids[data.item_numbers[chosen]]}
        return pl.DataFrame({**named, "time": data.interactions["time"].to_numpy()[chosen]})

    def items(numbers: np.ndarray) -> pl.DataFrame:
        return pl.DataFrame({"item": data.items.ids[numbers], **{name: data.items.fields[name][numbers] for name in names}})

    fields = {field.name: field for field in data.schema.fields_of("item")}
    names = list(fields)
    schema = {
        "interactions": {"user": "user", "item": "item", "time": "time"},
        "items": {"id": "item", "fields": {name: {"kind": field.kind} for name, field in fields.items()}},
    }
    trained = Dataset.from_tables(interactions(past), items=items(known_items), schema=schema)
    is_known = pl.col("user").is_in(trained.users.ids.implode())
    is_new = pl.col("item").is_in(data.items.ids[new_items].implode())
    choices = interactions(later).filter(is_known).with_columns(new=is_new)
    return Future(trained, choices, items(new_items))


def made(seed: int = 0, n_users: int = 2_000, n_items: int = 2_000, n_rows: int = 60_000) -> Dataset:
    """Items come one after another and are looked for less as they age; users and items have tastes by kind."""
    rng = np.random.default_rng(seed)
    n_kinds, n_brands = 12, 80
    born = np.sort(rng.uniform(-0.3, 1.0, n_items))
    kinds, popularity = rng.integers(0, n_kinds, n_items), rng.lognormal(0, 1.0, n_items)
    brands = rng.integers(0, n_brands, n_items)
    tastes, brand_tastes = rng.lognormal(0, 1.2, (n_users, n_kinds)), rng.lognormal(0, 0.7, (n_users, n_brands))
    users, times = rng.integers(0, n_users, n_rows), np.sort(rng.random(n_rows))
    items = np.empty(n_rows, np.int64)
    for start in range(0, n_rows, 500):
        block = slice(start, start + 500)
        age = times[start] - born
        weight = tastes[users[block]][:, kinds] * brand_tastes[users[block]][:, brands]
        weight *= popularity * np.where(age >= 0, np.exp(-age / 0.3), 0.0)
        items[block] = (rng.random((len(weight), 1)) * weight.sum(1, keepdims=True) < np.cumsum(weight, axis=1)).argmax(1)
    table = pl.DataFrame({"user": users, "item": items, "time": (times * 1e9).astype(np.int64)})
    named = {"kind": [f"kind {kind}" for kind in kinds], "brand": [f"brand {brand}" for brand in brands]}
    catalogue = pl.DataFrame({"item": np.arange(n_items), **named})
    schema = {
        "interactions": {"user": "user", "item": "item", "time": "time"},
        "items": {"id": "item", "fields": {"kind": "category", "brand": "category"}},
    }
    return Dataset.from_tables(table, items=catalogue, schema=schema)


def measure(future: Future, settings: dict[str, Any], refit: Any) -> dict[str, float]:
    recommender = Recommender(**settings).fit(future.past, split="leave-one-out", refit=refit)
    recommender.add_items(future.new_items)
    users = future.choices["user"].unique(maintain_order=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = recommender.recommend(users.to_list(), n=10)
    best = best.with_columns(
        pl.col("user", "item").cast(pl.String), new=pl.col("item").is_in(future.new_items["item"].cast(pl.String).implode())
    )
    by_user = best.group_by("user").agg(places=pl.col("new").mean())
    weighted = future.choices.with_columns(pl.col("user", "item").cast(pl.String)).join(by_user, on="user", how="left")
    hits = weighted.join(best.select("user", "item", hit=pl.lit(1.0)), on=["user", "item"], how="left").fill_null(0.0)
    chosen_new = hits.filter(pl.col("new"))["hit"].mean()
    return {
        "places": float(weighted["places"].mean()),  # type: ignore[arg-type]
        "hr@10": float(hits["hit"].mean()),  # type: ignore[arg-type]
        "hr@10 new": float(chosen_new or 0.0),  # type: ignore[arg-type]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a dataset with times, or 'made'")
    parser.add_argument("--data-root")
    parser.add_argument("--share", type=float, default=0.1, help="of the rows, put aside")
    parser.add_argument("--model", default="fm")
    parser.add_argument("--loss", nargs="+", default=["squared"])
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--regimes", nargs="+", choices=list(REGIMES), default=list(REGIMES))
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="more settings, such as history=last,recent,past"
    )
    options = parser.parse_args()
    more = dict(setting.split("=", 1) for setting in options.set)
    data = made(options.seed) if options.data == "made" else load_dataset(options.data, data_root=options.data_root)
    future = cut(data, options.share)
    share = float(future.choices["new"].mean())  # type: ignore[arg-type]
    n_choices, n_new, n_known = future.choices.height, future.new_items.height, len(future.past.items)
    print(f"{options.data}: {n_new:,} new items beside {n_known:,}; {share:.3f} of {n_choices:,} choices are of new ones")
    for loss in options.loss:
        for regime in options.regimes:
            settings = {
                "model": options.model,
                "k": options.k,
                "epochs": options.epochs,
                "seed": options.seed,
                "threads": 1,
                "loss": loss,
                **more,
            }
            shown = "  ".join(f"{name} {value:.3f}" for name, value in measure(future, settings, REGIMES[regime]).items())
            print(f"{options.model} {loss:9} refit {regime:10}  {shown}", flush=True)


if __name__ == "__main__":
    main()
