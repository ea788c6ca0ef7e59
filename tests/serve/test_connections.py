"""Connections over a real socket, whose other side is slow."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from gmlfm.serve.connections import Config

_ANSWER = 32 << 20  # bytes: more than a system keeps of an answer that nobody reads


@contextmanager
def serving(patience: float, *, at_once: bool) -> Iterator[tuple[socket.socket, uvicorn.Server]]:
    """A connection that has asked. at_once: the answer is written in one piece, so that the application is done with it."""
    piece = b"x" * (_ANSWER if at_once else 1 << 16)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        headers = [(b"content-length", str(_ANSWER).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for n_sent in range(len(piece), _ANSWER + 1, len(piece)):
            await send({"type": "http.response.body", "body": piece, "more_body": n_sent < _ANSWER})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = Config(app, patience=patience, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            with socket.create_connection(listener.getsockname(), timeout=60) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                yield connection, server
        finally:
            server.should_exit = True
            thread.join()


def received(connection: socket.socket) -> int:
    """Bytes until the end, however it comes."""
    size = 0
    try:
        while piece := connection.recv(1 << 20):
            size += len(piece)
    except ConnectionResetError:
        pass
    return size


@pytest.mark.parametrize("at_once", [True, False])
def test_who_reads_nothing_of_an_answer_is_given_up(at_once: bool) -> None:
    with serving(0.1, at_once=at_once) as (connection, server):
        connection.recv(100)
        deadline = threading.Event()
        for _ in range(600):
            if not server.server_state.connections:
                break
            deadline.wait(0.1)
        assert not server.server_state.connections
        assert received(connection) < _ANSWER - 100


@pytest.mark.parametrize("at_once", [True, False])
def test_who_reads_has_the_whole_answer(at_once: bool) -> None:
    with serving(30.0, at_once=at_once) as (connection, _):
        size = 0
        while size < _ANSWER:
            size += len(connection.recv(1 << 20))
        assert size >= _ANSWER
