"""gmlfm recommend RUN: for one user, for somebody new, or for everybody into a file."""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gmlfm.cli.main import shared_options
from gmlfm.cli.progress import bar
from gmlfm.errors import DataError, OptionError

if TYPE_CHECKING:
    from gmlfm.recommender import Recommender

_USERS_PER_PART = 10_000


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "recommend", help="the best items for one user, a newcomer, or everybody"
    )
    parser.add_argument("run_folder", metavar="RUN")
    parser.add_argument("--user", action="append", metavar="ID", help="a user's id; may be given several times")
    parser.add_argument("--attributes", metavar="K=V,...", help="somebody never seen, from what is known of her")
    parser.add_argument("--history", metavar="ID,...", help="with --attributes: items she had")
    parser.add_argument("--all", action="store_true", help="every user, into --out")
    parser.add_argument(
        "--out", metavar="FILE", help="with --all: a .parquet file; stopped in the middle, the same command goes on"
    )
    parser.add_argument("-n", type=int, default=10, help="how many items (default: 10)")
    parser.add_argument(
        "--filter", metavar="EXPR", help="a condition on item fields, such as \"condition != 'worn' and price < 50\""
    )
    parser.add_argument("--seen", action="store_true", help="also items the user had")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.recommender import Recommender

    if sum([bool(options.user), options.attributes is not None, options.all]) != 1:
        raise OptionError("say for whom: --user ID, --attributes K=V,... or --all --out FILE.")
    for given, name, goes_with in (
        (options.out and not options.all, "--out", "--all"),
        (options.history and options.attributes is None, "--history", "--attributes"),
        (options.seen and options.attributes is not None, "--seen", "--user or --all"),
    ):
        if given:
            raise OptionError(f"{name} goes with {goes_with} only.")
    recommender = Recommender.load(options.run_folder)
    if options.all:
        _everybody(recommender, options)
        return
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        if options.attributes is not None:
            history = [one for one in (options.history or "").split(",") if one]
            table = recommender.recommend_for(_attributes(options.attributes), history, options.n, filter=options.filter)
        else:
            table = recommender.recommend(options.user, options.n, seen=options.seen, filter=options.filter)
    told = [str(note.message) for note in notes if note.category is UserWarning]
    for user in _strangers(table):
        nothing = recommender.fitted.encoder.user_numbers([user])[0] < 0
        by = "nothing is known of her, so this is what is popular" if nothing else "scored from attributes and the unknown row"
        told.append(f"user '{user}' was not met in training: {by}.")
    console = Console(stderr=options.json)
    for note in told:
        console.print(f"[yellow]note[/] {escape(note)}", soft_wrap=True)
    if options.json:
        print(json.dumps(table.to_dicts(), ensure_ascii=False))
        return
    shown = Table(header_style="bold")
    names = [name for name in table.columns if name != "known"]
    for name in names:
        shown.add_column(name, justify="right" if name in ("score", "rank") else "left", overflow="fold")
    for row in table.select(names).iter_rows(named=True):
        shown.add_row(
            *("" if one is None else f"{one:.4f}" if isinstance(one, float) else escape(str(one)) for one in row.values())
        )
    console.print(shown)


def _strangers(table: pl.DataFrame) -> list[str]:
    return table.filter(~pl.col("known"))["user"].unique(maintain_order=True).to_list() if "known" in table.columns else []


def _attributes(text: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in text.split(",") if one.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise OptionError(f"--attributes takes K=V,K=V; got '{text}'.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _everybody(recommender: Recommender, options: argparse.Namespace) -> None:
    """Parts beside the target, put together when all are there; a part that is there is not made again."""
    if not options.out or not options.out.endswith(".parquet"):
        raise OptionError("--all needs --out FILE.parquet.")
    target = Path(options.out)
    users = recommender.fitted.encoder.ids_of_users(recommender.fitted.data.seen_users).to_list()
    parts = target.with_name(f".{target.name}.parts")
    stamp = json.dumps(
        [
            str(Path(options.run_folder).resolve()),
            options.n,
            options.filter,
            options.seen,
            recommender.about.get("data"),
            recommender.fitted.stock.log,
        ]
    )
    try:
        parts.mkdir(parents=True, exist_ok=True)
        if (parts / "stamp.json").exists() and (parts / "stamp.json").read_text() != stamp:
            for file in parts.glob("*.parquet"):
                file.unlink()
        (parts / "stamp.json").write_text(stamp)
        with bar("recommending") as report:
            for start in range(0, len(users), _USERS_PER_PART):
                part = parts / f"{start:012d}.parquet"
                if not part.exists():
                    blocks = recommender.recommend_blocks(
                        users[start : start + _USERS_PER_PART], options.n, seen=options.seen, filter=options.filter
                    )
                    pl.concat(blocks).write_parquet(part.with_suffix(".draft"))
                    os.replace(part.with_suffix(".draft"), part)
                report(min(start + _USERS_PER_PART, len(users)), len(users))
        pl.scan_parquet(parts / "*.parquet").sink_parquet(target.with_name(f".{target.name}.draft"))
        os.replace(target.with_name(f".{target.name}.draft"), target)
        for file in parts.iterdir():
            file.unlink()
        parts.rmdir()
    except OSError as error:
        raise DataError(f"{target} could not be written ({error.strerror or error}).") from error
    if options.json:
        print(json.dumps({"out": str(target), "users": len(users)}))
    else:
        Console().print(f"{len(users):,} users' recommendations are in [bold]{escape(str(target))}[/].", soft_wrap=True)
