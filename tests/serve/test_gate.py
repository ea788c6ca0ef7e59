"""Who may ask, how much may come, how long it may take."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount

from gmlfm.serve import ServeOptions, create_app
from tests.serve.conftest import HOME, client_of

READ, WRITE = "a-readers-token", "a-writers-token"
ASKING = {f"/{verb}{end}" for verb in ("recommend", "score", "explain") for end in ("", "/batch")} | {"/similar"}


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def guarded(run_folder: Path) -> Iterator[TestClient]:
    with client_of(run_folder, token=READ, write_token=WRITE, hosts=("127.0.0.1",)) as client:
        yield client


class Sent:
    """What an application sent, driven without a client: bodies that come as the test says."""

    def __init__(self, messages: list[Any]) -> None:
        self.messages = messages

    async def __call__(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def detail(self) -> str:
        return str(json.loads(b"".join(message.get("body", b"") for message in self.messages[1:]))["detail"])


def post(
    app: Any, pieces: AsyncIterator[bytes], headers: dict[str, str] | None = None, messages: list[Any] | None = None
) -> Sent:
    """The pieces are all of the body that ever comes; its end does not. messages: which take what is sent."""
    sent = Sent([] if messages is None else messages)

    async def receive() -> Any:
        return {"type": "http.request", "body": await anext(pieces), "more_body": True}

    asyncio.run(app(scope_of(headers or {}), receive, sent))
    return sent


def scope_of(headers: dict[str, str]) -> dict[str, Any]:
    given = {"host": "127.0.0.1", "content-type": "application/json", "transfer-encoding": "chunked", **headers}
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/recommend",
        "raw_path": b"/recommend",
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), text.encode()) for name, text in given.items()],
    }


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
    """Whatever is not a question: what is a question must be named in the gate."""
    app = create_app(run_folder, ServeOptions(log="none", write_token=WRITE))
    operations = [
        (method.upper(), path, route["tags"])
        for path, methods in app.openapi()["paths"].items()
        for method, route in methods.items()
    ]
    posted = {path for method, path, _ in operations if method == "POST"}
    assert posted - ASKING == {"/events", "/availability", "/items", "/reload"}
    assert {path for method, path, _ in operations if method not in ("GET", "POST")} == {"/users/{user}"}
    assert all("writing" not in tags for method, path, tags in operations if method == "GET" or path in ASKING)
    changes = [("POST", path) for path in posted - ASKING] + [("DELETE", "/users/x"), ("PUT", "/recommend"), ("BREW", "/items")]
    mounted = Starlette(routes=[Mount("/below/here", app)])
    for outer, below in ((app, ""), (mounted, "/below/here")):
        client = TestClient(outer, HOME)
        for method, path in changes:
            assert client.request(method, below + path, json={}).status_code == 401, path
            for end in ("%0A", "%0a", "%0D", "%00", "/%0A", "%0A/"):
                assert client.request(method, below + path + end, json={}).status_code == 400, path + end
        assert client.get(f"{below}/items").status_code == 200, "without a token for reading everybody may read"
        assert client.post(f"{below}/recommend", json={"attributes": {}}).status_code == 200
        assert client.post(f"{below}/reload", headers=bearing(WRITE)).status_code == 200


def test_a_place_where_it_is_mounted_opens_nothing(run_folder: Path) -> None:
    app = create_app(run_folder, ServeOptions(log="none", token=READ, write_token=WRITE))
    client = TestClient(Starlette(routes=[Mount("/health", app), Mount("/static", app)]), HOME)
    for below in ("/health", "/static"):
        assert client.get(f"{below}/items").status_code == 401
        assert client.get(f"{below}/health").status_code == 200
        assert client.post(f"{below}/events", json={}, headers=bearing(READ)).status_code == 403
    behind = TestClient(app, HOME, root_path="/service")
    assert behind.post("/events", json={}, headers=bearing(READ)).status_code == 403
    assert behind.post("/service/events", json={}, headers=bearing(READ)).status_code == 403


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


def test_a_body_that_says_it_is_large_is_refused_before_it_is_read(reader: TestClient) -> None:
    n_sent_before = []

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            n_sent_before.append(len(sent_by_now))
            yield b"x" * (1 << 16)

    sent_by_now: list[Any] = []
    sent = post(reader.app, pieces(), {"content-length": str(100 << 20)}, sent_by_now)
    assert sent.status == 413
    assert "1,048,576 bytes" in sent.detail
    assert n_sent_before[0] == 2, "the whole answer has gone"
    assert len(n_sent_before) <= 100, "some is discarded, so that the answer is not lost with the connection"
    assert (b"connection", b"close") in sent.messages[0]["headers"]


def test_a_large_body_is_read_up_to_the_limit(reader: TestClient) -> None:
    came = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal came
        while True:
            came += 1 << 16
            yield b"x" * (1 << 16)

    assert post(reader.app, pieces()).status == 413
    assert came <= (1 << 20) + (4 << 20) + (1 << 17), "and some is discarded"


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
        "/static/",
    ],
)
def test_no_path_leads_out_of_the_pages_files(reader: TestClient, path: str) -> None:
    response = reader.get(path)
    assert response.status_code == 404
    assert "import" not in response.text


@pytest.mark.parametrize("path", ["/static/%00", "/items/%00", "/users/x%0A", "/recommend%7f", "/%1f"])
def test_no_address_has_a_control_character(reader: TestClient, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        response = reader.request(method, path)
        assert response.status_code == 400
        assert "the path has a control character" in response.json()["detail"]


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


def test_without_a_token_only_this_machines_names_lead_here(run_folder: Path) -> None:
    """An application of one's own, too: a page elsewhere makes its name lead to this machine, and reads."""
    app = create_app(run_folder)
    for host, status in (("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:8000", 200), ("elsewhere.example", 403)):
        assert TestClient(app, HOME).get("/items", headers={"Host": host}).status_code == status
    for options in (ServeOptions(hosts=()), ServeOptions(token=READ)):
        client = TestClient(create_app(run_folder, options), "http://elsewhere.example", headers=bearing(READ))
        assert client.get("/items").status_code == 200


