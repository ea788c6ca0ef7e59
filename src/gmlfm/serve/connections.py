"""Connections whose request never comes whole, or whose answer is never read, are closed: uvicorn waits without end."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class Config(uvicorn.Config):
    """patience: seconds from the first byte of a request's head, or from the connection, to the head's end; and for which
    nothing of an answer may be read."""

    def __init__(self, app: Any, *, patience: float, **options: Any) -> None:
        super().__init__(app, http=PatientProtocol, **options)
        self.patience = patience


class PatientProtocol(H11Protocol):
    """Patient with heads, and with who reads an answer, for so long."""

    config: Config
    _giving_up: asyncio.TimerHandle | None = None
    _watching: asyncio.TimerHandle | None = None

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
        self._stop_watching()
        super().connection_lost(error)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def timeout_keep_alive_handler(self) -> None:
        self._close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_the_end()

    def shutdown(self) -> None:
        super().shutdown()
        self._watch_the_end()

    def _wait_for_head(self) -> None:
        if self._giving_up is None:
            self._giving_up = self.loop.call_later(self.config.patience, self._give_up)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _give_up(self) -> None:
        self._giving_up = None
        if self.cycle is None or self.cycle.response_complete:
            self._close()

    def _watch_the_end(self) -> None:
        size = self.transport.get_write_buffer_size()
        if self.transport.is_closing() and size:
            self._watch(size)

    def _watch(self, size: int) -> None:
        """size: of what is not sent yet, since the reader is slow."""
        self._stop_watching()
        self._watching = self.loop.call_later(self.config.patience, self._look, size)

    def _look(self, size_before: int) -> None:
        size = self.transport.get_write_buffer_size()
        if size >= size_before:
            self.transport.abort()
        else:
            self._watch(size)

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _close(self) -> None:
        """At once where something is left to be sent: a close that waits for its reader may wait for ever."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()
