"""Against a server that does what a script says."""

from __future__ import annotations

import gc
import http.client
import resource
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gmlfm.connections import Connections, ServiceError
from gmlfm.errors import OptionError

BREAK = "break"  # the connection is closed without an answer


class Scripted(ThreadingHTTPServer):
    """Answers request after request as its script says, the last one for good; and writes down what came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Any] = [(200, {}, b'{"ok": true}')]
        self.came: list[tuple[str, str, bytes, str | None]] = []
        self.peers: set[tuple[str, int]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.came.append((self.command, self.path, body, self.headers.get("Authorization")))
        self.server.peers.add(self.client_address)
        step = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        if step == BREAK:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, headers, text = step
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *values: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Scripted]:
    server = Scripted()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Pauses(list[float]):
    """Takes the place of sleep."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def connections(url: str, retries: int = 2, token: str | None = None) -> tuple[Connections, Pauses]:
    pauses = Pauses()
    return Connections(url, token, 5.0, retries, pauses), pauses


OK = (200, {}, b'{"ok": true}')
BUSY = (503, {"Retry-After": "3"}, b'{"detail": "full; ask again in a moment."}')


def test_one_connection_is_kept(server: Scripted) -> None:
    asking, pauses = connections(server.url + "/below/", token="secret-token")
    assert [asking.ask("POST", "/x", {"n": n}) for n in range(3)] == [{"ok": True}] * 3
    assert server.came == [("POST", "/below/x", f'{{"n": {n}}}'.encode(), "Bearer secret-token") for n in range(3)]
    assert len(server.peers) == 1
    assert pauses == []
    asking.close()


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_busy_service_is_asked_again_when_it_says(server: Scripted, repeatable: bool) -> None:
    server.script = [BUSY, BUSY, OK]
    asking, pauses = connections(server.url)
    assert asking.ask("POST", "/x", repeatable=repeatable) == {"ok": True}
    assert len(pauses) == 2
    assert all(3.0 <= pause <= 3.75 for pause in pauses)
    asking.close()


def test_a_service_that_stays_busy_is_told_of_in_its_sentence(server: Scripted) -> None:
    server.script = [BUSY]
    asking, pauses = connections(server.url)
    with pytest.raises(ServiceError, match=r"^full; ask again in a moment\.$") as raised:
        asking.ask("GET", "/x")
    assert raised.value.status == 503
    assert (len(server.came), len(pauses)) == (3, 2)
    asking.close()


def test_pauses_grow_where_the_service_says_none(server: Scripted) -> None:
    server.script = [(503, {}, b"")]
    asking, pauses = connections(server.url, retries=3)
    with pytest.raises(ServiceError, match="answered 503 and no JSON"):
        asking.ask("GET", "/x")
    assert [round(pause, 1) >= least for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=True)] == [True] * 3
    assert pauses[-1] > 2 * pauses[0]
    asking.close()


def test_a_broken_connection_repeats_what_may_be_repeated(server: Scripted) -> None:
    server.script = [BREAK, OK]
    asking, pauses = connections(server.url)
    assert asking.ask("POST", "/x", {}) == {"ok": True}
    assert len(server.came) == 2
    assert len(pauses) == 1
    asking.close()


def test_a_broken_connection_repeats_nothing_else(server: Scripted) -> None:
    server.script = [BREAK, OK]
    asking, pauses = connections(server.url)
    with pytest.raises(ServiceError, match="whether the change was made is not known") as raised:
        asking.ask("POST", "/x", {}, repeatable=False)
    assert raised.value.status == 0
    assert (len(server.came), pauses) == (1, [])
    asking.close()


def test_a_connection_that_was_closed_while_idle_is_no_fault(server: Scripted) -> None:
    server.script = [(200, {"Connection": "close"}, b"{}"), OK]
    asking, pauses = connections(server.url, retries=0)
    asking.ask("GET", "/x")
    assert asking.ask("POST", "/x", {}, repeatable=False) == {"ok": True}
    assert pauses == []
    assert len(server.peers) == 2
    asking.close()


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asking, pauses = connections(f"http://127.0.0.1:{port}")
    with pytest.raises(ServiceError, match=r"cannot be reached \(Connection refused\); is the service running\?"):
        asking.ask("POST", "/x", {}, repeatable=False)  # nothing was sent, so it is tried again
    assert len(pauses) == 2