def test_bodies_on_their_way_are_counted(run_folder: Path) -> None:
    """Each holds memory before it is a question."""
    app = create_app(run_folder, ServeOptions(log="none", max_in_flight=2, timeout=60.0))
    service = app.state.service
    body = b'{"attributes": {}, "n": 1}'

    async def asks() -> list[int]:
        may_end = asyncio.Event()

        async def passes(pieces: list[bytes]) -> int:
            sent, left = Sent([]), iter(pieces)

            async def receive() -> Any:
                piece = next(left)
                if piece != pieces[0]:
                    await may_end.wait()
                return {"type": "http.request", "body": piece, "more_body": piece != pieces[-1]}

            await app(scope_of({}), receive, sent)
            return sent.status

        slow = [asyncio.create_task(passes([body[:5], body[5:]])) for _ in range(8)]
        while service.n_bodies < 8:
            await asyncio.sleep(0)
        refused = await passes([body])
        may_end.set()
        return [refused, *(await asyncio.gather(*slow))]

    refused, *others = asyncio.run(asks())
    assert refused == 503
    assert set(others) <= {200, 503}
    assert 200 in others
    assert service.n_bodies == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/recommend", {"user": "u", **{f"x{n}": 1 for n in range(10_000)}}),
        ("/recommend", {"attributes": {f"x{n}": {} for n in range(10_000)}}),
        ("/recommend", {"attributes": {f"x{n}": {} for n in range(1_000)}, "context": {f"x{n}": [[]] for n in range(1_000)}}),
        ("/recommend", {"attributes": {"x": [[]] * 10_000}}),
        ("/recommend", {"user": "u", "caps": {f"x{n}": "" for n in range(10_000)}}),
        ("/recommend", {"history": [[]] * 10_000, "available": [{}] * 10_000}),
        ("/recommend/batch", {"requests": [{"n": ""}] * 256}),
        ("/recommend/batch", {"requests": [0] * 10_000}),
        ("/score", {"user": "u", "items": [[]] * 10_000}),
        ("/score/batch", {"requests": [{"items": [0.5] * 100}] * 100}),
        ("/explain/batch", {"requests": [{"item": {}}] * 256}),
        ("/events", {"events": [{}] * 10_000}),
        ("/events", {"events": [{"user": {}, "item": [], "time": [], "event": 1}] * 10_000}),
        ("/availability", {"sold": [[]] * 10_000, "available": [{}] * 10_000}),
        ("/items", {"items": [{"x": {}}] * 10_000}),
        ("/items", {"items": [{f"x{n}": {} for n in range(1_000)}] * 50}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_ten_thousand_faults_a_handful_is_told(
    reader: TestClient, path: str, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that pydantic tells costs microseconds in which nobody else is answered."""
    counts: list[int] = []
    errors = RequestValidationError.errors
    monkeypatch.setattr(RequestValidationError, "errors", lambda error: counts.append(len(errors(error))) or errors(error))
    response = reader.post(path, json=body)
    assert response.status_code == 422
    assert len(counts) == 1
    assert 1 <= counts[0] <= 20
    assert len(response.json()["detail"]) < 2_000
