"""Who may ask, how much may come, how long it may take."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gmlfm.serve import ServeOptions, create_app
from tests.serve.conftest import HOME, client_of

READ, WRITE = "a reader's token", "a writer's token"


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def guarded(run_folder: Path) -> Iterator[TestClient]:
    with client_of(run_folder, token=READ, write_token=WRITE, hosts=("127.0.0.1",)) as client:
        yield client


class Sent:
    """What an application sent, driven without a client: bodies that come as the test says."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def __call__(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def detail(self) -> str:
        return str(json.loads(b"".join(message.get("body", b"") for message in self.messages[1:]))["detail"])


def post(app: Any, pieces: AsyncIterator[bytes], headers: dict[str, str] | None = None) -> Sent:
    """The pieces are all of the body that ever comes; its end does not."""
    given = {"host": "127.0.0.1", "content-type": "application/json", "transfer-encoding": "chunked", **(headers or {})}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/recommend",
        "raw_path": b"/recommend",
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), text.encode()) for name, text in given.items()],
    }
    sent = Sent()

    async def receive() -> Any:
        return {"type": "http.request", "body": await anext(pieces), "more_body": True}

    asyncio.run(app(scope, receive, sent))
    return sent


@pytest.mark.parametrize("path", ["/", "/health", "/health/live", "/health/ready", "/docs", "/openapi.json"])
def test_what_says_nothing_of_the_data_needs_no_token(guarded: TestClient, path: str) -> None:
    assert guarded.get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/items", "/users/x", "/schema", "/model", "/metrics", "/runs", "/nothing", "/static", "/health/../users"]
)
def test_all_else_needs_one(guarded: TestClient, path: str) -> None:
    response = guarded.get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "a token is needed" in response.json()["detail"]


@pytest.mark.parametrize("header", ["Bearer wrong", f"Basic {READ}", READ, f"Bearer {READ}x", "Bearer", "Bearer \xff"])
def test_a_wrong_token_is_refused(guarded: TestClient, header: str) -> None:
    assert guarded.get("/items", headers={"Authorization": header.encode("latin-1")}).status_code == 401  # type: ignore[dict-item]


def test_the_reading_token_reads_and_writes_nothing(guarded: TestClient) -> None:
    assert guarded.get("/items", headers=bearing(READ)).status_code == 200
    assert guarded.post("/recommend", json={"attributes": {}}, headers=bearing(READ)).status_code == 200
    for method, path in (
        ("POST", "/events"),
        ("POST", "/events/"),
        ("POST", "/availability"),
        ("POST", "/items"),
        ("POST", "/reload"),
        ("DELETE", "/users/x"),
    ):
        response = guarded.request(method, path, headers=bearing(READ))
        assert response.status_code == 403, path
        assert "writing token" in response.json()["detail"]


def test_the_writing_token_reads_too(guarded: TestClient) -> None:
    assert guarded.get("/items", headers=bearing(WRITE)).status_code == 200
    assert guarded.post("/reload", headers=bearing(WRITE)).status_code == 200
    assert guarded.delete("/users/nobody", headers=bearing(WRITE)).status_code == 404


def test_every_writing_route_is_guarded(run_folder: Path) -> None:
    """Whatever is not a question: a new route that writes must be named in the gate."""
    paths = create_app(run_folder).openapi()["paths"]
    writing = {path for path, methods in paths.items() for name, route in methods.items() if "writing" in route["tags"]}
    assert writing == {"/events", "/availability", "/items", "/users/{user}"}
    with client_of(run_folder, write_token=WRITE) as client:
        for path in writing - {"/users/{user}"} | {"/reload"}:
            assert client.post(path, json={}).status_code == 401, path
        assert client.delete("/users/x").status_code == 401
        assert client.get("/items").status_code == 200, "without a token for reading everybody may read"


