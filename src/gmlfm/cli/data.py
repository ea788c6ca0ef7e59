"""gmlfm data: list, get, describe and prepare datasets."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from gmlfm.cli.options import DATA_HELP, add_command, add_data_options, add_split, shared_options, split_of
from gmlfm.cli.output import console_for, note, print_json, verbatim
from gmlfm.cli.summary import show_summary
from gmlfm.data.describe import describe
from gmlfm.data.sources import data_roots, load_dataset
from gmlfm.data.sources.bazaar import BUILT_IN, Market, built_in, write_bazaar
from gmlfm.data.sources.catalogue import SOURCES, Source
from gmlfm.data.sources.fetch import accept_terms, get_dataset, source_of, terms_to_accept
from gmlfm.data.sources.named import folder_of, locate, others
from gmlfm.data.sources.preparing import PREPARED_SPLITS, prepare
from gmlfm.data.splits import AUTO
from gmlfm.errors import DataError, OptionError
from gmlfm.progress import activity


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "data",
        "list, get, describe and prepare datasets",
        "What datasets there are, how to get them, what they hold, and how to prepare large ones.",
        ["gmlfm data list", "gmlfm data get ml-1m", "gmlfm data describe bazaar"],
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_list(verbs)
    _add_get(verbs)
    _add_describe(verbs)
    _add_prepare(verbs)


def _add_list(verbs: Any) -> None:
    parser = add_command(
        verbs,
        "list",
        "what is here and what can be had",
        "The datasets that we know by name, whether they are here, and how to get them; and others in the data folders.",
        ["gmlfm data list", "gmlfm data list --data-root ~/data --json"],
    )
    parser.add_argument("--data-root", metavar="DIR", help="where to look (else $GMLFM_DATA, else the cache folder)")
    shared_options(parser)
    parser.set_defaults(run=run_list)


def run_list(options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for name, source in SOURCES.items():
        folder = folder_of(name, options.data_root)
        rows.append(
            {
                "name": name,
                "about": source.about,
                "here": str(folder) if folder else None,
                "bytes": _size(folder) if folder else 0,
                "how": "built in" if name in BUILT_IN else _way(source),
                "terms": source.terms,
            }
        )
    for other in others(options.data_root):
        rows.append({"name": other.name, "about": "", "here": str(other), "bytes": _size(other), "how": "here", "terms": None})
    if options.json:
        print_json(rows)
        return
    caption = "gmlfm data get NAME tells the terms before it fetches, and which files it needs."
    table = Table(header_style="bold", caption=caption, caption_justify="left")
    for heading in ("name", "what it is", "here", "how to get it"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("name", "here"))
    for row in rows:
        size = f"{row['bytes'] / 1e6:,.1f} MB" if row["here"] else "yes" if row["name"] in BUILT_IN else "-"
        # The names of files are long; `data get` tells them.
        how = "local files (--from)" if row["how"].startswith("--from") else row["how"]
        table.add_row(verbatim(row["name"]), row["about"], size, how + (", terms to accept" if row["terms"] else ""))
    console_for().print(table)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _way(source: Source) -> str:
    return f"download, {source.megabytes:g} MB" if source.url else f"--from {source.needs}"


def _add_get(verbs: Any) -> None:
    parser = add_command(
        verbs,
        "get",
        "download or convert a named dataset",
        "Put a named dataset's files where they load by name. Nothing that is there is touched until the new files are whole.",
        [
            "gmlfm data get ml-1m --accept-terms",
            "gmlfm data get ml-1m --from ml-1m.zip --data-root ~/data",
            "gmlfm data get bazaar --users 500 --out data/market",
        ],
    )
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(SOURCES)}")
    parser.add_argument(
        "--from", dest="files", nargs="+", metavar="FILE", default=[], help="local archive, files or folder to take it from"
    )
    parser.add_argument("--accept-terms", action="store_true", help="accept the terms of use without being asked")
    parser.add_argument(
        "--any-checksum", action="store_true", help="take a local archive whose checksum is not the official one"
    )
    parser.add_argument("--data-root", metavar="DIR", help="where to put it (else $GMLFM_DATA, else the cache folder)")
    parser.add_argument("--out", metavar="DIR", help="put it in this folder instead")
    parser.add_argument("--category", metavar="NAME", help="mercari: the root category to keep")
    parser.add_argument("--users", type=int, metavar="N", help="bazaar: how many buyers (default: 3,855)")
    parser.add_argument("--purchases", type=int, metavar="N", help="bazaar: how many purchases (default: 46,712)")
    parser.add_argument("--seed", type=int, default=0, help="bazaar: which market (default: 0)")
    shared_options(parser)
    parser.set_defaults(run=run_get)


def run_get(options: argparse.Namespace) -> None:
    source_of(options.name)
    if options.name not in BUILT_IN and (options.users is not None or options.purchases is not None):
        raise OptionError(f"--users and --purchases belong to bazaar, not to {options.name}.")
    root = Path(options.data_root) if options.data_root else next(data_roots())
    _agree(options, root)
    market = None
    if options.name in BUILT_IN:
        default = BUILT_IN[options.name]
        users = default.n_users if options.users is None else options.users
        purchases = round(users * default.n_purchases / default.n_users) if options.purchases is None else options.purchases
        if options.users is None and options.purchases is not None:
            users = max(1, round(purchases * default.n_users / default.n_purchases)) if purchases > 0 else 1
        market = Market(users, purchases, options.seed, default.version)
    with activity(f"getting {options.name}", "parts" if options.name in BUILT_IN else "bytes") as shown:
        folder = get_dataset(
            options.name,
            root,
            files=[Path(file) for file in options.files],
            out=Path(options.out) if options.out else None,
            category=options.category,
            market=market,
            any_checksum=options.any_checksum,
            progress=shown.update,
        )
    if options.json:
        print_json({"name": options.name, "folder": str(folder)})
        return
    name = str(folder) if options.out else folder.name + (f" --data-root {options.data_root}" if options.data_root else "")
    console_for().print(f"[bold]{verbatim(folder)}[/] is ready. Next: gmlfm data describe {verbatim(name)}", soft_wrap=True)


def _agree(options: argparse.Namespace, root: Path) -> None:
    """Shows the terms, which are accepted once: at the prompt, or by --accept-terms where there is none."""
    terms = terms_to_accept(options.name, root)
    if terms is None:
        return
    print(terms, file=sys.stderr)
    if not options.accept_terms:
        if not sys.stdin.isatty():
            raise DataError(f"the terms of '{options.name}' must be accepted first: read them above and add --accept-terms.")
        # Printed, not asked by input, which would write past the display and be drawn over by it.
        print("Accept these terms? [y/N] ", end="", file=sys.stderr, flush=True)
        if input().strip().lower() not in ("y", "yes"):
            raise DataError("the terms were not accepted; nothing was fetched.")
    accept_terms(options.name, root)


def _add_describe(verbs: Any) -> None:
    parser = add_command(
        verbs,
        "describe",
        "what a dataset holds, and what to know before training",
        "Counts, fields, the long tail, what is new in validation and test, and warnings.",
        ["gmlfm data describe bazaar", "gmlfm data describe shop/dataset.toml --split newcomers --json"],
    )
    parser.add_argument("data", metavar="DATA", help=DATA_HELP)
    add_data_options(parser)
    add_split(parser)
    parser.add_argument("--seed", type=int, default=0, help="of the split (default: 0)")
    shared_options(parser)
    parser.set_defaults(run=run_describe)


def run_describe(options: argparse.Namespace) -> None:
    data = load_dataset(options.data, data_root=options.data_root, strict=options.strict)
    split, split_options = split_of(options)
    with activity("counting"):
        summary = describe(data, split, options.seed, split_options)
    if options.json:
        print_json(summary.to_dict())
    else:
        show_summary(summary, console_for(), training_command(options, data.name))


def training_command(options: argparse.Namespace, name: str) -> str:
    root = f" --data-root {shlex.quote(options.data_root)}" if options.data_root else ""
    split = f" --split {options.split}" if options.split != AUTO else ""
    split += "".join(f" --split-file {shlex.quote(file)}" for file in options.split_files)
    return f"gmlfm train {shlex.quote(options.data)}{root}{split} --out {shlex.quote(f'runs/{Path(name).name}')}"


def _add_prepare(verbs: Any) -> None:
    parser = add_command(
        verbs,
        "prepare",
        "encode a dataset into shards, with bounded memory",
        "Encode and split a dataset of any size into a folder of shards that training reads without loading it "
        "whole. Stopped in the middle, the same command goes on where it was.",
        ["gmlfm data prepare shop --out prepared/shop", "gmlfm train prepared/shop --out runs/shop"],
    )
    parser.add_argument("data", metavar="DATA", help=DATA_HELP)
    parser.add_argument("--out", metavar="DIR", required=True, help="the folder to make")
    parser.add_argument("--data-root", metavar="DIR", help="where named datasets lie (else $GMLFM_DATA, else the cache folder)")
    parser.add_argument("--split", default=AUTO, metavar="NAME", help=f"{', '.join(PREPARED_SPLITS)} (default: auto)")
    parser.add_argument(
        "--rows-in-memory", type=int, default=1_000_000, metavar="N", help="rows held at a time (default: 1,000,000)"
    )
    shared_options(parser)
    parser.set_defaults(run=run_prepare)


def run_prepare(options: argparse.Namespace) -> None:
    if options.rows_in_memory < 1:
        raise OptionError(f"--rows-in-memory is {options.rows_in_memory}; expected 1 or more.")
    located = locate(options.data, options.data_root)
    with tempfile.TemporaryDirectory() as temporary:
        if located is None:
            with activity("making the built-in market"):
                write_bazaar(built_in(options.data) or Market(), Path(temporary) / "bazaar")
            located = locate(Path(temporary) / "bazaar")
            assert located is not None
        with activity("counting rows") as shown:
            prepared = prepare(
                *located,
                Path(options.out),
                split=options.split,
                rows_per_bucket=options.rows_in_memory,
                progress=lambda words, done, total: shown.update(done, total, words),
            )
    info = prepared.info
    if options.json:
        counts = {"users": info.n_users, "items": info.n_items, "interactions": info.n_interactions}
        shards = {"shards": prepared.n_shards, "split": info.split, "notes": info.notes}
        print_json({"folder": options.out, **counts, **shards})
        return
    console = console_for()
    for message in info.notes:
        note(console, message)
    console.print(
        f"[bold]{verbatim(options.out)}[/]: {info.n_interactions:,} interactions of {info.n_users:,} users "
        f"with {info.n_items:,} items in {prepared.n_shards} shards, split {info.split}.",
        soft_wrap=True,
    )
