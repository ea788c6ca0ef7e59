"""How the service is run: limits, tokens, and what workers share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MOST_REQUESTS_PER_BATCH = 256


@dataclass(frozen=True)
class ServeOptions:
    """token: asked of everything but health, the page and its files; write_token: asked of what changes something, instead.

    max_body: bytes of a request; max_n: items asked for at once; timeout: seconds for a body to come, and for an answer to be
    made; max_in_flight: questions in a process at once, beyond which it answers 503; threads: that answer them.
    hosts: names that a request may address, any where it is empty (a page elsewhere can make a name of its own lead here).
    log: requests | errors | none. shared_folder: a folder where several workers tell each other of reloads and figures.
    """

    token: str | None = field(default=None, repr=False)
    write_token: str | None = field(default=None, repr=False)
    max_body: int = 1 << 20
    max_n: int = 1_000
    timeout: float = 10.0
    max_in_flight: int = 64
    threads: int = 2
    hosts: tuple[str, ...] = ()
    log: str = "errors"
    shared_folder: Path | None = None