def test_a_single_token_is_for_both(run_folder: Path) -> None:
    with client_of(run_folder, token=READ) as client:
        assert client.post("/reload", headers=bearing(READ)).status_code == 200
        assert client.post("/reload").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": f"{HOME}:81"},
        {"Origin": f"{HOME}.elsewhere.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_may_not_ask(reader: TestClient, headers: dict[str, str]) -> None:
    response = reader.post("/recommend", json={"attributes": {}}, headers=headers)
    assert response.status_code == 403
    assert "another site" in response.json()["detail"]
    assert "access-control-allow-origin" not in response.headers


def test_pages_of_this_service_may(reader: TestClient) -> None:
    for headers in ({"Origin": HOME}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert reader.post("/recommend", json={"attributes": {}}, headers=headers).status_code == 200
    assert reader.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200, "a link to the page"


@pytest.mark.parametrize("host", ["elsewhere.example", "127.0.0.1.elsewhere.example:80", ""])
def test_another_name_that_leads_here_is_refused(guarded: TestClient, host: str) -> None:
    assert guarded.get("/health", headers={"Host": host}).status_code == 403


def test_a_known_name_may_have_a_port(guarded: TestClient) -> None:
    assert guarded.get("/health", headers={"Host": "127.0.0.1:9999"}).status_code == 200


def test_a_name_is_the_same_in_capitals(run_folder: Path) -> None:
    with client_of(run_folder, hosts=("localhost",)) as client:
        assert client.get("/health", headers={"Host": "LocalHost"}).status_code == 200


def test_answers_say_how_browsers_are_to_treat_them(reader: TestClient) -> None:
    for response in (reader.get("/"), reader.get("/nothing"), reader.post("/recommend", json={"attributes": {}})):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert response.headers["cache-control"] == "no-store"


def test_a_body_that_says_it_is_large_is_not_read(reader: TestClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    sent = post(reader.app, pieces(), {"content-length": str(100 << 20)})
    assert sent.status == 413
    assert "1,048,576 bytes" in sent.detail


def test_a_large_body_is_read_up_to_the_limit(reader: TestClient) -> None:
    came = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal came
        while True:
            came += 1 << 16
            yield b"x" * (1 << 16)

    assert post(reader.app, pieces()).status == 413
    assert came <= (1 << 20) + (1 << 16)


def test_who_sends_slowly_is_given_up_and_keeps_nobody_waiting(run_folder: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"attr'
        await asyncio.Event().wait()

    app = create_app(run_folder, ServeOptions(log="none", timeout=0.05))
    sent = post(app, pieces())
    assert sent.status == 408
    assert "did not come within 0.05 seconds" in sent.detail
    assert app.state.service.n_in_flight == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe{}", "no JSON"),
        (b'{"user": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"attributes": {"age": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}", "nested too deeply"),
        (b'{"user": ' + b"9" * 10_000 + b"}", "cannot be read as JSON"),
    ],
)
def test_broken_bodies_are_told_in_a_sentence(reader: TestClient, body: bytes, said: str) -> None:
    response = reader.post("/recommend", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert said in response.json()["detail"]


@pytest.mark.parametrize(
    "body", [b'{"user": NaN}', b'{"attributes": {"age": Infinity}}', b'{"attributes": {"age": [[1]]}}', b'{"user": "\\ud800"}']
)
def test_what_is_no_value_is_refused(reader: TestClient, body: bytes) -> None:
    response = reader.post("/recommend", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)


def test_a_body_that_is_no_json_by_its_header_is_refused(reader: TestClient) -> None:
    response = reader.post("/recommend", content=b'{"user": "u"}', headers={"Content-Type": "text/plain"})
    assert response.status_code == 422
    assert "Content-Type: application/json" in response.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/static/%00",
        "/static/",
    ],
)
def test_no_path_leads_out_of_the_pages_files(reader: TestClient, path: str) -> None:
    response = reader.get(path)
    assert response.status_code == 404
    assert "import" not in response.text


def test_other_methods_are_refused(reader: TestClient) -> None:
    response = reader.put("/recommend")
    assert response.status_code == 405
    assert response.headers["content-type"] == "application/problem+json"


def test_beyond_the_most_at_once_it_answers_503(run_folder: Path) -> None:
    with client_of(run_folder, max_in_flight=1, threads=1) as client:
        service, began, may_end = client.app.state.service, threading.Event(), threading.Event()  # type: ignore[attr-defined]
        real = service.default.current

        def slow() -> Any:
            began.set()
            assert may_end.wait(60)
            return real()

        service.default.current = slow
        answers: list[Any] = []
        asker = threading.Thread(target=lambda: answers.append(client.get("/schema")))
        asker.start()
        assert began.wait(60)
        refused = client.get("/schema")
        assert client.get("/health").status_code == 200, "health needs no place"
        may_end.set()
        asker.join()
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert answers[0].status_code == 200
        assert client.get("/schema").status_code == 200
        assert 'gmlfm_refused_total{reason="full"} 1' in client.get("/metrics").text


def test_an_answer_that_takes_too_long_is_given_up_and_keeps_its_place(run_folder: Path) -> None:
    with client_of(run_folder, timeout=0.05, max_in_flight=1) as client:
        service, may_end = client.app.state.service, threading.Event()  # type: ignore[attr-defined]
        real = service.default.current
        service.default.current = lambda: may_end.wait(60) and real()
        assert client.get("/schema").status_code == 504
        assert client.get("/schema").status_code == 503, "its thread is still at work"
        may_end.set()


def test_a_failure_of_its_own_is_logged_without_what_was_asked(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TestClient(create_app(run_folder, ServeOptions(log="requests")), HOME) as client:

        def fail() -> Any:
            raise RuntimeError("about a secret user")

        client.app.state.service.default.current = fail  # type: ignore[attr-defined]
        response = client.get("/users/somebody")
        assert response.status_code == 500
        assert response.headers["content-type"] == "application/problem+json"
        client.get("/health?who=somebody")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    failure = next(line for line in lines if line["what"] == "failure")
    assert (failure["error"], failure["route"]) == ("RuntimeError", "/users/{user}")
    assert "test_gate.py" in failure["where"][-1]
    assert {"what": "request", "route": "/users/{user}", "method": "GET", "status": 500}.items() <= lines[1].items()
    assert not any(word in json.dumps(lines) for word in ("secret", "somebody"))
