"""What the routes share: the hosts by name, the threads that answer, and what is counted."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, cast

import psutil
from fastapi import Depends, Query, Request, Response

from gmlfm.errors import GmlfmError, did_you_mean
from gmlfm.serve.hosting import Host, Served, Waiting
from gmlfm.serve.logs import log
from gmlfm.serve.metrics import Metrics, share_figures
from gmlfm.serve.options import ServeOptions
from gmlfm.serve.problems import Problem, full
from gmlfm.serve.workers import ask_for_reload, reload_request

_TICK = 0.2  # seconds between looks at what other workers ask for
_SHARE_EVERY = 1.0


class Service:
    """hosts: the first one is the default. Questions beyond `max_in_flight` are refused at once, so that none waits long."""

    def __init__(self, hosts: Sequence[Host], options: ServeOptions) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.default = hosts[0]
        self.options = options
        self.metrics = Metrics()
        self.is_stopping = False
        self.n_in_flight = 0
        self._is_asked, self._request, self._shared_at = False, reload_request(options.shared_folder), 0.0
        self._askers = ThreadPoolExecutor(options.threads, "answer")
        self._writing = ThreadPoolExecutor(1, "write")
        self._rewriting = ThreadPoolExecutor(1, "rewrite")

    def host(self, name: str | None) -> Host:
        if name is None:
            return self.default
        host = self.hosts.get(name)
        if host is None:
            raise Problem(400, f"no run '{name[:80]}' is served here{did_you_mean(name[:80], self.hosts)}")
        return host

    async def answer(self, name: str | None, question: Callable[[Served], Any]) -> Response:
        """The question put to the run as it is now, in a thread, within the time."""
        host = self.host(name)
        return await self._done(self._askers, lambda: _as_json(question(host.current())), self.options.timeout)

    async def write(self, name: str | None, change: Callable[[Host], Any]) -> Response:
        host = self.host(name)
        return await self._done(self._writing, lambda: _as_json(change(host)), self.options.timeout)

    async def rewrite(self, name: str | None, change: Callable[[Host], Any]) -> Response:
        """A change of the run itself, which takes its time, and makes no event wait for a thread."""
        host = self.host(name)
        return await self._done(self._rewriting, lambda: _as_json(change(host)), None)

    async def observe(
        self, name: str | None, rows: Sequence[Mapping[str, Any]], answer: Callable[[Host, Waiting], Any]
    ) -> Response:
        """As `write`; rows that wait at the same time are written together."""
        host = self.host(name)
        self._refuse_if_full()  # what is refused must not wait to be written
        waiting = host.wait_to_observe(rows)
        return await self._done(self._writing, lambda: _as_json(answer(host, waiting)), self.options.timeout)

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """What may take long and is no question: a reload."""
        return await asyncio.to_thread(work)

    async def _done(self, pool: ThreadPoolExecutor, work: Callable[[], bytes], timeout: float | None) -> Response:
        self._refuse_if_full()
        self.n_in_flight += 1
        future = asyncio.wrap_future(_submitted(pool, work))
        future.add_done_callback(self._has_left)  # a question that took too long counts until its thread is free
        try:
            body = await asyncio.wait_for(asyncio.shield(future), timeout)
        except TimeoutError:
            self.metrics.refused("timeout")
            raise Problem(504, f"the answer took more than {timeout:g} seconds; ask for less.") from None
        return Response(body, media_type="application/json")

    def _refuse_if_full(self) -> None:
        if self.n_in_flight >= self.options.max_in_flight:
            self.metrics.refused("full")
            raise full(f"{self.n_in_flight} questions are being answered, and that is the most at once")

    def _has_left(self, future: asyncio.Future[bytes]) -> None:
        self.n_in_flight -= 1
        if not future.cancelled():
            future.exception()  # of a question that was given up: nobody else asks for it

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While requests come: SIGHUP and other workers' reloads are heard, and figures are left for them."""
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            self.is_stopping = True
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            await asyncio.to_thread(self.close)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            with suppress(Problem, GmlfmError, OSError):  # of a full disk, say: the next one may go well
                await self._look_and_share()

    async def _look_and_share(self) -> None:
        shared_folder = self.options.shared_folder
        request = await asyncio.to_thread(reload_request, shared_folder)
        if self._is_asked or request != self._request:
            self._is_asked, self._request = False, request
            await self.reload(list(self.hosts.values()))
        if shared_folder is not None and time.monotonic() - self._shared_at >= _SHARE_EVERY:
            self._shared_at = time.monotonic()
            await asyncio.to_thread(share_figures, self.figures(), shared_folder)

    def reload_soon(self) -> None:
        """SIGHUP: take the runs that stand in the folders now."""
        self._is_asked = True

    def ask_others_to_reload(self) -> None:
        if self.options.shared_folder is not None:
            ask_for_reload(self.options.shared_folder)

    async def reload(self, hosts: Sequence[Host]) -> list[str]:
        """The names of those that were replaced. All are tried; the first that cannot be read is told of."""
        swapped, failed = [], None
        for host in hosts:
            try:
                is_new = await self.in_thread(host.reload)
            except Problem as problem:
                failed = failed or problem
                self.metrics.add("gmlfm_reloads_total", outcome="failed")
                log(self.options.log, "reload", run=host.name, outcome="failed")
                continue
            self.metrics.add("gmlfm_reloads_total", outcome="swapped" if is_new else "unchanged")
            log(self.options.log, "reload", run=host.name, outcome="swapped" if is_new else "unchanged")
            swapped += [host.name] if is_new else []
        if failed is not None:
            raise failed
        return swapped

    def problems(self) -> list[str]:
        return [problem for host in self.hosts.values() if (problem := host.check()) is not None]

    def figures(self) -> list[list[Any]]:
        """Of this process, gauges among them."""
        memory, worker = psutil.Process().memory_info().rss, [["worker", str(os.getpid())]]
        gauges: list[list[Any]] = [["gmlfm_resident_bytes", worker, memory], ["gmlfm_in_flight", [], self.n_in_flight]]
        return [*self.metrics.as_list(), *gauges]

    def close(self) -> None:
        self._askers.shutdown(wait=True, cancel_futures=True)
        self._writing.shutdown(wait=True)
        self._rewriting.shutdown(wait=True)
        if self.options.shared_folder is not None:
            with suppress(GmlfmError, OSError):
                share_figures(self.metrics.as_list(), self.options.shared_folder)


def _submitted(pool: ThreadPoolExecutor, work: Callable[[], bytes]) -> Future[bytes]:
    return pool.submit(work)


def _as_json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


async def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


InService = Annotated[Service, Depends(service_of)]
RunName = Annotated[
    str | None, Query(alias="run", max_length=200, description="which of the runs served; the first without it")
]
