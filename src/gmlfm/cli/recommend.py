"""gmlfm recommend RUN: for a user, for somebody new, or for everybody into a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gmlfm.cli.options import (
    add_command,
    add_context,
    add_run,
    comma_list,
    context_of,
    load_run,
    named_values,
    read_file,
    shared_options,
)
from gmlfm.cli.output import (
    console_for,
    note,
    note_missing_context,
    print_json,
    show_rows,
    users_not_known,
    verbatim,
    warnings_as_notes,
)
from gmlfm.data.sources.dialect import decode
from gmlfm.errors import DataError, OptionError
from gmlfm.progress import activity
from gmlfm.reading import is_regular
from gmlfm.storage import new_file, refuse_special_file, reporting_write_errors, write_text
from gmlfm.streams import read_bytes

if TYPE_CHECKING:
    from gmlfm.recommender import Recommender

_USERS_PER_PART = 10_000
_STAMP = "stamp.json"
_FILE_ENDINGS = (".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq", ".gz")


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "recommend",
        "the best items for a user, a newcomer, or everybody",
        "The n best items for users of the data, for somebody new from attributes or a history or both, or for every user "
        "into a file. Items that the user had, and those marked sold, are left out.",
        [
            "gmlfm recommend runs/demo --user b0000003 -n 5",
            "gmlfm recommend runs/demo --attributes age=20-29,region=Osaka --history t000000001,t000000002",
            'gmlfm recommend runs/shop --attribute "city=Washington, D.C." --attribute age=20-29',
            "gmlfm recommend runs/demo --history t000000001,t000000002",
            "gmlfm recommend runs/demo --user b0000003 --filter \"genre = 'Concert'\" --at-most category=2 --json",
            "gmlfm recommend runs/demo --user b0000003 --because",
            "gmlfm recommend runs/demo --all --out best.parquet --available stock.csv",
        ],
    )
    add_run(parser)
    parser.add_argument("--user", action="append", metavar="ID", help="a user's id; may be given several times")
    parser.add_argument("--attributes", metavar="K=V,...", help="somebody never seen, from the attributes that are known")
    parser.add_argument(
        "--attribute", action="append", default=[], metavar="K=V", help="one of them; may be repeated, and V may hold commas"
    )
    parser.add_argument(
        "--history", metavar="ID,...", help="somebody never seen, from items that they had, with or without attributes"
    )
    parser.add_argument("--all", action="store_true", help="every user, into --out")
    parser.add_argument(
        "--out", metavar="FILE", help="with --all: a .parquet file; stopped in the middle, the same command goes on"
    )
    parser.add_argument("-n", type=int, default=10, help="how many items (default: 10)")
    parser.add_argument(
        "--filter",
        metavar="EXPR",
        help="a condition on item fields, such as \"condition != 'worn' and price < 50\" or \"tags contains 'new'\"",
    )
    parser.add_argument("--available", metavar="FILE|ID,...", help="only these items: ids, or a table with a column of them")
    parser.add_argument("--at-most", metavar="FIELD=N", help="at most N items of the same value of a field, or member of a set")
    parser.add_argument(
        "--candidates", metavar="KIND", help="interactions (items that occur in them, the default) or catalogue (all)"
    )
    add_context(parser)
    parser.add_argument("--seen", action="store_true", help="also items the user had, or those of --history")
    parser.add_argument(
        "--because",
        action="store_true",
        help="beside each item the earlier one that adds most to its score, if the run reads them",
    )
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    is_new = options.attributes is not None or bool(options.attribute) or options.history is not None
    if sum([bool(options.user), is_new, options.all]) != 1:
        raise OptionError(
            "say for whom, in one way: --user ID; --attributes K=V,... or --history ID,... or both, for somebody new; or "
            "--all --out FILE."
        )
    if options.out and not options.all:
        raise OptionError("--out goes with --all only.")
    if options.seen and is_new and options.history is None:
        raise OptionError("--seen goes with --user, --all or --history only.")
    choices = _choices(options)
    attributes = _attributes(options)
    recommender = load_run(options)
    if options.available is not None:
        choices["available"] = _available(options.available, recommender)
    console = console_for(stderr=options.json)
    note_missing_context(console, recommender, options.context)
    if options.all:
        with warnings_as_notes(console):
            _write_all(recommender, options, choices)
        return
    with warnings_as_notes(console), activity("recommending"):
        if is_new:
            table = recommender.recommend_for(
                attributes, comma_list(options.history or ""), options.n, seen=options.seen, **choices
            )
        else:
            table = recommender.recommend(options.user, options.n, seen=options.seen, **choices)
    for user in users_not_known(table):
        is_unknown = recommender.fitted.encoder.user_numbers([user])[0] < 0
        popular, scored = (
            "nothing is known of this user, so this is what is popular",
            "scored from attributes and the unknown row",
        )
        note(console, f"user '{user}' was not met in training: {popular if is_unknown else scored}.")
    show_rows(table, console, as_json=options.json)


def _attributes(options: argparse.Namespace) -> dict[str, str]:
    """What --attributes and every --attribute give, each name once."""
    attributes = {} if options.attributes is None else named_values(options.attributes, "--attributes")
    for text in options.attribute:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"--attribute takes K=V, such as \"city=Washington, D.C.\"; got '{text}'.")
        if name.strip() in attributes:
            raise OptionError(f"the attribute '{name.strip()}' is given twice; give each once.")
        attributes[name.strip()] = value.strip()
    return attributes


def _choices(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords of recommend that were given, apart from `available`, which needs the run."""
    choices: dict[str, Any] = {"filter": options.filter, **context_of(options)}
    if options.at_most is not None:
        caps = named_values(options.at_most, "--at-most")
        if not all(most.isdecimal() for most in caps.values()):
            raise OptionError(f"--at-most takes FIELD=N with a whole number N; got '{options.at_most}'.")
        choices["at_most"] = {field: int(most) for field, most in caps.items()}
    if options.candidates is not None:
        choices["candidates"] = options.candidates
    if options.because:
        choices["because"] = True
    return choices


