"""`gmlfm serve` as it is run: processes, signals, a port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from gmlfm import Recommender
from gmlfm.errors import OptionError
from gmlfm.serve import create_app, server
from gmlfm.serve.options import ServeOptions
from gmlfm.serve.server import check_exposure, is_loopback, serve
from tests.serve.test_hosting import check_of, replace_run

_PATIENCE = 120.0  # seconds for what takes one: machines that are busy


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its address, once it answers."""
    command = [sys.executable, "-m", "gmlfm", "serve", str(folder), "--port", "0", "--json", "--log", "none", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = str(json.loads(process.stdout.readline())["url"])
            httpx2.get(f"{url}health", timeout=_PATIENCE).raise_for_status()
            yield process, url
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=_PATIENCE)
    return process.returncode, errors


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def ask(url: str, path: str, body: Any = None) -> Any:
    """On a connection of its own, so that any worker may take it."""
    response = (
        httpx2.get(url + path, timeout=_PATIENCE) if body is None else httpx2.post(url + path, json=body, timeout=_PATIENCE)
    )
    assert response.status_code == 200, response.text
    return response.json()


def workers_of(url: str) -> set[str]:
    """The processes of the workers that live."""
    text = httpx2.get(f"{url}metrics", timeout=_PATIENCE).text
    return set(re.findall(r'gmlfm_resident_bytes{worker="(\d+)"}', text))


def test_workers_see_one_anothers_events_and_reloads(own_folder: Path, other_folder: Path, items: list[str]) -> None:
    with serving(own_folder, "--workers", "2") as (process, url):
        until(lambda: len(workers_of(url)) == 2)
        for n in range(1, 7):
            ask(url, "events", {"events": [{"user": "newcomer", "item": items[n]}]})
            for _ in range(6):  # on connections that any worker takes
                history = ask(url, "users/newcomer")["history"]
                assert [row["item"] for row in history] == [items[place] for place in range(n, 0, -1)]
        replace_run(own_folder, other_folder)
        process.send_signal(signal.SIGHUP)
        until(lambda: all(ask(url, "model")["run"]["check"] == check_of(own_folder) for _ in range(12)))
        for _ in range(6):
            assert len(ask(url, "users/newcomer")["history"]) == 6
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (0, "")
    assert Recommender.load(own_folder).observed.n == 6


def test_one_process_reloads_and_ends_after_the_last_answer(own_folder: Path, other_folder: Path, items: list[str]) -> None:
    with serving(own_folder) as (process, url):
        replace_run(own_folder, other_folder)
        process.send_signal(signal.SIGHUP)
        until(lambda: bool(ask(url, "model")["run"]["check"] == check_of(own_folder)))
        address = url.removeprefix("http://").removesuffix("/")
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=_PATIENCE) as gone:  # who goes away leaves no trace
            gone.sendall(f"POST /events HTTP/1.1\r\nHost: {address}\r\nContent-Length: 100\r\n\r\n{{".encode())
        body = json.dumps({"events": [{"user": "newcomer", "item": items[0]}]}).encode()
        with socket.create_connection((host, int(port)), timeout=_PATIENCE) as slow:
            head = f"POST /events HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            slow.sendall(head.encode() + body[:10])
            until(lambda: "gmlfm_requests_total" in httpx2.get(f"{url}metrics").text)
            process.send_signal(signal.SIGTERM)
            until(lambda: is_closed(host, int(port)))
            slow.sendall(body[10:])
            assert slow.recv(65_536).startswith(b"HTTP/1.1 200")
        assert ended(process) == (0, "")
    assert Recommender.load(own_folder).observed.n == 1


