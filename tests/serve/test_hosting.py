"""The run that is served is replaced whole, and kept where the folder's is no run."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gmlfm import Recommender, load_dataset
from gmlfm.errors import DataError
from gmlfm.models.fm import FM
from gmlfm.reports import ObserveReport
from gmlfm.runs import RunFolder
from gmlfm.runs.locking import writers_lock
from gmlfm.serve import hosting
from gmlfm.serve.hosting import Host
from gmlfm.serve.problems import Problem
from tests.serve.conftest import client_of


class OwnModel(FM):
    """A model that has no name."""


def replace_run(folder: Path, source: Path) -> None:
    """As `gmlfm train --out FOLDER --force` does: a new run in the place of the old one, whose log stays."""
    Recommender.load(source).save(folder, force=True)


def check_of(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["check"])[:16]


def test_a_reload_takes_the_folders_run(client: TestClient, own_folder: Path, other_folder: Path, user: str) -> None:
    before = client.post("/recommend", json={"user": user}).json()
    assert client.post("/reload").json()["swapped"] == []
    replace_run(own_folder, other_folder)
    assert client.post("/recommend", json={"user": user}).json() == before, "until it is asked for"
    answer = client.post("/reload").json()
    assert answer["swapped"] == ["first"]
    after = client.post("/recommend", json={"user": user}).json()
    assert after["run"]["check"] == answer["runs"][0]["check"] == check_of(own_folder)
    assert after["items"] != before["items"]


def test_events_of_before_and_meanwhile_count_after_a_reload(
    client: TestClient, own_folder: Path, other_folder: Path, items: list[str]
) -> None:
    def event(item: str) -> None:
        assert client.post("/events", json={"events": [{"user": "newcomer", "item": item}]}).status_code == 200

    event(items[0])
    replace_run(own_folder, other_folder)
    event(items[1])
    client.post("/reload")
    event(items[2])
    history = client.get("/users/newcomer").json()["history"]
    assert [row["item"] for row in history] == [items[2], items[1], items[0]]


def test_no_answer_is_of_two_runs(own_folder: Path, run_folder: Path, other_folder: Path, user: str) -> None:
    """Two runs take turns while questions come: each answer is that of the run in its stamp."""
    host = Host.load("first", own_folder)
    expected, wrong, is_over = {}, [], threading.Event()
    for folder in (other_folder, run_folder):
        replace_run(own_folder, folder)
        host.reload()
        expected[host.served.recommender.fitted.settings.model] = host.served.recommender.recommend([user], n=5).to_dicts()
    assert expected["fm"] != expected["gml-fm"]
    n_asked = dict.fromkeys(expected, 0)

    def ask() -> None:
        while not is_over.is_set():
            served = host.current()
            model = served.recommender.fitted.settings.model
            if served.recommender.recommend([user], n=5).to_dicts() != expected[model]:
                wrong.append(model)
            if served.stamp["check"] != served.recommender.about["check"][:16]:
                wrong.append("stamp")
            n_asked[model] += 1

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    for turn in range(6):
        replace_run(own_folder, (other_folder, run_folder)[turn % 2])
        assert host.reload()
    is_over.set()
    for asker in askers:
        asker.join()
    assert wrong == []
    assert all(n_asked.values())


def test_a_deleted_folder_leaves_the_loaded_run(client: TestClient, own_folder: Path, user: str, items: list[str]) -> None:
    client.post("/events", json={"events": [{"user": "newcomer", "item": items[0]}]})
    before = client.post("/recommend", json={"user": user}).json()
    shutil.rmtree(own_folder)
    assert client.post("/recommend", json={"user": user}).json() == before
    assert client.get("/users/newcomer").status_code == 200, "what was observed, too"
    health = client.get("/health")
    assert (health.status_code, health.json()["status"], health.json()["ready"]) == (200, "degraded", True)
    assert "gone or damaged" in health.json()["problems"][0]
    assert str(own_folder) not in health.text
    reload = client.post("/reload")
    assert reload.status_code == 503
    assert "still served" in reload.json()["detail"]
    assert client.post("/recommend", json={"user": user}).json() == before


def test_a_half_copied_run_leaves_the_loaded_one(client: TestClient, own_folder: Path, other_folder: Path, user: str) -> None:
    before = client.post("/recommend", json={"user": user}).json()
    whole = own_folder.with_name("whole")
    shutil.copytree(other_folder, whole)
    shutil.rmtree(own_folder)
    shutil.copytree(whole, own_folder)
    weights = next(own_folder.rglob("weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    assert client.post("/reload").status_code == 503
    assert client.post("/recommend", json={"user": user}).json() == before
    health = client.get("/health").json()
    assert health["status"] == "degraded"
    assert "cannot be read" in health["problems"][0]
    shutil.copy(next(whole.rglob("weights.safetensors")), weights)
    assert client.post("/reload").json()["swapped"] == ["first"]
    assert client.get("/health").json() == {"status": "ok", "live": True, "ready": True, "problems": []}


def test_a_damaged_log_leaves_what_was_observed(client: TestClient, own_folder: Path, user: str, items: list[str]) -> None:
    client.post("/events", json={"events": [{"user": "newcomer", "item": items[0]}]})
    log = own_folder / "events.jsonl"
    log.write_bytes(log.read_bytes() + b'{"n": 9, "kind": "observed"}\n')
    assert client.get("/users/newcomer").json()["history"][0]["item"] == items[0]
    assert "the log of events of the run 'first' cannot be read" in client.get("/health").json()["problems"][0]
    response = client.post("/events", json={"events": [{"user": "newcomer", "item": items[1]}]})
    assert response.status_code == 503
    assert response.json()["detail"].startswith("first/events.jsonl is damaged in line")
    log.write_bytes(log.read_bytes().rpartition(b'{"n": 9')[0])
    client.get("/users/newcomer")
    assert client.get("/health").json()["status"] == "ok"


def test_a_disk_that_is_full_keeps_nothing_and_says_so(
    client: TestClient, own_folder: Path, items: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("gmlfm.runs.events.os.fsync", full)
        response = client.post("/events", json={"events": [{"user": "newcomer", "item": items[0]}]})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    assert "first/events.jsonl could not be written" in response.json()["detail"]
    assert client.get("/users/newcomer").status_code == 404
    assert client.post("/events", json={"events": [{"user": "newcomer", "item": items[0]}]}).json()["kept"] == 1
    assert Recommender.load(own_folder).observed.n == 1


def test_a_reload_of_several_runs_tries_all(own_folder: Path, other_folder: Path, tmp_path: Path) -> None:
    second = Path(shutil.copytree(other_folder, tmp_path / "second"))
    with client_of([own_folder, second]) as client:  # type: ignore[arg-type]
        replace_run(second, own_folder)
        shutil.rmtree(own_folder)
        assert client.post("/reload").status_code == 503
        runs = {run["name"]: run for run in client.get("/runs").json()["runs"]}
        assert runs["second"]["check"] == check_of(second)
        assert runs["first"]["problem"] is not None


def test_a_follower_reads_the_log_once_for_each_change(
    own_folder: Path, items: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, n_followed = Host.load("first", own_folder), 0
    follow = Recommender.follow

    def counted(self: Recommender, **options: bool) -> bool:
        nonlocal n_followed
        n_followed += 1
        return follow(self, **options)

    monkeypatch.setattr(Recommender, "follow", counted)
    Recommender.load(own_folder).observe({"user": "u", "item": items[0]})
    for _ in range(5):
        assert "u" in host.current().recommender.observed
    assert n_followed == 1


def test_what_is_no_run_is_refused(tmp_path: Path, own_folder: Path) -> None:
    host = Host.load("first", own_folder)
    (own_folder / "run.json").write_text("{")
    with pytest.raises(Problem, match="still served"):
        host.reload()


def test_rows_that_wait_together_are_written_together_and_refused_alone(own_folder: Path, items: list[str]) -> None:
    host = Host.load("run", own_folder)
    log = own_folder / "events.jsonl"
    row = {"user": "w1", "item": items[0], "time": "2999-01-01"}
    waiting = [
        host.wait_to_observe(rows)
        for rows in ([{"user": "w0", "item": items[0]}], [{"user": "w0", "item": "none"}], [row], [row], [])
    ]
    assert host.observe(waiting[2]) == ObserveReport(1, 0, 1)
    assert host.observe(waiting[0]) == ObserveReport(1, 0, 1)
    assert host.observe(waiting[3]) == ObserveReport(0, 1, 0)  # the one before it has it
    assert host.observe(waiting[4]) == ObserveReport()
    with pytest.raises(DataError, match="the item 'none' is not in the catalogue"):
        host.observe(waiting[1])
    assert [len(one.notes) for one in waiting] == [0, 0, 1, 1, 0]  # of the future
    kept = {row[:2] for row in Recommender.load(own_folder).observed.rows()}
    assert kept == {("w0", items[0]), ("w1", items[0])}
    assert sum(b'"observed"' in line for line in log.read_bytes().splitlines()) == 1
    shutil.rmtree(own_folder)
    late = [host.wait_to_observe([{"user": "w2", "item": items[0]}]) for _ in range(2)]
    for one in late:
        with pytest.raises(Problem, match="is gone, so nothing can be kept"):
            host.observe(one)


def test_who_was_forgotten_elsewhere_leaves_the_others_as_they_are(client: TestClient, own_folder: Path) -> None:
    """Forgetting renumbers users: what is looked up by number is of the same run as the numbers."""
    run = Recommender.load(own_folder).fitted
    users = run.data.users.ids.to_list()
    forgotten, last = users[0], users[-1]

    def shown(user: str) -> tuple[Any, Any, Any]:
        answer = client.get(f"/users/{user}").json()
        found = client.get("/users", params={"q": user}).json()
        return answer["attributes"], answer["history"], found["users"]

    before = {user: shown(user) for user in (*users[1:4], last)}
    held = client.app.state.service.default.current()  # type: ignore[attr-defined]
    Recommender.load(own_folder).forget(forgotten)
    assert {user: shown(user) for user in before} == before
    assert client.get(f"/users/{forgotten}").status_code == 404
    assert client.get("/users", params={"q": forgotten}).json()["total"] == 0
    assert client.get("/users", params={"limit": 1}).json()["total"] == len(users) - 1
    assert len(held.recommender.fitted.data.users) == len(users), "an answer that is being made has its run to its end"
    assert held.catalogue.run is held.recommender.fitted
    for number, item in enumerate(run.data.items.ids.head(2).to_list()):  # and once is enough
        assert client.post("/events", json={"events": [{"user": "newcomer", "item": item}]}).json()["kept"] == 1
        served = client.app.state.service.default.current()  # type: ignore[attr-defined]
        assert len(served.recommender.observed.rows_of("newcomer")) == number + 1
    assert client.app.state.service.default.current() is served  # type: ignore[attr-defined]


def test_what_is_taken_was_followed(own_folder: Path, items: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a run that knows nothing of the events yet takes its place in the middle of looking."""
    host, stale = Host.load("first", own_folder), Recommender.load(own_folder)
    Recommender.load(own_folder).observe({"user": "newcomer", "item": items[0]})
    assert "newcomer" in host.current().recommender.observed
    mark_of = hosting._mark_of

    class Compared(tuple[int, ...]):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            is_equal = tuple(self) == other
            host._replace(stale.twin())
            return is_equal

        def __ne__(self, other: object) -> bool:
            return not self == other

    with monkeypatch.context() as patch:
        patch.setattr(hosting, "_mark_of", lambda folder: Compared(mark_of(folder) or ()))
        served = host.current()
    assert "newcomer" in served.recommender.observed
    assert "newcomer" in host.current().recommender.observed
    assert host.current() is not served


