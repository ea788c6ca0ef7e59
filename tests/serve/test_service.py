"""Threads that answer, change and reload; what happens beside the requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gmlfm import Recommender
from gmlfm.serve import ServeOptions, create_app
from tests.serve.conftest import HOME, client_of
from tests.serve.test_hosting import check_of, replace_run


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


class Held:
    """Takes the place of a function: whoever calls it waits until it may go on."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._may_end = function, threading.Event()
        self.n_begun, self.begun = 0, threading.Event()

    def __call__(self, *given: Any) -> Any:
        self.n_begun += 1
        self.begun.set()
        assert self._may_end.wait(60)
        return self._function(*given)

    def let_go(self) -> None:
        self._may_end.set()


@contextmanager
def holding(owner: Any, name: str) -> Iterator[Held]:
    held = Held(getattr(owner, name))
    setattr(owner, name, held)
    try:
        yield held
    finally:
        held.let_go()


def in_threads(ask: Callable[[], Any], n: int) -> tuple[list[threading.Thread], list[Any]]:
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(ask())) for _ in range(n)]
    for thread in threads:
        thread.start()
    return threads, answers


def test_a_question_that_nobody_waits_for_is_not_begun(run_folder: Path) -> None:
    app = create_app(run_folder, ServeOptions(log="none", timeout=0.1, threads=1))
    service = app.state.service
    with TestClient(app, HOME) as client, holding(service.default, "current") as held:
        threads, answers = in_threads(lambda: client.get("/schema"), 4)
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [504] * 4
        assert "ask for less" in answers[0].json()["detail"]
        until(lambda: service.n_in_flight == 1)  # that whose thread is at work
        held.let_go()
        until(lambda: service.n_in_flight == 0)
        assert held.n_begun == 1


