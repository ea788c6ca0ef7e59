"""Errors as application/problem+json (RFC 9457): one sentence each, the same as on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gmlfm.errors import GmlfmError, printable
from gmlfm.locking import LockedError

MEDIA_TYPE = "application/problem+json"
_BROKEN_JSON = ("json_invalid", "parsing the body")
_MOST_SHOWN = 3
_BUSY = 503


class Problem(Exception):
    """An answer that is no success, with the headers that go with it."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = {**({"Retry-After": "1"} if status == _BUSY else {}), **(headers or {})}


def problem_body(status: int, detail: str) -> bytes:
    title = HTTPStatus(status).phrase
    return json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(problem_body(status, detail), status, headers, MEDIA_TYPE)


def full(what: str, seconds: int = 1) -> Problem:
    return Problem(503, f"{what}; ask again in a moment.", {"Retry-After": str(seconds)})


async def on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(error.status, error.detail, error.headers)


async def on_gmlfm_error(request: Request, error: Exception) -> Response:
    if isinstance(error, LockedError):  # it names the process that has the lock
        sentence = "the folder of the run is in use by another process, so nothing was changed; ask again in a moment."
        return problem_response(_BUSY, sentence, {"Retry-After": "1"})
    text = shown = str(error)
    # A folder may lie within another one's.
    hosts = sorted(request.app.state.service.hosts.values(), key=lambda host: len(str(host.folder)), reverse=True)
    for host in hosts:
        shown = host.without_path(shown)
    if any(host.is_about_folder(text) for host in hosts):
        return problem_response(_BUSY, shown, {"Retry-After": "5"})
    return problem_response(400, shown)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return problem_response(404, "there is nothing at this address; /docs lists what there is.", headers)
    if error.status_code == 405:
        return problem_response(405, f"{request.method} is not answered here; /docs lists what is.", headers)
    if error.status_code == 400 and _BROKEN_JSON[1] in str(error.detail):
        return problem_response(400, "the body cannot be read as JSON: it is no UTF-8, or nested too deeply.", headers)
    return problem_response(error.status_code, f"{str(error.detail).rstrip('.')}.", headers)


async def on_wrong_types(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    if faults and faults[0]["type"] == _BROKEN_JSON[0]:
        reason = faults[0].get("ctx", {}).get("error", "broken")
        return problem_response(400, f"the body is no JSON ({reason} at character {faults[0]['loc'][-1]}).")
    if faults and faults[0]["loc"] == ("body",) and isinstance(error.body, bytes):
        return problem_response(422, "the body is expected as JSON, with the header Content-Type: application/json.")
    return problem_response(422, _sentence(faults))


def _sentence(faults: Sequence[Mapping[str, Any]]) -> str:
    """Where and what, of the first few places; what came is not quoted, since it may be about a person."""
    by_place: dict[str, list[str]] = {}
    for fault in faults:
        place = ".".join(str(part) for part in fault["loc"][1:] if not _is_type_name(part)) or str(fault["loc"][0])
        by_place.setdefault(printable(place)[:80], []).append(str(fault["msg"]))
    shown = [f"{place}: {' or '.join(dict.fromkeys(texts[:4]))}" for place, texts in list(by_place.items())[:_MOST_SHOWN]]
    more = len(by_place) - len(shown)
    return f"{'; '.join(shown)}{f' (and {more} more)' if more > 0 else ''}."


def _is_type_name(part: Any) -> bool:
    """pydantic names the member of a union in the place."""
    return isinstance(part, str) and ("[" in part or part.removeprefix("constrained-") in ("str", "int", "float", "bool"))


HANDLERS: dict[Any, Any] = {
    Problem: on_problem,
    GmlfmError: on_gmlfm_error,
    HTTPException: on_http_error,
    RequestValidationError: on_wrong_types,
}