def test_a_run_of_a_class_of_its_own_is_read_again(small_market: Path, tmp_path: Path) -> None:
    data = load_dataset(str(small_market))
    recommender = Recommender(OwnModel, k=2, epochs=1, threads=1).fit(data, out=tmp_path / "run")
    for given in (recommender, Recommender.load(tmp_path / "run", OwnModel)):
        with client_of(given) as client:  # type: ignore[arg-type]
            other = Recommender(OwnModel, k=3, epochs=1, threads=1, seed=3).fit(data)
            other.save(tmp_path / "run", force=True)
            assert client.post("/reload").json()["swapped"] == ["run"]
            assert client.get("/model").json()["run"]["check"] == check_of(tmp_path / "run")


def test_the_owner_of_a_run_and_its_service_meet_in_the_folder(own_folder: Path, user: str, items: list[str]) -> None:
    owner = Recommender.load(own_folder)
    others = owner.fitted.data.users.ids.to_list()
    other = next(name for name in reversed(others) if name != user)
    with client_of(owner) as client:  # type: ignore[arg-type]
        before = client.get(f"/users/{other}").json()["attributes"]
        owner.observe({"user": "visitor", "item": items[0]})
        assert client.get("/users/visitor").status_code == 200
        owner.forget(user)
        assert client.get(f"/users/{user}").status_code == 404
        assert client.get(f"/users/{other}").json()["attributes"] == before
        client.post("/events", json={"events": [{"user": "visitor", "item": items[1]}]})
        owner.follow()
        assert len(owner.observed.rows_of("visitor")) == 2


CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/events", lambda user, item: {"events": [{"user": "newcomer", "item": item}]}),
    ("POST", "/availability", lambda user, item: {"sold": [item]}),
    ("POST", "/items", lambda user, item: {"items": [{"item": "new"}]}),
    ("DELETE", "/users/{user}", lambda user, item: None),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=[path for _, path, _ in CHANGES])
def test_a_folder_that_cannot_be_written_is_named_and_not_placed(
    client: TestClient,
    own_folder: Path,
    user: str,
    items: list[str],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: Any,
) -> None:
    real, files = os.open, sorted(own_folder.rglob("*"))

    def refuse(name: Any, flags: int, *rest: Any, **more: Any) -> int:
        if str(name).startswith(str(own_folder)) and flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return real(name, flags, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        response = client.request(method, path.format(user=user), json=body(user, items[0]))
    assert response.status_code == 503, response.text
    assert response.headers["retry-after"] == "5"
    assert "first could not be written (Permission denied)" in response.json()["detail"]
    assert str(own_folder.parent) not in response.text
    assert sorted(own_folder.rglob("*")) == files
    assert client.request(method, path.format(user=user), json=body(user, items[0])).status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=[path for _, path, _ in CHANGES])
def test_a_folder_that_another_process_writes_is_told_without_who_it_is(
    client: TestClient,
    own_folder: Path,
    user: str,
    items: list[str],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: Any,
) -> None:
    monkeypatch.setattr("gmlfm.runs.run_folder.writers_lock", lambda folder: writers_lock(folder, 0.0))
    with writers_lock(own_folder):
        response = client.request(method, path.format(user=user), json=body(user, items[0]))
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "in use by another process, so nothing was changed" in response.json()["detail"]
    for private in (str(own_folder), str(os.getpid()), socket.gethostname()):
        assert private not in response.text
    assert client.request(method, path.format(user=user), json=body(user, items[0])).status_code == 200


