"""The application behind a port: one process, or several that share it; signals; a graceful stop."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.runs.description import read_about
from gmlfm.serve.app import create_app
from gmlfm.serve.connections import Config
from gmlfm.serve.logs import log
from gmlfm.serve.metrics import workers_seen
from gmlfm.serve.options import ServeOptions
from gmlfm.serve.service import Service
from gmlfm.serve.workers import ask_for_reload
from gmlfm.storage import write_text

_BACKLOG = 2048
_IDLE = 75  # seconds that a connection is kept for the next request
_GRACE = 5  # seconds beyond the longest answer
_PAUSE = 5.0  # seconds between new workers in the place of dead ones
_FAILURE = "failure"


def serve(
    folders: Sequence[str],
    host: str,
    port: int,
    options: ServeOptions,
    *,
    workers: int = 1,
    model: Any = None,
    announce: Callable[[str], None] = lambda url: None,
) -> None:
    """Until SIGTERM or Ctrl-C. announce: called with the address once requests are taken."""
    for folder in folders:
        read_about(Path(folder))  # before the port is taken: a folder that is no run is told of at once
    prepare_process()
    with contextlib.closing(_listening(host, port)) as listener, _hearing_hangups() as hangups:
        url = _url(host, listener)
        if workers == 1:
            app = create_app(folders, options, model=model)
            announce(url)
            log(options.log, "start", workers=1)
            _Server(_config(app, options), app, hangups).run(sockets=[listener])
        else:
            with tempfile.TemporaryDirectory(prefix="gmlfm-serve-") as shared_folder:
                options = replace(options, shared_folder=Path(shared_folder))
                app_of = partial(_worker_app, [str(Path(folder).absolute()) for folder in folders], options, model)
                announce(url)
                log(options.log, "start", workers=workers)
                server = _Workers(_config(app_of, options, workers), [listener], Path(shared_folder))
                server.signal_queue += hangups
                server.run()
                if not workers_seen(Path(shared_folder)) and (Path(shared_folder) / _FAILURE).exists():
                    raise DataError((Path(shared_folder) / _FAILURE).read_text(encoding="utf-8"))
        log(options.log, "stop")


def prepare_process() -> None:
    """Before a run is loaded. Answers are made side by side: the threads of one that met after every operation would wait for
    each other. And the collector does not look through all loaded modules again and again, which stops every answer."""
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


def check_exposure(host: str, options: ServeOptions, *, insecure: bool = False) -> None:
    if options.token is None and not is_loopback(host) and not insecure:
        raise OptionError(
            f"the host {host} can be reached from elsewhere, and no token is set; give --token-file or GMLFM_TOKEN, or say "
            "--insecure."
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise OptionError(f"the host '{host}' is not known ({error}); give an address of this machine.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # from here on requests wait instead of being turned away
    except OSError as error:
        listener.close()
        raise OptionError(
            f"{host}:{port} cannot be listened on ({error.strerror}); choose another --port or --host."
        ) from error
    return listener


def _url(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}/"


def _config(app: Any, options: ServeOptions, workers: int = 1) -> Config:
    return Config(
        app,
        patience=options.timeout,
        factory=workers > 1,
        workers=workers,
        log_config=None,
        access_log=False,  # it would name who was asked for
        server_header=False,
        lifespan="on",
        ws="none",
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=int(options.timeout) + _GRACE,
    )


@contextlib.contextmanager
def _hearing_hangups() -> Generator[list[int], None, None]:
    """SIGHUP while a run is being read, which would end the process: noted, for whoever hears it from then on."""
    hangups: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield hangups
        return
    before = signal.signal(signal.SIGHUP, lambda number, frame: hangups.append(number))
    try:
        yield hangups
    finally:
        signal.signal(signal.SIGHUP, before)


class _Server(uvicorn.Server):
    """SIGHUP reloads; SIGTERM and Ctrl-C end it after the last answer, as a success. hangups: that came before it ran."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, hangups: Sequence[int] = ()) -> None:
        super().__init__(config)
        self._service: Service = app.state.service
        self._hangups = hangups

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.is_stopping = True  # not ready any more, while the port is still open
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {
            signal.SIGINT: self.handle_exit,
            signal.SIGTERM: self.handle_exit,
            signal.SIGHUP: lambda number, frame: self._service.reload_soon(),
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        if self._hangups:
            self._service.reload_soon()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Workers(Multiprocess):
    """SIGHUP asks the workers to reload, which replaces no process."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], shared_folder: Path) -> None:
        super().__init__(config, sockets)
        self._shared_folder = shared_folder
        self._next_start = 0.0

    def keep_subprocess_alive(self) -> None:
        """A worker that died is replaced. One that is silent is not: it may be reading a large run, and whoever waits for its
        sign of life hears no signal meanwhile."""
        for place, worker in enumerate(self.processes):
            if self.should_exit.is_set() or worker.process.is_alive():
                continue
            if worker.exitcode == STARTUP_FAILURE and not workers_seen(self._shared_folder):
                self.should_exit.set()
                return
            # Where others serve a run that stands in the folder no more, a new worker fails, again and again.
            if time.monotonic() >= self._next_start:
                self._next_start = time.monotonic() + _PAUSE
                self.processes[place] = Process(self.config, self.sockets)
                self.processes[place].start()

    def handle_hup(self) -> None:
        ask_for_reload(self._shared_folder)


def _worker_app(folders: Sequence[str], options: ServeOptions, model: Any) -> FastAPI:
    """In a process of its own. A terminal that is closed signals all of them, and only the first one acts on it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    prepare_process()
    try:
        app = create_app(folders, options, model=model)
    except GmlfmError as error:
        assert options.shared_folder is not None
        write_text(options.shared_folder / _FAILURE, str(error))
        sys.exit(STARTUP_FAILURE)  # which no new process would mend
    _stop_being_ready(app.state.service)
    return app


def _stop_being_ready(service: Service) -> None:
    """When the signal comes that uvicorn, in whose process this is, stops by."""
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def stop(number: int, frame: FrameType | None, before: Any = before) -> None:
            service.is_stopping = True
            if callable(before):
                before(number, frame)

        signal.signal(number, stop)


def _stop_with_parent() -> None:
    """Workers of a parent that was killed would hold the port without anybody who can stop them."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