def is_closed(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def test_after_a_kill_the_port_is_free_and_what_was_acknowledged_is_there(own_folder: Path, items: list[str]) -> None:
    with serving(own_folder, "--workers", "2") as (process, url):
        for item in items[:4]:
            ask(url, "events", {"events": [{"user": "newcomer", "item": item}]})
        until(lambda: len(workers_of(url)) == 2)
        before = workers_of(url)
        os.kill(int(min(before)), signal.SIGKILL)
        until(lambda: len(workers_of(url)) == 2 and workers_of(url) != before)  # another one has come in its place
        process.kill()
        process.wait(_PATIENCE)
        host, port = url.removeprefix("http://").removesuffix("/").split(":")
        until(lambda: is_closed(host, int(port)))  # the workers end with it
    with serving(own_folder) as (_, url):
        assert [row["item"] for row in ask(url, "users/newcomer")["history"]] == items[3::-1]


def test_a_run_that_cannot_be_read_is_told_of_by_several_workers_once(own_folder: Path) -> None:
    weights = next(own_folder.rglob("weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    command = [sys.executable, "-m", "gmlfm", "serve", str(own_folder), "--port", "0", "--workers", "2", "--log", "none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    assert done.returncode == 2
    assert done.stderr.startswith("gmlfm: ")
    assert "weights.safetensors is damaged" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_hangup_while_runs_are_read_is_heard_then(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal that reloads ends no process that is not so far yet."""
    asked: list[bool] = []

    def create(*given: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGHUP)
        return create_app(*given, **more)

    def run(self: server._Server, **more: Any) -> None:
        with self.capture_signals():
            asked.append(self._service._is_asked)

    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr(server, "create_app", create)
    monkeypatch.setattr(server._Server, "run", run)
    monkeypatch.setattr(server, "prepare_process", lambda: None)
    serve([str(own_folder)], "127.0.0.1", 0, ServeOptions(log="none"))
    assert asked == [True]
    assert signal.getsignal(signal.SIGHUP) == before


def test_a_service_that_is_told_to_stop_is_not_ready_any_more(own_folder: Path) -> None:
    """From the signal on, while the port is still open."""
    app = create_app(own_folder, ServeOptions(log="none"))
    with TestClient(app, "http://127.0.0.1") as client:
        assert client.get("/health/ready").status_code == 200
        stopped = server._Server(server._config(app, ServeOptions()), app)
        stopped.handle_exit(signal.SIGTERM, None)
        assert stopped.should_exit
        response = client.get("/health/ready")
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert client.get("/health").json()["ready"] is False
        assert client.get("/items").status_code == 200


def test_a_worker_that_is_told_to_stop_is_not_ready_any_more(own_folder: Path) -> None:
    service, heard = create_app(own_folder, ServeOptions(log="none")).state.service, []
    before = {
        number: signal.signal(number, lambda number, frame: heard.append(number)) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        server._stop_being_ready(service)
        assert not service.is_stopping
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: bool(heard))
        assert (service.is_stopping, heard) == (True, [signal.SIGTERM])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_head_that_never_ends_is_given_up(own_folder: Path) -> None:
    with serving(own_folder, "--timeout", "0.5") as (_, url):
        host, port = url.removeprefix("http://").removesuffix("/").split(":")
        with socket.create_connection((host, int(port)), timeout=_PATIENCE) as slow:
            slow.sendall(b"GET /health HTTP/1.1\r\nHost: ")
            assert slow.recv(65_536) == b"", "closed"
        assert ask(url, "health")["status"] == "ok"


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_which_hosts_are_this_machine_alone(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so


def test_others_are_let_in_with_a_token_alone() -> None:
    with pytest.raises(OptionError, match=r"0\.0\.0\.0 can be reached from elsewhere, and no token is set"):
        check_exposure("0.0.0.0", ServeOptions())
    check_exposure("0.0.0.0", ServeOptions(token="a-token-of-its-own"))
    check_exposure("0.0.0.0", ServeOptions(), insecure=True)
    check_exposure("127.0.0.1", ServeOptions())


def test_a_port_that_is_taken_is_told_of(run_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=rf"127\.0\.0\.1:{port} cannot be listened on .*choose another --port"):
            serve([str(run_folder)], "127.0.0.1", port, ServeOptions(log="none"))


def test_a_host_that_is_none_is_told_of(run_folder: Path) -> None:
    with pytest.raises(OptionError, match="the host 'not a host' is not known"):
        serve([str(run_folder)], "not a host", 0, ServeOptions(log="none"))
