"""One HTTP request that ends in time: redirects stay on the web, and a deadline cuts the connection, whatever is sent."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any
from urllib.parse import urlsplit

from gmlfm.errors import DataError

_MOST_REDIRECTS = 5


class Deadline:
    """A moment at which every watched connection is cut: a socket's own timeout begins anew with each byte that comes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), self._cut)
        self._timer.daemon = True

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def watch(self, connection: socket.socket) -> None:
        """A duplicate is kept: TLS takes the socket itself over while it shakes hands."""
        with self._lock:
            self._sockets.append(connection.dup())
        if self.left <= 0:
            self._cut()

    def _cut(self) -> None:
        with self._lock:
            for connection in self._sockets:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._sockets:
                connection.close()
            self._sockets.clear()


class _Connection(http.client.HTTPConnection):
    def __init__(self, *arguments: Any, deadline: Deadline, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.watch(self.sock)


class _SecureConnection(http.client.HTTPSConnection, _Connection):
    """Watched before it shakes hands: HTTPSConnection connects through the class that comes next."""


class _Handler(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, deadline=self._deadline), req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_SecureConnection, deadline=self._deadline), req)


class Redirects(urllib.request.HTTPRedirectHandler):
    """To http and https alone, never from https to http, five at most, none twice. urllib itself refuses file: and the like."""

    max_redirections, max_repeats = _MOST_REDIRECTS, 1

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        fp.read = bytes  # nobody needs the reply's text, which may have no end
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except (DataError, ValueError):
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> Any:
        scheme = urlsplit(newurl).scheme
        if scheme not in ("http", "https") or (urlsplit(req.full_url).scheme, scheme) == ("https", "http"):
            raise DataError(f"{req.full_url} leads to {newurl}, which is not followed: expected https; use --from FILE.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def requested(url: str, start: int, deadline: Deadline, timeout: float) -> Iterator[http.client.HTTPResponse]:
    """The answer to a request for a file from byte `start` on: 200 with all of it, or 206 with the bytes asked for."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f"{url} is no address on the web; expected one that begins with https.")
    opener = urllib.request.build_opener(_Handler(deadline), _SecureHandler(deadline), Redirects)
    headers = {"User-Agent": "gmlfm", **({"Range": f"bytes={start}-"} if start else {})}
    with opener.open(urllib.request.Request(url, headers=headers), timeout=max(min(timeout, deadline.left), 0.001)) as response:
        if response.status not in (200, 206):
            raise DataError(f"{url} cannot be had: the server answered {response.status} {response.reason}; use --from FILE.")
        if response.status == 206:
            _check_range(response.headers, start, url)
        yield response


def content_length(headers: http.client.HTTPMessage, url: str) -> int | None:
    """How many bytes the server says it sends, None where it does not say."""
    values = {value.strip() for value in headers.get_all("Content-Length", [])}
    if not values or headers.get("Transfer-Encoding"):
        return None
    if len(values) > 1 or not re.fullmatch(r"[0-9]{1,18}", min(values)):
        shown = ", ".join(sorted(values))[:60]
        raise DataError(f"{url} cannot be had: the server sent the header Content-Length: {shown!r}, expected a number.")
    return int(min(values))


def _check_range(headers: http.client.HTTPMessage, start: int, url: str) -> None:
    value = headers.get("Content-Range")
    match = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/(\*|[0-9]{1,18})", (value or "").strip())
    # Some servers answer 206 without saying which bytes: taken for the ones asked for, as the checksum decides in the end.
    if (value is not None or not start) and (match is None or int(match[1]) != start):
        raise DataError(
            f"{url} cannot be had: asked for the bytes from {start:,} on, the server answered 206 with Content-Range: "
            f"{(value or '')[:60]!r}; use --from FILE."
        )


def range_total(headers: Any) -> int | None:
    """How long the file is, as a server says that refuses a range (416, Content-Range: bytes */123)."""
    match = re.fullmatch(r"bytes \*/([0-9]{1,18})", (headers.get("Content-Range") or "").strip())
    return int(match[1]) if match else None
