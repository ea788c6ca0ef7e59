"""The run that is served is replaced whole, and kept where the folder's is no run."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from gmlfm import Recommender
from gmlfm.errors import DataError
from gmlfm.reports import ObserveReport
from gmlfm.serve.hosting import Host
from gmlfm.serve.problems import Problem
from tests.serve.conftest import client_of


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

    def counted(self: Recommender) -> None:
        nonlocal n_followed
        n_followed += 1
        follow(self)

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
