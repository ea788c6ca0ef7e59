"""What the routes share: the hosts by name, the threads that answer, and what is counted."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, cast

import psutil
from fastapi import Depends, Query, Request, Response

from gmlfm.errors import GmlfmError, did_you_mean
from gmlfm.kernels.cpu.single_threads import on_one_torch_thread
from gmlfm.serve.hosting import Host, Served, Waiting
from gmlfm.serve.logs import log, log_failure
from gmlfm.serve.metrics import Metrics, share_figures
from gmlfm.serve.options import ServeOptions
from gmlfm.serve.problems import Problem, full
from gmlfm.serve.workers import ReloadRequest, ask_for_reload, reload_request

_TICK = 0.2  # seconds between looks at what other workers ask for
_SHARE_EVERY = 1.0
_MOST_RELOADS = 4  # that wait for their turn: each takes what stands in the folder by then


class Service:
    """hosts: the first one is the default. Questions beyond `max_in_flight` are refused at once, so that none waits long.

    request: what other workers had asked for (`reload_request`) before the hosts were loaded.
    """

    def __init__(self, hosts: Sequence[Host], options: ServeOptions, request: ReloadRequest = None) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.default = hosts[0]
        self.options = options
        self.metrics = Metrics()
        self.is_stopping = False
        self.n_in_flight, self.n_bodies, self._n_reloads = 0, 0, 0
        self._is_asked, self._request, self._shared_at = False, request, 0.0
        self._last_failure = ""  # of looking at what others ask for: the same one is told once
        # A new thread has torch's default number of threads for each operation, which meet, spin and take one another's time.
        self._askers = ThreadPoolExecutor(options.threads, "answer", on_one_torch_thread)
        self._writing = ThreadPoolExecutor(1, "write")
        self._rewriting = ThreadPoolExecutor(1, "rewrite")
        self._reloading = ThreadPoolExecutor(1, "reload")  # else a few would leave no thread for /health

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

    async def answer_quickly(self, name: str | None, question: Callable[[Served], Any]) -> Response:
        """As `answer`, of a question that takes less time than handing it to a thread and back: answered here, if it can be."""
        self._refuse_if_full()
        served = self.host(name).quick()
        if served is None:
            return await self.answer(name, question)
        return Response(_as_json(question(served)), media_type="application/json")

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
        """A short look at files."""
        return await asyncio.to_thread(work)

    async def _done(self, pool: ThreadPoolExecutor, work: Callable[[], bytes], timeout: float | None) -> Response:
        self._refuse_if_full()
        self.n_in_flight += 1
        begun = pool.submit(work)
        future = asyncio.wrap_future(begun)
        future.add_done_callback(self._has_left)  # a question that took too long counts until its thread is free
        try:
            body = await asyncio.wait_for(asyncio.shield(future), timeout)
        except TimeoutError:
            self.metrics.refused("timeout")
            if pool is not self._askers:
                raise Problem(504, f"the change took more than {timeout:g} seconds, and may still be made.") from None
            begun.cancel()  # where it still waits for a thread, since nobody waits for its answer
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
            try:
                await self._look_and_share()
                self._last_failure = ""
            except Problem:
                pass  # of a reload, which has told of it
            except Exception as error:  # of a full disk, say: the next one may go well
                if type(error).__name__ != self._last_failure:
                    log_failure(self.options.log, "look at other workers", error)
                self._last_failure = type(error).__name__

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
        self._n_reloads += 1
        try:
            return await self._reloaded(hosts)
        finally:
            self._n_reloads -= 1

    def refuse_if_many_reload(self) -> None:
        if self._n_reloads >= _MOST_RELOADS:
            self.metrics.refused("full")
            raise full(f"{self._n_reloads} reloads wait already, and each takes what stands in the folder by then")

    async def _reloaded(self, hosts: Sequence[Host]) -> list[str]:
        swapped: list[str] = []
        failed: Exception | None = None
        for host in hosts:
            try:
                is_new = await asyncio.get_running_loop().run_in_executor(self._reloading, host.reload)
            except Exception as error:
                failed = failed or error
                self.metrics.add("gmlfm_reloads_total", outcome="failed")
                why = error.detail if isinstance(error, Problem) else type(error).__name__
                log(self.options.log, "reload", run=host.name, outcome="failed", why=why)
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
        self._reloading.shutdown(wait=True, cancel_futures=True)
        if self.options.shared_folder is not None:
            with suppress(GmlfmError, OSError):
                share_figures(self.metrics.as_list(), self.options.shared_folder)


def _as_json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


async def service_of(request: Request) -> Service:
    return cast(Service, request.app.state.service)


InService = Annotated[Service, Depends(service_of)]
RunName = Annotated[
    str | None, Query(alias="run", max_length=200, description="which of the runs served; the first without it")
]
