"""JSON over HTTP with a server that may be busy, be restarted, or have closed a connection that was idle."""

from __future__ import annotations

import http.client
import json
import random
import select
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from gmlfm.arguments import shown
from gmlfm.errors import GmlfmError, OptionError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_BUSY = 503
_FIRST_ERROR = 400
_MOST_TEXT = 300
_PORTS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


class ServiceError(GmlfmError):
    """What the service answered instead, in its own sentence; status: of HTTP, 0 where no answer came."""

    def __init__(self, message: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Connections:
    """One kept connection for each thread that asks.

    A request is sent again, after a pause that doubles, where that can do nothing twice: always where no connection could be
    made (in time), or the service said 503, by which it has changed nothing; and where the connection broke on the way, if the
    request is `repeatable`. A server's Retry-After is kept to. No answer in time is not tried again: it would be as late.
    """

    def __init__(self, url: str, token: str | None, timeout: float, retries: int, sleep: Callable[[float], None]) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        try:
            is_right = parts is not None and parts.scheme in _PORTS and bool(parts.hostname) and not parts.query
            port = None if parts is None else parts.port
        except ValueError:
            is_right = False
        if not is_right:
            raise OptionError(f"url is {shown(url)}; expected an address such as http://127.0.0.1:8765.")
        assert parts is not None
        self._scheme, self._host, self._port, self._prefix = parts.scheme, str(parts.hostname), port, parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._prefix}"
        self._timeout, self._retries, self._sleep = timeout, retries, sleep
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token is not None:
            if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
                raise OptionError("token is no token; expected ASCII characters.")
            self._headers["Authorization"] = f"Bearer {token}"
        self._local = threading.local()
        # Weakly: a thread that ends leaves its connection to nobody, which closes it.
        self._all: weakref.WeakSet[http.client.HTTPConnection] = weakref.WeakSet()
        self._lock = threading.Lock()

    def ask(self, method: str, path: str, body: Any = None, *, repeatable: bool = True) -> Any:
        """The answer's JSON."""
        text = None if body is None else as_json(body)
        for left in reversed(range(self._retries + 1)):
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self._retries - left))
            try:
                connection = self._connected()
            except OSError as error:
                if not left:
                    raise ServiceError(f"{self.url} cannot be reached ({_reason(error)}); is the service running?") from error
                self._wait(pause)
                continue
            try:
                status, headers, answer = self._exchange(connection, method, self._prefix + path, text)
            except TimeoutError as error:
                self._drop()
                raise ServiceError(
                    f"{self.url} did not answer within {self._timeout:g} seconds{_unsure(repeatable)}; raise timeout, or ask "
                    "for less."
                ) from error
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if not repeatable or not left:
                    raise ServiceError(
                        f"the connection to {self.url} broke ({_reason(error)}){_unsure(repeatable)}."
                    ) from error
                self._wait(pause)
                continue
            if status == _BUSY and left:
                self._wait(_retry_after(headers, pause))
                continue
            return self._read(status, answer)
        raise AssertionError("the last try returns or raises")

    def _connected(self) -> http.client.HTTPConnection:
        """The thread's own; another one where the server has closed it since."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.sock is not None:
            if not _has_come(connection.sock):  # something to read without a question: its end
                return connection
            self._drop()
        made: http.client.HTTPConnection = _PORTS[self._scheme](self._host, self._port, timeout=self._timeout)
        try:
            made.connect()
        except ssl.SSLError as error:
            raise ServiceError(f"{self.url} cannot be trusted ({_reason(error)}).") from error
        weakref.finalize(made, made.sock.close)
        with self._lock:
            self._all.add(made)
        self._local.connection = made
        return made

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            connection.request(method, path, body, self._headers)
        except (BrokenPipeError, ConnectionResetError) as error:
            return self._refusal(connection, error)
        answer = connection.getresponse()
        text = answer.read()
        if answer.will_close:
            self._drop()
        return answer.status, answer.headers, text

    def _refusal(self, connection: http.client.HTTPConnection, error: OSError) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Who refuses a body before it is whole answers and closes: the answer has come although the body could not go."""
        try:
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            raise error from None
        if answer.status < _FIRST_ERROR:
            raise error
        self._drop()
        return answer.status, answer.headers, text

    def _drop(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            connection.close()
            with self._lock:
                self._all.discard(connection)

    def _read(self, status: int, text: bytes) -> Any:
        try:
            answer = json.loads(text) if text else None
        except ValueError:
            answer = None
        if status < _FIRST_ERROR and answer is not None:
            return answer
        detail = answer.get("detail") if isinstance(answer, dict) else None
        if not isinstance(detail, str):
            said = text[:_MOST_TEXT].decode(errors="replace").strip()
            detail = f"{self.url} answered {status} and no JSON{f': {said}' if said else ''}; is it a gmlfm service?"
        raise ServiceError(detail, status)

    def _wait(self, seconds: float) -> None:
        # Not all who were turned away come again at the same moment.
        self._sleep(seconds * random.uniform(1.0, 1.25))

    def close(self) -> None:
        with self._lock:
            connections = list(self._all)
            self._all.clear()
        for connection in connections:
            connection.close()
        self._local = threading.local()


def _has_come(connected: socket.socket) -> bool:
    """Whether there is something to read; by `poll`, since `select` knows no file numbers above 1,023."""
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))


def as_json(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"the request cannot be written as JSON ({error}).") from error


def _retry_after(headers: http.client.HTTPMessage, pause: float) -> float:
    given = headers.get("Retry-After", "")
    return min(_LONGEST_PAUSE, max(pause, float(given))) if given.isdecimal() else pause


def _unsure(repeatable: bool) -> str:
    return "" if repeatable else "; whether the change was made is not known"


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