def test_a_users_list_waits_for_no_thread_where_items_are_few(
    run_folder: Path, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(run_folder, ServeOptions(log="none", timeout=0.1, threads=1))
    plain, with_reasons = {"user": user, "n": 3}, {"user": user, "n": 3, "because": True}
    with TestClient(app, HOME) as client:
        with holding(app.state.service.default, "current"):
            quick = client.post("/recommend", json=plain)
            assert client.post("/recommend", json=with_reasons).status_code == 504
        until(lambda: app.state.service.n_in_flight == 0)
        monkeypatch.setattr("gmlfm.serve.hosting._FEW_ITEMS", 0)
        with holding(app.state.service.default, "current"):
            assert client.post("/recommend", json=plain).status_code == 504
        until(lambda: app.state.service.n_in_flight == 0)
        assert client.post("/recommend", json=plain).json() == quick.json()


def test_a_quick_answer_follows_what_others_observed(own_folder: Path, user: str, items: list[str]) -> None:
    with TestClient(create_app(own_folder, ServeOptions(log="none")), HOME) as client:
        first = client.post("/recommend", json={"user": user, "n": 2}).json()["items"]
        Recommender.load(own_folder).observe({"user": user, "item": first[0]["item"]})
        assert client.post("/recommend", json={"user": user, "n": 1}).json()["items"][0]["item"] != first[0]["item"]


def test_a_change_that_took_too_long_is_made_all_the_same(client: TestClient, own_folder: Path, items: list[str]) -> None:
    app = create_app(own_folder, ServeOptions(log="none", timeout=0.1))
    with TestClient(app, HOME) as hasty, holding(app.state.service.default, "mark") as held:
        threads, answers = in_threads(lambda: hasty.post("/availability", json={"sold": items[:1]}), 3)
        for thread in threads:
            thread.join()
        assert {answer.status_code for answer in answers} == {504}
        assert {answer.json()["detail"] for answer in answers} == {
            "the change took more than 0.1 seconds, and may still be made."
        }
        held.let_go()
        until(lambda: held.n_begun == 3)
        until(lambda: app.state.service.n_in_flight == 0)
    assert client.get(f"/items/{items[0]}").json()["available"] is False


def test_reloads_keep_nobody_waiting_and_a_few_may_wait(run_folder: Path) -> None:
    app = create_app(run_folder, ServeOptions(log="none"))
    service = app.state.service
    with TestClient(app, HOME) as client, holding(service.default, "reload") as held:
        threads, answers = in_threads(lambda: client.post("/reload"), 4)
        assert held.begun.wait(60)
        until(lambda: service._n_reloads == 4)
        refused = client.post("/reload")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "4 reloads wait already" in refused.json()["detail"]
        for path in ("/health", "/metrics", "/runs"):
            assert client.get(path).status_code == 200
        assert held.n_begun == 1, "one after another"
        held.let_go()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 4
        assert client.post("/reload").status_code == 200


def test_a_reload_that_fails_is_logged_with_its_reason(own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TestClient(create_app(own_folder, ServeOptions(log="errors")), HOME) as client:
        (own_folder / "run.json").write_text("{")
        response = client.post("/reload")
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"

        def fail() -> bool:
            raise RuntimeError("about a secret")

        client.app.state.service.default.reload = fail  # type: ignore[attr-defined]
        assert client.post("/reload").status_code == 500
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    reloads = [line for line in lines if line["what"] == "reload"]
    assert "cannot be read" in reloads[0]["why"]
    assert str(own_folder) not in json.dumps(lines)
    assert (reloads[1]["outcome"], reloads[1]["why"]) == ("failed", "RuntimeError")
    assert "secret" not in json.dumps(lines)


def test_looking_at_other_workers_goes_on_after_a_failure(
    own_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    n_failed = 0

    def fail(figures: Any, shared_folder: Path) -> None:
        nonlocal n_failed
        n_failed += 1
        raise ValueError("unexpected")

    monkeypatch.setattr("gmlfm.serve.service._TICK", 0.01)
    monkeypatch.setattr("gmlfm.serve.service._SHARE_EVERY", 0.0)
    with TestClient(create_app(own_folder, ServeOptions(log="errors", shared_folder=tmp_path)), HOME) as client:
        with monkeypatch.context() as patch:
            patch.setattr("gmlfm.serve.service.share_figures", fail)
            until(lambda: n_failed > 3)
        (own_folder / "run.json").touch()
        client.app.state.service.reload_soon()  # type: ignore[attr-defined]
        until(lambda: 'gmlfm_reloads_total{outcome="unchanged"} 1' in client.get("/metrics").text)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    failures = [line for line in lines if line["what"] == "failure"]
    assert [(line["error"], line["route"]) for line in failures] == [("ValueError", "look at other workers")], "once"


def test_a_second_worker_takes_what_the_first_was_told_to(
    own_folder: Path, other_folder: Path, tmp_path: Path, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gmlfm.serve.service._TICK", 0.01)
    shared = tmp_path / "shared"
    shared.mkdir()
    with client_of(own_folder, shared_folder=shared) as first, client_of(own_folder, shared_folder=shared) as second:

        def follows() -> bool:
            return bool(second.get("/model").json()["run"]["check"] == check_of(own_folder))

        replace_run(own_folder, other_folder)
        assert not follows()
        assert first.post("/reload").json()["swapped"] == ["first"]
        until(follows)
        assert first.post("/items", json={"items": [{"item": "new"}]}).status_code == 200
        until(lambda: second.get("/items/new").status_code == 200)
        assert follows()
        assert first.delete(f"/users/{user}").status_code == 200
        assert second.get(f"/users/{user}").status_code == 404
        until(follows)


def test_who_asks_for_a_reload_while_a_worker_reads_its_run_is_heard(
    own_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gmlfm.serve import app, workers

    real = app._hosts

    def slow(*given: Any) -> Any:
        hosts = real(*given)
        workers.ask_for_reload(tmp_path)
        return hosts

    monkeypatch.setattr(app, "_hosts", slow)
    monkeypatch.setattr("gmlfm.serve.service._TICK", 0.01)
    with client_of(own_folder, shared_folder=tmp_path) as client:
        until(lambda: "gmlfm_reloads_total" in client.get("/metrics").text.replace("# ", ""))
        until(lambda: 'gmlfm_reloads_total{outcome="unchanged"} 1' in client.get("/metrics").text)
