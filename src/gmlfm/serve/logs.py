"""What the service says of itself: a JSON object a line, without ids, bodies, addresses or texts that came with a request."""

from __future__ import annotations

import json
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

LEVELS = ("requests", "errors", "none")
_FAILED = 500


def log(level: str, what: str, **figures: Any) -> None:
    if level == "none":
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    sys.stderr.write(json.dumps({"at": now, "what": what, **figures}) + "\n")
    sys.stderr.flush()


def log_request(level: str, route: str, method: str, status: int, seconds: float) -> None:
    if level == "requests" or (level == "errors" and status >= _FAILED):
        log(level, "request", route=route, method=method, status=status, ms=round(1_000 * seconds, 3))


def log_failure(level: str, route: str, error: BaseException) -> None:
    """Where it came from; not its text, which may quote what was asked."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename.rpartition('site-packages/')[2].rpartition('src/')[2]}:{frame.lineno}" for frame in frames[-5:]]
    log(level, "failure", route=route, error=type(error).__name__, where=where)
