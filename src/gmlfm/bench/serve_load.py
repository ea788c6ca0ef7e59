"""Requests at a fixed rate, whatever the answers do.

The load is open: request number i is due at i / rate, and its latency counts from then, also where it had to wait for a
connection because answers before it were late. A load that waits for answers would leave out what its users would wait.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_HEAD_END, _LENGTH = b"\r\n\r\n", b"content-length:"
_LATE = 5.0  # seconds of waiting at which a rate is given up
_LAST = 10.0  # seconds that the last answers have
_BROKEN = 0  # the status of a request whose connection broke, or that had no answer in time
_OK = 200
Answered = Callable[[int, int, bytes], None]  # number, status, body


@dataclass(frozen=True)
class Load:
    """n requests at `rate` a second: how many failed, and seconds from due to answered, infinite where nothing came."""

    rate: float
    n: int
    errors: int
    latencies: npt.NDArray[np.float64]
    statuses: npt.NDArray[np.int64]

    def quantile(self, share: float) -> float:
        """Milliseconds within which this share was answered: the slowest of them, not a mean of two."""
        return float(1000 * np.quantile(self.latencies, share, method="inverted_cdf"))

    def holds(self, limit: float) -> bool:
        """Nothing failed, and 99 of 100 were answered within so many milliseconds."""
        return self.errors == 0 and self.quantile(0.99) <= limit

    def to_dict(self) -> dict[str, float | int]:
        quantiles = {f"p{share:g}_ms": self.quantile(share / 100) for share in (50, 99, 99.9, 100)}
        return {"rate": self.rate, "requests": self.n, "errors": self.errors, **quantiles}


class _Connection(asyncio.Protocol):
    """One request at a time over a connection that is kept."""

    def __init__(self, load: _Driver) -> None:
        self._load, self._buffer, self._number = load, b"", -1
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, number: int, request: bytes) -> None:
        assert self._transport is not None
        self._number = number
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            return
        head = self._buffer[:end].lower()
        start = head.find(_LENGTH)
        length = int(head[start + len(_LENGTH) :].split(b"\r\n", 1)[0]) if start >= 0 else 0
        whole = end + len(_HEAD_END) + length
        if len(self._buffer) < whole:
            return
        body, self._buffer = self._buffer[end + len(_HEAD_END) : whole], self._buffer[whole:]
        number, self._number = self._number, -1
        if number >= 0:
            self._load.answered(number, int(head[9:12]), body)
        if b"connection: close" in head:
            self.close()
        else:
            self._load.free(self)

    def connection_lost(self, error: Exception | None) -> None:
        number, self._number = self._number, -1
        self._transport = None
        self._load.lost(self, number)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Driver:
    def __init__(
        self, host: str, port: int, requests: Sequence[bytes], rate: float, n: int, connections: int, on_answer: Answered | None
    ) -> None:
        self._host, self._port, self._requests, self._rate, self._n = host, port, requests, rate, n
        self._n_connections, self._on_answer = connections, on_answer
        self._all: set[_Connection] = set()
        self._free: list[_Connection] = []
        self._waiting: deque[int] = deque()
        self._latencies = np.full(n, math.inf)
        self._statuses = np.zeros(n, np.int64)
        self._started, self._n_open, self._is_over = 0.0, n, False
        self._done: asyncio.Event = asyncio.Event()
        self._connecting: set[asyncio.Task[None]] = set()

    async def run(self) -> Load:
        await asyncio.gather(*(self._connect() for _ in range(self._n_connections)))
        self._started = time.perf_counter() + 0.01
        sent = 0
        while sent < self._n and not self._is_hopeless(sent):
            now = time.perf_counter() - self._started
            while sent < self._n and sent / self._rate <= now:
                self._submit(sent)
                sent += 1
            # A timer of its own for each request would cost more than the request.
            await asyncio.sleep(max(0.0005, sent / self._rate - (time.perf_counter() - self._started)))
        if sent == self._n and self._n_open:
            try:
                await asyncio.wait_for(self._done.wait(), _LAST)
            except TimeoutError:
                pass
        self._is_over = True
        for task in self._connecting:
            task.cancel()
        for connection in self._all:
            connection.close()
        await asyncio.sleep(0)  # in which they are closed
        reached, statuses = self._latencies[:sent], self._statuses[:sent]
        return Load(self._rate, sent, int((statuses != _OK).sum()), reached, statuses)

    def _is_hopeless(self, sent: int) -> bool:
        return bool(self._waiting) and time.perf_counter() - self._started - self._waiting[0] / self._rate > _LATE

    def _submit(self, number: int) -> None:
        if self._free:
            self._free.pop().send(number, self._requests[number % len(self._requests)])
        else:
            self._waiting.append(number)

    def free(self, connection: _Connection) -> None:
        if self._waiting and not self._is_over:
            number = self._waiting.popleft()
            connection.send(number, self._requests[number % len(self._requests)])
        else:
            self._free.append(connection)

    def answered(self, number: int, status: int, body: bytes) -> None:
        self._latencies[number] = time.perf_counter() - self._started - number / self._rate
        self._close(number, status)
        if self._on_answer is not None:
            self._on_answer(number, status, body)

    def lost(self, connection: _Connection, number: int) -> None:
        """The request is not sent again: whether it had its effect is not known."""
        self._all.discard(connection)
        if connection in self._free:
            self._free.remove(connection)
        if number >= 0:
            self._close(number, _BROKEN)
        if not self._is_over:
            task = asyncio.ensure_future(self._connect())
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _close(self, number: int, status: int) -> None:
        self._statuses[number] = status
        self._n_open -= 1
        if self._n_open == 0:
            self._done.set()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_over:
            try:
                _, connection = await loop.create_connection(lambda: _Connection(self), self._host, self._port)
            except OSError:
                await asyncio.sleep(0.02)  # not there, for now
                continue
            self._all.add(connection)
            self.free(connection)
            return


def drive(
    host: str,
    port: int,
    requests: Sequence[bytes],
    rate: float,
    seconds: float,
    *,
    connections: int = 32,
    on_answer: Answered | None = None,
) -> Load:
    """The requests one after another, again from the first where there are more due than there are; where answers come
    seconds late, no more are sent."""
    n = max(1, round(rate * seconds))

    async def driven() -> Load:
        return await _Driver(host, port, requests, rate, n, min(connections, n), on_answer).run()

    gc.collect()
    gc.freeze()
    try:
        return asyncio.run(driven())
    finally:
        gc.unfreeze()


def post(path: str, body: bytes, host: str, token: str | None = None) -> bytes:
    """A request as it goes over the wire."""
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{bearer}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
