"""gmlfm data: describe a dataset."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console

from gmlfm.cli.main import shared_options
from gmlfm.cli.summary import show_summary
from gmlfm.data.describe import describe
from gmlfm.data.sources import load_dataset
from gmlfm.data.splits import SPLITS


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("data", help="look at datasets")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(parser))
    about = verbs.add_parser(
        "describe",
        help="what a dataset holds, and what to know before training",
        description="Counts, fields, the long tail, what is new in validation and test, and warnings.",
    )
    about.add_argument("data", metavar="DATA", help="a name, a folder with a dataset.toml, or the path of a .toml")
    add_data_options(about)
    about.add_argument(
        "--split", default="leave-one-out", choices=list(SPLITS), metavar="NAME", help=f"one of {', '.join(SPLITS)}"
    )
    about.add_argument("--seed", type=int, default=0, help="of the split (default: 0)")
    shared_options(about)
    about.set_defaults(run=run_describe)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-root", metavar="DIR", help="where named datasets lie (else $GMLFM_DATA, else the cache folder)")
    parser.add_argument("--strict", action="store_true", help="refuse interactions whose user or item has no row in its table")


def run_describe(options: argparse.Namespace) -> None:
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    summary = describe(data, options.split, options.seed)
    if options.json:
        print(json.dumps(summary.to_dict(), ensure_ascii=False))
    else:
        show_summary(summary, Console())
