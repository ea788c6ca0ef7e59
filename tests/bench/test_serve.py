"""The search for a rate, and what is asked; the servers themselves are started by tests/cli/test_bench_serve.py."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gmlfm.bench.serve import Aim, highest, requests_of
from gmlfm.bench.serve_load import Load
from gmlfm.data.encoding import Encoder
from gmlfm.data.sources import load_dataset


class Server:
    """Holds some rate for long and a higher one for a moment."""

    def __init__(self, held: float, held_for_a_moment: float) -> None:
        self._held, self._moment = held, held_for_a_moment
        self.asked: list[tuple[float, float]] = []

    def __call__(self, rate: float, seconds: float) -> Load:
        self.asked.append((rate, seconds))
        limit = self._held if seconds > 10 else self._moment
        return Load(rate, 1, 0, np.array([0.001 if rate <= limit else 1.0]), np.array([200]))


@pytest.mark.parametrize("held", [3.0, 40.0, 777.0, 25_000.0])
def test_the_highest_rate_is_closed_in_on(held: float) -> None:
    server = Server(held, held)
    load, _ = highest(server, Aim(), 100.0)
    assert load.holds(50.0)
    assert held / 1.1 < load.rate <= held
    assert [seconds for _, seconds in server.asked].count(60.0) == 1
    assert len(server.asked) < 40


def test_the_whole_time_decides() -> None:
    server = Server(500.0, 700.0)
    load, busy = highest(server, Aim(), 100.0, lambda: float(len(server.asked)))
    assert load.holds(50.0)
    assert 400.0 < load.rate <= 500.0
    assert busy == len(server.asked) - 1  # as of the last one's start


def test_a_server_that_holds_nothing_is_told_so() -> None:
    load, _ = highest(Server(0.0, 0.0), Aim(), 100.0)
    assert not load.holds(50.0)


def test_what_is_asked() -> None:
    data = load_dataset("bazaar")
    encoder = Encoder.fit(data, np.arange(100))
    bodies = [json.loads(text.partition(b"\r\n\r\n")[2]) for text in requests_of("mixed", encoder, "here", Aim(n=7))]
    assert all(set(body) == {"user", "n"} and body["n"] == 7 for body in bodies[::2])
    rows = [body["events"][0] for body in bodies[1::2]]
    assert {row["item"] for row in rows} <= set(encoder.item_ids)
    assert len({body["user"] for body in bodies[::2]}) > 1_000
    paths = [text.split(b" ")[1] for text in requests_of("events", encoder, "here", Aim())]
    assert set(paths) == {b"/events"}
    catalogue = requests_of("recommend", encoder, "here", Aim(candidates="catalogue"))[0]
    assert json.loads(catalogue.partition(b"\r\n\r\n")[2])["candidates"] == "catalogue"
    assert requests_of("recommend", encoder, "here", Aim()) == requests_of("fixed", encoder, "here", Aim())
