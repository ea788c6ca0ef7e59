"""A server in a process of its own: started, waited for, looked at, stopped."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from urllib.parse import urlsplit

import psutil

from gmlfm.errors import OptionError

REAL = ("gmlfm", "serve")
_PAUSE = 0.005
_SECONDS = 300.0  # a million items take their time
_TAIL = 2_000  # bytes of what a server that failed had to say


class ServerProcess:
    """with ServerProcess(folder) as server: ... server.host, server.port; ready_seconds: from its start to the first
    /health/ready. module: of `python -m`, with its first words."""

    def __init__(self, folder: Path, words: Sequence[str] = (), *, module: Sequence[str] = REAL, port: int = 0) -> None:
        self._command = [sys.executable, "-m", *module, str(folder), "--port", str(port), "--json", "--log", "none", *words]
        self.host, self.port, self.ready_seconds = "127.0.0.1", port, 0.0

    def __enter__(self) -> ServerProcess:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        self._errors = TemporaryFile()
        started = time.perf_counter()
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._errors, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert self.process.stdout is not None
        reply = self.process.stdout.readline()
        try:
            said = json.loads(reply)
        except ValueError:
            said = {}
        if "url" not in said:
            raise OptionError(f"the server did not start: {said.get('error') or self._last_words()}")
        self.port = urlsplit(said["url"]).port or self.port
        while not self._is_ready():
            if self.process.poll() is not None or time.perf_counter() - started > _SECONDS:
                raise OptionError(f"the server was not ready: {self._last_words()}")
            time.sleep(_PAUSE)
        self.ready_seconds = time.perf_counter() - started

    def _last_words(self) -> str:
        """Of a server that has failed, which is ended."""
        self.process.kill()
        self.process.wait()
        self._errors.seek(0)
        return " ".join(self._errors.read()[-_TAIL:].decode(errors="replace").split()) or f"exit {self.process.returncode}"

    def _is_ready(self) -> bool:
        try:
            return self.get("/health/ready")[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> tuple[int, bytes]:
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_SECONDS)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def cpu_seconds(self) -> float:
        """Of it and its workers."""
        times = [process.cpu_times() for process in self._processes()]
        return float(sum(time.user + time.system for time in times))

    def resident_bytes(self) -> int:
        return int(sum(process.memory_info().rss for process in self._processes()))

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def stop(self) -> None:
        """As its owner would: the last answers are given."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._close()

    def kill(self) -> None:
        """At once, in the middle of whatever it does."""
        self.process.kill()
        self._close()

    def _close(self) -> None:
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()
