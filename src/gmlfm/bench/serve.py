"""How many requests a second a served run holds: at an open rate, from another process, with nothing failed and 99 of 100
answered in time."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gmlfm.bench.serve_load import Load, drive, post
from gmlfm.bench.serve_process import REAL, ServerProcess
from gmlfm.data.encoding import Encoder
from gmlfm.data.sources.bazaar.market import Market
from gmlfm.data.sources.bazaar.tables import bazaar_dataset
from gmlfm.errors import OptionError
from gmlfm.progress import activity
from gmlfm.recommender import Recommender
from gmlfm.runs.generation import model_folder

KINDS = ("recommend", "fixed", "mixed", "events")
FIXED = ("gmlfm.cli.fixed_answers",)  # the same application, whose answer is a list made beforehand
_N_REQUESTS = 20_000
_FIRST_RATE, _MOST_RATE, _LEAST_RATE = 100.0, 30_000.0, 0.5
_STEP, _NEAR, _BACK = 1.6, 1.06, 0.92
_TRIES = 6
_ITEMS_PER_PURCHASE, _USERS_PER_PURCHASE = 54_924 / 46_712, 1 / 50


@dataclass(frozen=True)
class Aim:
    """What counts as held: for so many seconds, 99 of 100 within so many milliseconds. probe: seconds of a first look at a
    rate; rate: this one alone is measured."""

    seconds: float = 60.0
    limit: float = 50.0
    probe: float = 4.0
    rate: float | None = None
    connections: int = 32
    n: int = 10
    candidates: str = "interactions"


def measure(folder: Path, kinds: Sequence[str], aim: Aim, *, words: Sequence[str] = ()) -> dict[str, Any]:
    """By kind the highest rate that is held, or how the given one is; and their ratios. What is observed goes to a copy."""
    for kind in kinds:
        if kind not in KINDS:
            raise OptionError(f"'{kind}' is no kind of load; expected {', '.join(KINDS)}.")
    encoder = Encoder.load(model_folder(folder) / "encoder")
    result: dict[str, Any] = {
        "run": folder.name,
        "users": len(encoder.user_ids),
        "items": len(encoder.item_ids),
        "seconds": aim.seconds,
        "limit_ms": aim.limit,
        "held": {},
    }
    for kind in kinds:
        with tempfile.TemporaryDirectory() as scratch:
            served = folder
            if kind in ("mixed", "events"):
                served = Path(shutil.copytree(folder, Path(scratch) / folder.name))
            with ServerProcess(served, words, module=FIXED if kind == "fixed" else REAL) as server:
                requests = requests_of(kind, encoder, f"{server.host}:{server.port}", aim)
                result["held"][kind] = _held(server, requests, aim, kind)
    rates = {kind: held["rate"] for kind, held in result["held"].items() if held["held"] and aim.rate is None}
    pairs = (("recommend", "fixed"), ("mixed", "recommend"), ("events", "recommend"))
    result["ratios"] = {f"{kind}/{other}": rates[kind] / rates[other] for kind, other in pairs if {kind, other} <= set(rates)}
    return result


def requests_of(kind: str, encoder: Encoder, host: str, aim: Aim, seed: int = 0) -> list[bytes]:
    """Of random users; mixed: every other one is an event."""
    draw = random.Random(seed)
    users, items = (ids.to_list() for ids in (encoder.user_ids, encoder.item_ids))
    more = {} if aim.candidates == "interactions" else {"candidates": aim.candidates}

    def recommend() -> bytes:
        return post("/recommend", json.dumps({"user": draw.choice(users), "n": aim.n, **more}).encode(), host)

    def event() -> bytes:
        row = {"user": draw.choice(users), "item": draw.choice(items)}
        return post("/events", json.dumps({"events": [row]}).encode(), host)

    makers = {"mixed": (recommend, event), "events": (event,)}.get(kind, (recommend,))
    return [makers[number % len(makers)]() for number in range(_N_REQUESTS)]


def _held(server: ServerProcess, requests: Sequence[bytes], aim: Aim, kind: str) -> dict[str, Any]:
    def run(rate: float, seconds: float) -> Load:
        with activity(f"{kind}, {rate:,.0f} a second for {seconds:g} s"):
            return drive(server.host, server.port, requests, rate, seconds, connections=aim.connections)

    first = run(aim.rate or _FIRST_RATE, min(aim.probe, aim.seconds))  # everything is touched once
    busy = server.cpu_seconds()
    if aim.rate is not None:
        load = run(aim.rate, aim.seconds)
    else:
        load, busy = highest(run, aim, first.rate, server.cpu_seconds)
    per_request = (server.cpu_seconds() - busy) / max(load.n, 1)
    return {
        **load.to_dict(),
        "held": load.holds(aim.limit),
        "cpu_ms_per_request": 1000 * per_request,
        "ready_seconds": server.ready_seconds,
        "resident_mib": server.resident_bytes() / 2**20,
    }


def highest(
    run: Callable[[float, float], Load], aim: Aim, first_rate: float, busy: Callable[[], float] = lambda: 0.0
) -> tuple[Load, float]:
    """The load of the highest rate that is held all the time, and what `busy` said before it.

    Short looks close in on it by steps and then by halves of what is left; the whole time decides, some steps back where it
    does not hold.
    """
    good, bad = 0.0, _MOST_RATE
    rate, probe = first_rate, min(aim.probe, aim.seconds)
    while rate > _LEAST_RATE and not (good and bad / good <= _NEAR):
        if run(rate, probe).holds(aim.limit):
            good = rate
        else:
            bad = rate
        if not good:
            rate = bad / 2
        else:
            rate = min(good * _STEP, (good * bad) ** 0.5) if bad < _MOST_RATE else min(good * _STEP, _MOST_RATE)
        if good >= _MOST_RATE:
            break
    rate = good or _LEAST_RATE
    for _ in range(_TRIES):
        before = busy()
        load = run(rate, aim.seconds)
        if load.holds(aim.limit):
            break
        rate *= _BACK
    return load, before


def market_run(n_items: int, folder: Path, **settings: Any) -> Path:
    """A run over the built-in market with so many items or a few more; its weights are drawn, which costs the same."""
    n_purchases = max(200, round(n_items / _ITEMS_PER_PURCHASE * 1.01))
    n_users = max(10, round(n_purchases * _USERS_PER_PURCHASE))
    with activity(f"making a market of {n_items:,} items"):
        data = bazaar_dataset(Market(n_users, n_purchases))
        Recommender(**{"v_scale": 0.3, **settings, "epochs": 0}).fit(data, out=folder)
    return folder