def test_no_answer_in_time_is_not_waited_for_again() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        pauses = Pauses()
        asking = Connections(f"http://127.0.0.1:{silent.getsockname()[1]}", None, 0.05, 3, pauses)
        with pytest.raises(ServiceError, match=r"did not answer within 0\.05 seconds"):
            asking.ask("GET", "/x")
        assert pauses == []
        asking.close()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((400, {}, b'{"detail": "n is 0; expected a whole number of 1 or more."}'), r"^n is 0; expected .* or more\.$"),
        ((200, {}, b"<html>"), "answered 200 and no JSON: <html>; is it a gmlfm service?"),
        ((404, {}, b"\xff\xfe"), "answered 404 and no JSON"),
        ((500, {}, b"[1]"), "answered 500 and no JSON"),
    ],
)
def test_other_answers_are_errors_of_one_sentence(server: Scripted, answer: Any, sentence: str) -> None:
    server.script = [answer]
    asking, _ = connections(server.url)
    with pytest.raises(ServiceError, match=sentence) as raised:
        asking.ask("GET", "/x")
    assert raised.value.status == answer[0]
    assert "\n" not in str(raised.value)
    assert len(server.came) == 1
    asking.close()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8765", "ftp://x", "http://", "http://x:port", "http://x/?a=b", None, 5])
def test_addresses_that_are_none(url: Any) -> None:
    with pytest.raises(OptionError, match="expected an address such as"):
        connections(url)


def test_tokens_and_bodies_that_cannot_be_sent() -> None:
    with pytest.raises(OptionError, match="token is no token"):
        connections("http://x", token="a\nb")
    with pytest.raises(OptionError, match="cannot be written as JSON"):
        connections("http://x")[0].ask("POST", "/x", {"n": float("nan")})


def test_a_connection_that_is_not_made_in_time_is_tried_again(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, n_late = http.client.HTTPConnection.connect, 2

    def late(self: http.client.HTTPConnection) -> None:
        nonlocal n_late
        n_late -= 1
        if n_late >= 0:
            raise TimeoutError("timed out")
        connect(self)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", late)
    asking, pauses = connections(server.url)
    assert asking.ask("POST", "/x", {}, repeatable=False) == {"ok": True}
    assert len(pauses) == 2
    asking.close()
    n_late = 99
    with pytest.raises(ServiceError, match=r"cannot be reached \(timed out\)"):
        connections(server.url)[0].ask("GET", "/x")


def test_threads_that_end_leave_no_connection_open(server: Scripted) -> None:
    asking, _ = connections(server.url)
    threads = [threading.Thread(target=asking.ask, args=("GET", "/x")) for _ in range(5)]
    for thread in threads:
        thread.start()
        thread.join()
    del thread, threads
    gc.collect()
    assert len(server.peers) == 5
    assert len(asking._all) == 0
    asking.ask("GET", "/x")
    assert len(asking._all) == 1
    asking.close()


def test_file_numbers_above_a_thousand_are_known(server: Scripted) -> None:
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < 2_000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2_000, hard))
    others = [open("/dev/null") for _ in range(1_030)]
    try:
        asking, _ = connections(server.url)
        for _ in range(2):
            assert asking.ask("GET", "/x") == {"ok": True}
        assert asking._local.connection.sock.fileno() > 1_023
        asking.close()
    finally:
        for other in others:
            other.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


@pytest.mark.parametrize("status", [401, 403, 413])
def test_a_refusal_while_a_body_is_being_sent_is_heard(status: int) -> None:
    """Who refuses reads no more: the answer is there, and the rest of the body cannot go."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        n_came = 0

        def refuse() -> None:
            nonlocal n_came
            while n_came < 1:
                came, _ = listener.accept()
                n_came += 1
                with came:
                    came.recv(1_000)
                    body = b'{"detail": "it is refused."}'
                    head = f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                    came.sendall(head.encode() + body)

        thread = threading.Thread(target=refuse)
        thread.start()
        asking, pauses = connections(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(ServiceError, match=r"^it is refused\.$") as raised:
            asking.ask("POST", "/x", {"x": "x" * (64 << 20)})
        assert raised.value.status == status
        assert (n_came, pauses) == (1, [])
        thread.join()
        asking.close()