def _available(text: str, recommender: Recommender) -> list[str]:
    """Ids from the text itself, from the lines of a .txt file, or from a table's column of items."""
    path = Path(text)
    if not _is_file(path):
        if path.suffix.lower() in _FILE_ENDINGS:
            raise DataError(f"--available {text} does not exist; check path.")
        return comma_list(text)
    if path.suffix.lower() == ".txt":
        return decode(read_bytes(path), None, text)[0].split()
    frame = read_file(text)
    schema = recommender.fitted.data.schema
    names = ["item", schema.interactions.item, *([schema.items.id] if schema.items else [])]
    column = next((name for name in names if name in frame.columns), None)
    if column is None:
        expected = " or ".join(f"'{name}'" for name in dict.fromkeys(names))
        raise DataError(f"--available {text} has the columns {', '.join(frame.columns)}; expected {expected}.")
    return frame[column].drop_nulls().cast(pl.String).to_list()


def _is_file(path: Path) -> bool:
    try:
        return is_regular(path)
    except DataError:
        return False  # many ids are longer than a name can be


def _write_all(recommender: Recommender, options: argparse.Namespace, choices: dict[str, Any]) -> None:
    """Parts beside the target, joined when all are written; a part that exists is not computed again."""
    from gmlfm.runs.locking import writers_lock

    if not options.out or not options.out.endswith(".parquet"):
        raise OptionError("--all needs --out FILE.parquet.")
    target = Path(options.out)
    users = recommender.fitted.encoder.ids_of_users(recommender.fitted.data.seen_users).to_list()
    parts = target.with_name(f".{target.name}.parts")
    # The checksum of run.json covers those of the weights and the data.
    asked = [recommender.about["check"], options.n, choices, options.seen, dict(recommender.stock.marks)]
    stamp = json.dumps(asked, sort_keys=True)
    refuse_special_file(target)
    with reporting_write_errors(target), writers_lock(_parts_folder(parts), seconds=0.0):
        _begin_parts(parts, stamp)
        with activity("recommending", "users") as shown:
            for start in range(0, len(users), _USERS_PER_PART):
                part = parts / f"{start:012d}.parquet"
                if not part.exists():
                    block = users[start : start + _USERS_PER_PART]
                    table = recommender.recommend(block, options.n, seen=options.seen, **choices)
                    with new_file(part) as draft:
                        table.write_parquet(draft)
                shown.update(min(start + _USERS_PER_PART, len(users)), len(users))
        with activity(f"writing {target}"), new_file(target) as draft:
            pl.scan_parquet(sorted(parts.glob("*.parquet"))).sink_parquet(draft)
        _remove_parts(parts)
    if options.json:
        print_json({"out": str(target), "users": len(users)})
    else:
        console_for().print(f"{len(users):,} users' recommendations are in [bold]{verbatim(target)}[/].", soft_wrap=True)


def _parts_folder(parts: Path) -> Path:
    if parts.is_symlink() or (parts.exists() and not parts.is_dir()):
        raise DataError(f"{parts} is in the way; remove it, or choose another --out.")
    return parts


def _begin_parts(parts: Path, stamp: str) -> None:
    """Parts that were made of something else are removed."""
    path = parts / _STAMP
    if not path.exists() or path.read_text(encoding="utf-8") != stamp:
        for file in parts.glob("*.parquet"):
            file.unlink()
        write_text(path, stamp)


def _remove_parts(parts: Path) -> None:
    """Those that were written here; what else lies in the folder stays, and the folder with it."""
    for file in (*parts.glob("*.parquet"), *parts.glob(".*"), parts / _STAMP):
        file.unlink(missing_ok=True)
    if not any(parts.iterdir()):
        parts.rmdir()
