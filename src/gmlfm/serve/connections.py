"""Connections whose request never comes whole are closed: uvicorn waits for a head without end."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class Config(uvicorn.Config):
    """head_timeout: seconds from the first byte of a request's head, or from the connection, to the head's end."""

    def __init__(self, app: Any, *, head_timeout: float, **options: Any) -> None:
        super().__init__(app, http=HeadTimeoutProtocol, **options)
        self.head_timeout = head_timeout


class HeadTimeoutProtocol(H11Protocol):
    """Patient with heads for so long."""

    config: Config
    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()
        else:
            self._stop_waiting()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(error)

    def _wait_for_head(self) -> None:
        if self._giving_up is None:
            self._giving_up = self.loop.call_later(self.config.head_timeout, self._give_up)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _give_up(self) -> None:
        self._giving_up = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
