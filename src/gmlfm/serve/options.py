"""How the service is run: limits, tokens, and what workers share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gmlfm.errors import OptionError

MOST_REQUESTS_PER_BATCH, _BATCH_FACTOR = 256, 10  # the latter: of a batch's items, so many times those of one request
OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")  # of a machine, for itself alone
_SHORTEST_TOKEN = 8


@dataclass(frozen=True)
class ServeOptions:
    """token: asked of everything but health, the page and its files; write_token: asked of what changes something, instead.

    max_body: bytes of a request; max_n: items asked for at once; timeout: seconds for a body to come, and for an answer to be
    made; max_in_flight: questions in a process at once, beyond which it answers 503; threads: that answer them.
    hosts: names that a request may address, () is any. None, the default, is any where a token is set and this machine's own
    names where none is: a page elsewhere can make a name of its own lead here, and would read what needs no token.
    log: requests | errors | none. shared_folder: a folder where several workers tell each other of reloads and figures.
    """

    token: str | None = field(default=None, repr=False)
    write_token: str | None = field(default=None, repr=False)
    max_body: int = 1 << 20
    max_n: int = 1_000
    timeout: float = 10.0
    max_in_flight: int = 64
    threads: int = 2
    hosts: tuple[str, ...] | None = None
    log: str = "errors"
    shared_folder: Path | None = None

    def __post_init__(self) -> None:
        for name in ("token", "write_token"):
            token = getattr(self, name)
            if token is not None:
                check_token(token, f"the option {name}")

    @property
    def limits(self) -> dict[str, int]:
        """Of requests, as GET /schema tells them."""
        return {"n": self.max_n, "n_of_batch": _BATCH_FACTOR * self.max_n, "requests": MOST_REQUESTS_PER_BATCH}

    @property
    def known_hosts(self) -> tuple[str, ...]:
        """() where any name will do."""
        if self.hosts is not None:
            return self.hosts
        return OWN_NAMES if self.token is None else ()


def check_token(token: object, where: str) -> None:
    """An empty one, say, would let everybody in."""
    if not isinstance(token, str) or len(token) < _SHORTEST_TOKEN or not _is_plain(token):
        raise OptionError(
            f"{where} holds no token: expected {_SHORTEST_TOKEN} or more ASCII characters without spaces, such as those of "
            "`openssl rand -hex 32`."
        )


def _is_plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token
