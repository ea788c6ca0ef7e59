"""A local HTTP server with ranges, redirects and responses that break off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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