def test_a_copy_that_may_hold_a_forgotten_user_is_told_of_without_its_place(
    own_folder: Path, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Recommender.load(own_folder)
    owner.save(tmp_path / "secret place")
    owner.save(own_folder, force=True)
    forget = RunFolder.forget

    def fails(self: RunFolder, *given: Any) -> bool:
        if self.path == own_folder:
            return forget(self, *given)
        raise DataError(f"{self.path} could not be written (no); nothing was changed.")

    monkeypatch.setattr(RunFolder, "forget", fails)
    with client_of(owner) as client:  # type: ignore[arg-type]
        answer = client.delete(f"/users/{user}")
    assert answer.status_code == 200
    assert answer.json()["notes"] == [
        "another folder that the run was saved in could not be changed, may still hold the user and should be deleted."
    ]


def test_an_error_that_names_the_folder_anywhere_does_so_by_the_runs_name(
    client: TestClient, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(served: Any, *rest: Any) -> Any:
        raise DataError(f"something of '{own_folder}/model' is amiss.")

    monkeypatch.setattr("gmlfm.serve.browsing.found_items", fail)
    response = client.get("/items")
    assert (response.status_code, response.json()["detail"]) == (400, "something of 'first/model' is amiss.")


def test_in_memory_no_change_is_lost_to_another(run_folder: Path, user: str, items: list[str]) -> None:
    """Who is forgotten while others are observed: both count, where no log tells the one of the other."""
    recommender = Recommender.load(run_folder)
    recommender._folder, recommender._folders = None, {}
    host = Host.over("run", recommender)
    begun, may_end = threading.Event(), threading.Event()
    forget = Recommender.forget

    def slow(self: Recommender, name: Any) -> None:
        begun.set()
        assert may_end.wait(60)
        forget(self, name)

    Recommender.forget = slow  # type: ignore[method-assign]
    try:
        forgetting = threading.Thread(target=host.forget, args=(user,))
        forgetting.start()
        assert begun.wait(60)
        observing = threading.Thread(target=lambda: host.observe(host.wait_to_observe([{"user": "visitor", "item": items[0]}])))
        marking = threading.Thread(target=host.mark, args=(items[1:2], []))
        for thread in (observing, marking):
            thread.start()
            thread.join(0.05)
        may_end.set()
        for thread in (forgetting, observing, marking):
            thread.join()
    finally:
        Recommender.forget = forget  # type: ignore[method-assign]
    served = host.current()
    assert "visitor" in served.recommender.observed
    assert served.recommender.stock.marks == {items[1]: "sold"}
    assert served.recommender.fitted.encoder.user_numbers([user])[0] == -1
