"""gmlfm bench serve: the rates that a served run holds."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from gmlfm.arguments import whole_number
from gmlfm.cli.options import add_command, shared_options
from gmlfm.cli.output import console_for, print_json
from gmlfm.errors import OptionError
from gmlfm.storage import write_text

_LEAST_ITEMS = 100


def add_to(kinds: Any) -> None:
    parser = add_command(
        kinds,
        "serve",
        "requests a second that a served run holds",
        "Starts the server and asks it from another process at a fixed rate that waits for no answer; a latency counts from "
        "when the request was due. Told is the highest rate that is held for all of --seconds with nothing failed and 99 of "
        "100 answered within --limit: of recommendations for random users, of the same application answering with one list "
        "made beforehand (fixed), and of recommendations and events in turn (mixed). --rate measures one rate alone; --items "
        "takes the built-in market of so many items with drawn weights instead of a run. What is observed goes to a copy.",
        [
            "gmlfm bench serve runs/ml-1m",
            "gmlfm bench serve runs/ml-1m --kinds recommend,fixed --seconds 10 --json",
            "gmlfm bench serve --items 1000000 --rate 4 --limit 400",
        ],
    )
    parser.add_argument("run_folder", nargs="?", metavar="RUN", help="a run folder (default: the built-in market, see --items)")
    parser.add_argument("--items", type=int, metavar="N", help="the built-in market of so many items, untrained")
    parser.add_argument(
        "--kinds",
        metavar="LIST",
        help="of recommend, fixed, mixed, events (default: recommend,fixed,mixed; of --rate recommend)",
    )
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="that a rate is held (default: 60)")
    parser.add_argument("--probe", type=float, default=4.0, metavar="S", help="of a first look at a rate (default: 4)")
    parser.add_argument("--limit", type=float, default=50.0, metavar="MS", help="for 99 of 100 answers (default: 50)")
    parser.add_argument("--rate", type=float, metavar="R", help="this one alone, instead of the highest")
    parser.add_argument("--n", type=int, default=10, help="items asked for (default: 10)")
    parser.add_argument("--candidates", default="interactions", help="interactions or catalogue (default: interactions)")
    parser.add_argument("--connections", type=int, default=32, metavar="N", help="kept open (default: 32)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="of the server (default: 1)")
    parser.add_argument("--out", metavar="FILE", help="what is measured as JSON, too")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    try:
        from gmlfm.bench.serve import Aim, market_run, measure
        from gmlfm.serve import create_app  # noqa: F401 - told of here where it cannot be had
    except ModuleNotFoundError as error:
        raise OptionError(f"gmlfm bench serve needs {error.name}; install it with: pip install 'gmlfm[serve]'.") from error
    for name in ("seconds", "probe", "limit", "rate"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise OptionError(f"--{name} is {value:g}; expected a number above 0.")
    for name in ("n", "connections", "workers"):
        whole_number(getattr(options, name), f"--{name}", 1)
    if (options.run_folder is None) == (options.items is None):
        raise OptionError("say what to serve: a run folder, or --items N for the built-in market.")
    usual = "recommend,fixed,mixed" if options.rate is None else "recommend"
    kinds = [kind.strip() for kind in (options.kinds or usual).split(",")]
    aim = Aim(options.seconds, options.limit, options.probe, options.rate, options.connections, options.n, options.candidates)
    words = ["--workers", str(options.workers), "--max-n", str(max(1000, options.n))]
    with tempfile.TemporaryDirectory() as scratch:
        if options.items is not None:
            whole_number(options.items, "--items", _LEAST_ITEMS)
            folder = market_run(options.items, Path(scratch) / "market")
        else:
            folder = Path(options.run_folder).absolute()
        measured = measure(folder, kinds, aim, words=words)
    if options.out is not None:
        write_text(Path(options.out), json.dumps(measured, indent=1) + "\n")
    if options.json:
        print_json(measured)
    else:
        _show(measured)


def _show(measured: dict[str, Any]) -> None:
    console = console_for(highlight=False)
    console.print(
        f"{measured['run']}: {measured['users']:,} users, {measured['items']:,} items; {measured['seconds']:g} s, p99 within "
        f"{measured['limit_ms']:g} ms",
        soft_wrap=True,
    )
    titles = ("", "a second", "held", "errors", "p50 ms", "p99 ms", "worst ms", "CPU ms", "ready s", "MiB")
    console.print("".join(f"{title:>11}" for title in titles), soft_wrap=True)
    for kind, held in measured["held"].items():
        figures = [f"{held['rate']:,.1f}", "yes" if held["held"] else "NO", f"{held['errors']:,}"]
        figures += [f"{held[name]:.2f}" for name in ("p50_ms", "p99_ms", "p100_ms", "cpu_ms_per_request", "ready_seconds")]
        figures.append(f"{held['resident_mib']:,.0f}")
        console.print("".join(f"{text:>11}" for text in (kind, *figures)), soft_wrap=True)
    for name, ratio in measured["ratios"].items():
        console.print(f"{name:>22} {ratio:.2f}")
