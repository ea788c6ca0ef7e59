"""An open load against servers that do what they are told."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from gmlfm.bench.serve_load import Load, drive, post

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
FAILED = b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"


class Told:
    """answers: by number of the request, from all connections together; b"" breaks the connection. Others are 200.
    held: a request that is answered when another one, by number, has come."""

    def __init__(self, answers: dict[int, bytes] | None = None, held: tuple[int, int] | None = None) -> None:
        self._answers, self._held = answers or {}, held
        self.bodies: list[bytes] = []
        self._came = asyncio.Event()

    def release(self) -> None:
        """Whoever is held is let go."""
        self._came.set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.bodies.append(await reader.readexactly(length))
                number = len(self.bodies) - 1
                if self._held is not None:
                    if number == self._held[1]:
                        self._came.set()
                    if number == self._held[0]:
                        await self._came.wait()
                answer = self._answers.get(number, OK)
                if not answer:
                    break
                writer.write(answer[: len(answer) // 2])  # in two pieces, as a network may
                await writer.drain()
                writer.write(answer[len(answer) // 2 :])
                await writer.drain()
                if answer is LAST:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def listening(told: Told) -> Iterator[int]:
    """Its port, while it runs in a thread."""
    loop, ports = asyncio.new_event_loop(), []
    started = threading.Event()

    async def run() -> None:
        server = await asyncio.start_server(told, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        stop.append(asyncio.Event())
        started.set()
        await stop[0].wait()
        server.close()
        told.release()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    stop: list[asyncio.Event] = []
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    started.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop[0].set)
        thread.join()
        loop.close()


def requests(n: int) -> list[bytes]:
    return [post("/x", str(number).encode(), "here", "token") for number in range(n)]


def test_every_request_is_sent_once_and_its_answer_is_told() -> None:
    told, answered = Told(), []
    with listening(told) as port:
        load = drive("127.0.0.1", port, requests(40), 400.0, 0.1, connections=4, on_answer=lambda *one: answered.append(one))
    assert sorted(told.bodies, key=int) == [str(number).encode() for number in range(40)]
    assert sorted(answered) == [(number, 200, b"{}") for number in range(40)]
    assert (load.n, load.errors, load.rate) == (40, 0, 400.0)
    assert (load.latencies > -0.02).all()
    assert np.isfinite(load.latencies).all()


def test_requests_begin_again_where_they_end() -> None:
    told = Told()
    with listening(told) as port:
        drive("127.0.0.1", port, requests(3), 400.0, 0.02, connections=1)
    assert told.bodies == [b"0", b"1", b"2", b"0", b"1", b"2", b"0", b"1"]


def test_a_late_answer_makes_those_behind_it_late_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.bench.serve_load._LAST", 0.1)
    # Of one connection, the first answer waits until the second request is there: which is sent only after it. It never comes.
    told = Told(held=(0, 1))
    with listening(told) as port:
        load = drive("127.0.0.1", port, requests(4), 400.0, 0.01, connections=1)
    assert load.errors == 4
    assert load.latencies.tolist() == [math.inf] * 4
    monkeypatch.undo()
    # With a second connection the other requests go on, and the first one is late alone.
    told = Told(held=(0, 3))
    with listening(told) as port:
        load = drive("127.0.0.1", port, requests(4), 100.0, 0.04, connections=2)
    assert load.errors == 0
    assert load.latencies.argmax() == 0
    assert load.latencies[0] > 0.02  # request 3 was due .03 seconds after it


def test_what_fails_is_an_error_and_the_rest_goes_on() -> None:
    told = Told({2: FAILED, 5: b"", 7: LAST})
    with listening(told) as port:
        load = drive("127.0.0.1", port, requests(20), 400.0, 0.05, connections=2)
    assert load.errors == 2
    assert sorted(set(load.statuses)) == [0, 200, 500]
    assert len(told.bodies) == 20
    assert not load.holds(1e9)


def test_a_load_holds_by_its_slowest_of_a_hundred() -> None:
    latencies = np.concatenate([np.full(99, 0.001), [1.0]])
    load = Load(10.0, 100, 0, latencies, np.full(100, 200))
    assert load.holds(1.0)
    assert not Load(10.0, 100, 1, latencies, np.full(100, 200)).holds(1.0)
    slow = Load(10.0, 100, 0, np.sort(np.concatenate([np.full(98, 0.001), [1.0, 1.0]])), np.full(100, 200))
    assert not slow.holds(999.0)
    assert slow.holds(1000.0)
    assert slow.to_dict() == {
        "rate": 10.0,
        "requests": 100,
        "errors": 0,
        "p50_ms": 1.0,
        "p99_ms": 1000.0,
        "p99.9_ms": 1000.0,
        "p100_ms": 1000.0,
    }


@pytest.mark.parametrize("token", [None, "abc"])
def test_requests_as_they_are_sent(token: str | None) -> None:
    head, _, body = post("/x", b'{"n": 1}', "127.0.0.1:80", token).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /x HTTP/1.1\r\nHost: 127.0.0.1:80\r\n")
    assert (b"Authorization: Bearer abc" in head) == (token is not None)
    assert b"Content-Length: 8" in head
    assert body == b'{"n": 1}'
