"""Local HTTP servers: one with ranges, redirects and responses that break off, and one that sends whatever it is told to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = bytes | Callable[[socket.socket, threading.Event], None]


class Served:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.break_after: list[int] = []  # how many bytes each of the next responses sends before it breaks off
        self.ranges = True
        self.requests: list[tuple[str, str | None]] = []  # path and Range header
        self.url = ""


@contextmanager
def serving(content: bytes) -> Iterator[Served]:
    served = Served(content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            byte_range = self.headers.get("Range")
            served.requests.append((self.path, byte_range))
            if self.path == "/moved.zip":
                self.send_response(302)
                self.send_header("Location", "/file.zip")
                self.end_headers()
                return
            if self.path != "/file.zip":
                self.send_error(404, "Not Found")
                return
            start = int(byte_range.removeprefix("bytes=").rstrip("-")) if byte_range and served.ranges else 0
            if start >= len(served.content):
                self.send_error(416, "Range Not Satisfiable")
                return
            body = served.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut = served.break_after.pop(0) if served.break_after else len(body)
            for sent in range(0, min(cut, len(body)), 1000):
                self.wfile.write(body[sent : min(sent + 1000, cut)])
            if cut < len(body):
                self.connection.close()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def replying(*replies: Reply) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers its connections with these bytes, one after another and the last one again and again; or calls a
    function with the connection and an event that is set when the test is over. Gives the address and the requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []
    over = threading.Event()

    def answer(connection: socket.socket, reply: Reply) -> None:
        with connection, suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                block = connection.recv(65536)
                if not block:
                    return
                request += block
            requests.append(request)
            if callable(reply):
                reply(connection, over)
            else:
                connection.sendall(reply)
                # The client closes; a server that closes with bytes unread would reset the connection.
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                reply = replies[min(len(threads), len(replies) - 1)]
                threads.append(threading.Thread(target=answer, args=(connection, reply), daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (acceptor, *threads):
            thread.join(10)


def dripping(head: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Sends a beginning, and then a byte at a time without end."""

    def drip(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.wait(0.01):
            connection.sendall(b"x")

    return drip


def flooding(head: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Sends a beginning, and then as much as the client takes."""

    def flood(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.is_set():
            connection.sendall(bytes(1 << 16))

    return flood
