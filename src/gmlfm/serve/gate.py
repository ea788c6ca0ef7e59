"""What every request passes first: who may ask, how much may come, how long it may take; and what every answer carries."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gmlfm.serve.logs import log_failure, log_request
from gmlfm.serve.problems import MEDIA_TYPE, Problem, full, problem_body
from gmlfm.serve.service import Service

# Plotly writes style attributes into its charts, so styles, and nothing else, may stand in the page.
_CSP = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", _CSP.encode()),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NO_STORE = (b"cache-control", b"no-store")
_NO_CACHE = (b"cache-control", b"no-cache")  # kept, but asked about: modules of two versions would not fit each other
_OPEN = ("/", "/docs", "/openapi.json", "/favicon.ico", "/health")  # need no token: they say nothing of the data
_OPEN_BELOW = ("/health/", "/static/")
# Whatever else is posted, and every other method, may change something.
_ASKING = {f"/{verb}{end}" for verb in ("recommend", "score", "explain") for end in ("", "/batch")} | {"/similar"}
_READING = ("GET", "HEAD", "OPTIONS")
# A route's pattern also matches a path with a line end behind it, so that two readings of one path would differ.
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_BODIES_PER_QUESTION = 4  # that may be on their way for each question that is answered at once
_DISCARD_SECONDS, _DISCARD_BYTES = 1.0, 4 << 20
_TIMEOUT_STATUS, _GONE = 408, 499  # the latter in figures alone: nobody is there to read it


class Gate:
    """One layer of plain ASGI around the application: each more costs every request."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        options = service.options
        self._token = None if options.token is None else options.token.encode()
        self._write_token = None if options.write_token is None else options.write_token.encode()
        self._hosts = {name.encode() for name in options.known_hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # websockets are not spoken here
        await _Passage(self, scope, receive, send).run()

    def check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        method, path = scope["method"], _path_of(scope)
        if _CONTROL.search(path):
            self.service.metrics.refused("path")
            raise Problem(400, "the path has a control character, such as a line end, which no address here has.")
        is_open = method in _READING and (path in _OPEN or path.startswith(_OPEN_BELOW))
        self._check_origin(headers, is_open and method in ("GET", "HEAD"))
        if (self._token is None and self._write_token is None) or is_open:
            return
        is_writing = method not in _READING and not (method == "POST" and path.rstrip("/") in _ASKING)
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        given = given.strip() if kind.lower() == b"bearer" else b""
        # Both are compared whatever the first one says, in a time that tells nothing of them.
        may_write = self._write_token is not None and hmac.compare_digest(given, self._write_token)
        may_read = self._token is not None and hmac.compare_digest(given, self._token)
        if is_writing and self._write_token is not None:
            if may_write:
                return
            if may_read:
                self.service.metrics.refused("token")
                raise Problem(403, "this token may read alone; what changes something needs the writing token.")
        elif may_read or may_write or (self._token is None and not is_writing):
            return
        self.service.metrics.refused("token")
        what = "the token is wrong" if given else "a token is needed"
        raise Problem(401, f"{what}; send it as Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})

    def _check_origin(self, headers: dict[bytes, bytes], is_page: bool) -> None:
        """No page elsewhere may ask in its reader's name, also not by a host name of its own that leads here."""
        host = headers.get(b"host", b"")
        if self._hosts and _name_of(host.lower()) not in self._hosts:
            self.service.metrics.refused("host")
            raise Problem(403, "this host name is not one of the service's; address it by the name that it was given.")
        origin = headers.get(b"origin")
        is_foreign = origin is not None and origin.partition(b"://")[2] != host
        is_foreign |= headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not is_page
        if is_foreign:
            self.service.metrics.refused("cross-site")
            raise Problem(403, "a page of another site asked; only pages of this service may.")


class _GoneError(Exception):
    """Who asked went away before the body was whole."""


class _Passage:
    """One request on its way through."""

    def __init__(self, gate: Gate, scope: Scope, receive: Receive, send: Send) -> None:
        self.gate, self.scope, self._receive, self._send = gate, scope, receive, send
        self.status, self.begun = 0, time.perf_counter()
        self._body: bytes | None = None
        self._is_read = False  # the body, to its end

    async def run(self) -> None:
        service, scope = self.gate.service, self.scope
        headers = dict(scope["headers"])
        try:
            self._is_read = _has_no_body(headers)
            self.gate.check(scope, headers)
            self._body = b"" if self._is_read else await self._counted_body(headers)
            await self.gate.app(scope, self.receive, self.send)
        except Problem as problem:
            await self._refuse(problem)
        except _GoneError:
            self.status = _GONE
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log_failure(service.options.log, self._route(), error)
            if not self.status:
                await self._refuse(
                    Problem(500, "the service failed at this request, which is its own fault; its log says where.")
                )
        finally:
            seconds = time.perf_counter() - self.begun
            route = self._route()
            service.metrics.answered(route, _method(scope), self.status, seconds)
            log_request(service.options.log, route, _method(scope), self.status, seconds)

    async def _counted_body(self, headers: dict[bytes, bytes]) -> bytes:
        """Each one that is being read holds memory, for as long as its sender likes within the time."""
        service = self.gate.service
        most = _BODIES_PER_QUESTION * service.options.max_in_flight
        if service.n_bodies >= most:
            service.metrics.refused("full")
            raise full(f"{most} bodies are being read, and that is the most at once")
        service.n_bodies += 1
        try:
            return await self._whole_body(headers)
        finally:
            service.n_bodies -= 1

    async def _whole_body(self, headers: dict[bytes, bytes]) -> bytes:
        """Read before anything else is begun, so that who sends slowly keeps nobody else waiting."""
        limit = self.gate.service.options.max_body
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            raise self._too_large(limit)
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self.gate.service.options.timeout):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    piece = message.get("body", b"")
                    size += len(piece)
                    self._is_read = not message.get("more_body")
                    if size > limit:
                        raise self._too_large(limit)
                    pieces.append(piece)
                    if self._is_read:
                        return b"".join(pieces)
        except TimeoutError:
            self.gate.service.metrics.refused("slow")
            seconds = self.gate.service.options.timeout
            raise Problem(_TIMEOUT_STATUS, f"the body did not come within {seconds:g} seconds.") from None

    def _too_large(self, limit: int) -> Problem:
        self.gate.service.metrics.refused("large")
        return Problem(413, f"the body has more than {limit:,} bytes, the most that is read.")

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), *_HEADERS]
            if not self.scope["path"].startswith("/static/"):
                headers.append(_NO_STORE)
            elif all(name.lower() != b"cache-control" for name, _ in headers):
                headers.append(_NO_CACHE)
            message = {**message, "headers": headers}
        await self._send(message)

    async def _refuse(self, problem: Problem) -> None:
        headers = [(name.lower().encode(), text.encode()) for name, text in problem.headers.items()]
        body = problem_body(problem.status, problem.detail)
        headers += [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        if not self._is_read:
            headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": problem.status, "headers": headers})
        body = b"" if self.scope["method"] == "HEAD" else body
        if not self._is_read and problem.status != _TIMEOUT_STATUS:
            await self.send({"type": "http.response.body", "body": body, "more_body": True})
            await self._discard()
            body = b""
        await self.send({"type": "http.response.body", "body": body})

    async def _discard(self) -> None:
        """Some of a body that nobody reads: a connection that is closed on its sender would take the answer with it."""
        service, size = self.gate.service, 0
        if service.n_bodies >= _BODIES_PER_QUESTION * service.options.max_in_flight:
            return
        service.n_bodies += 1
        try:
            async with asyncio.timeout(_DISCARD_SECONDS):
                while size < _DISCARD_BYTES:
                    message = await self._receive()
                    size += len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return
        except TimeoutError:
            pass
        finally:
            service.n_bodies -= 1

    def _route(self) -> str:
        """Its pattern, which names nobody."""
        route: Any = self.scope.get("route")
        path = getattr(route, "path", None)
        if path is not None:
            return str(path).replace(":path", "")
        return "/static" if self.scope["path"].startswith("/static/") else "other"


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH") else "other"


def _has_no_body(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers


def _path_of(scope: Scope) -> str:
    """As the routes read it: without the place where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    is_below = bool(root) and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/")
    return path[len(root) :] if is_below else path


def _name_of(host: bytes) -> bytes:
    """Without the port."""
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host
