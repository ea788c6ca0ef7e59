"""What changes something is on the disk before the answer, and counts in the next one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fastapi.testclient import TestClient

from gmlfm import Dataset, Recommender
from gmlfm.serve import contracts
from tests.serve.conftest import client_of
from tests.serve.test_hosting import check_of


def ranking(client: TestClient, user: str, n: int = 5) -> list[tuple[str, float]]:
    answer = client.post("/recommend", json={"user": user, "n": n}).json()
    return [(item["item"], item["score"]) for item in answer["items"]]


def test_an_event_counts_in_the_next_recommendation(client: TestClient, own_folder: Path, user: str) -> None:
    before = ranking(client, user)
    response = client.post("/events", json={"events": [{"user": user, "item": before[0][0]}]})
    assert response.status_code == 200
    assert contracts.EventsAnswer.model_validate(response.json()).n_kept == 1
    after = ranking(client, user)
    assert before[0][0] not in [item for item, _ in after]
    assert after[0][1] != before[1][1], "the score reads the event"
    assert Recommender.load(own_folder).observed.rows_of(user), "it is on the disk"


def test_an_event_that_is_known_already_is_counted_alone(client: TestClient, user: str, items: list[str]) -> None:
    latest = client.get(f"/users/{user}").json()["history"][0]["time"]
    event = {"user": user, "item": items[0], "time": latest + 1}
    first = client.post("/events", json={"events": [event]}).json()
    again = client.post("/events", json={"events": [event, event]}).json()
    assert (first["kept"], first["duplicates"]) == (1, 0)
    assert (again["kept"], again["duplicates"]) == (0, 2)


def test_of_events_all_are_kept_or_none(client: TestClient, own_folder: Path, user: str, items: list[str]) -> None:
    rows = [{"user": user, "item": items[0]}, {"user": user, "item": "no such item"}]
    response = client.post("/events", json={"events": rows})
    assert response.status_code == 400
    assert "'no such item' is not in the catalogue" in response.json()["detail"]
    assert Recommender.load(own_folder).observed.n == 0


def test_somebody_new_is_known_after_an_event(client: TestClient, items: list[str]) -> None:
    assert client.get("/users/newcomer").status_code == 404
    assert client.post("/events", json={"events": [{"user": "newcomer", "item": items[0]}]}).json()["new_users"] == 1
    answer = client.get("/users/newcomer").json()
    assert [row["item"] for row in answer["history"]] == [items[0]]
    assert answer["history"][0]["observed"] is True


def test_sold_items_vanish_and_come_back(client: TestClient, own_folder: Path, user: str) -> None:
    best = ranking(client, user)[0][0]
    assert client.post("/availability", json={"sold": [best]}).json()["sold"] == 1
    assert best not in [item for item, _ in ranking(client, user)]
    assert client.get(f"/items/{best}").json()["available"] is False
    assert Recommender.load(own_folder).stock.marks == {best: "sold"}
    client.post("/availability", json={"available": [best]})
    assert ranking(client, user)[0][0] == best


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/events", {"events": [{"user": "\ud800", "item": "ITEM"}]}, 422),
        ("/events", {"events": [{"user": "u", "item": "ITEM", "time": 10**400}]}, 422),
        ("/events", {"events": [{"user": "u", "item": "ITEM", "time": 1e308}]}, 400),
        ("/events", {"events": [{"user": "u", "item": "ITEM", "time": "\ud800"}]}, 400),
        ("/events", {"events": [{"user": "u", "item": "ITEM", "time": "99999-01-01"}]}, 400),
        (
            "/events",
            {"events": [{"user": "u", "item": "ITEM", "time": 1}, {"user": "u", "item": "ITEM", "time": "2020-01-01"}]},
            400,
        ),
        ("/events", {"events": [{"user": "", "item": "ITEM"}]}, 400),
        ("/events", {"events": []}, 422),
        ("/availability", {"sold": ["\ud800"]}, 422),
        ("/items", {"items": [{"item": "\ud800"}]}, 400),
        ("/items", {"items": [{"item": "new", "\ud800": 1}]}, 400),
        ("/items", {"items": [{"item": None}]}, 400),
        ("/items", {"items": [{"genre": "Theatre"}]}, 400),
        ("/items", {"items": [{"item": "new", "price": "cheap"}]}, 400),
        ("/items", {"items": [{"item": "new", "price": [1]}]}, 400),
        ("/items", {"items": [{"item": "new"}, {"item": "new"}]}, 400),
        ("/items", {"items": [{}]}, 400),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_is(
    client: TestClient, own_folder: Path, items: list[str], path: str, body: Any, status: int
) -> None:
    before = check_of(own_folder)
    response = client.post(
        path, content=json.dumps(body).replace("ITEM", items[0]), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"].endswith(".")
    assert not (own_folder / "events.jsonl").exists()
    assert check_of(own_folder) == before


def test_of_marks_all_are_made_or_none(client: TestClient, own_folder: Path, items: list[str]) -> None:
    response = client.post("/availability", json={"sold": [items[0]], "available": ["no such item"]})
    assert response.status_code == 400
    assert Recommender.load(own_folder).stock.marks == {}
    assert client.post("/availability", json={"sold": items[:1], "available": items[:1]}).status_code == 400


def test_new_items_enter_the_catalogue(client: TestClient, own_folder: Path) -> None:
    new = {"item": "brand new", "genre": "Theatre", "price": 1200.0}
    answer = client.post("/items", json={"items": [new]}).json()
    assert answer["added"] == 1
    assert any("'brand'" in note for note in answer["notes"]), "a field that is missing is told of"
    shown = client.get("/items/brand new").json()
    assert (shown["attributes"]["genre"], shown["attributes"]["price"], shown["available"]) == ("Theatre", 1200.0, True)
    assert shown["run"] == answer["run"]
    assert "brand new" in Recommender.load(own_folder).fitted.encoder.item_ids
    again = client.post("/items", json={"items": [new]})
    assert again.status_code == 400
    assert "in the catalogue already" in again.json()["detail"]


def test_new_items_have_no_more_fields_than_a_table_may(client: TestClient, own_folder: Path) -> None:
    rows = [{"item": f"n{n}", f"x{n}": 1, f"y{n}": 1} for n in range(600)]
    response = client.post("/items", json={"items": rows})
    assert response.status_code == 400
    assert response.json()["detail"] == "the items have 1,201 different fields; expected at most 1,000."
    assert "n1" not in Recommender.load(own_folder).fitted.encoder.item_ids


def test_sets_of_new_items_stay_sets(tmp_path: Path) -> None:
    interactions = pl.DataFrame([(f"u{n % 10}", f"i{n * 7 % 12}") for n in range(120)], schema=["user", "item"], orient="row")
    items = pl.DataFrame({"item": [f"i{n}" for n in range(12)], "tags": [["a", "b"], ["c"], None] * 4, "colour": ["red"] * 12})
    schema = {
        "interactions": {"user": "user", "item": "item"},
        "items": {"id": "item", "fields": {"tags": "set", "colour": "category"}},
    }
    data = Dataset.from_tables(interactions, items=items, schema=schema)
    run = Recommender("fm", k=4, epochs=1, threads=1).fit(data, out=tmp_path / "run")
    with client_of(run) as client:  # type: ignore[arg-type]
        new = [
            {"item": "n1", "tags": ["a", "b"]},
            {"item": "n2", "tags": "b"},
            {"item": "n3", "tags": ["c", 3]},
            {"item": "n4"},
        ]
        assert client.post("/items", json={"items": new}).status_code == 200
        tags = {name: client.get(f"/items/{name}").json()["attributes"]["tags"] for name in ("n1", "n2", "n3", "n4")}
        assert tags == {"n1": ["a", "b"], "n2": ["b"], "n3": ["c", "3"], "n4": None}
        refused = client.post("/items", json={"items": [{"item": "n5", "colour": ["red"]}, {"item": "n6", "colour": "red"}]})
        assert refused.status_code == 400
        assert "holds lists but one value was expected" in refused.json()["detail"]


def test_new_items_are_added_to_the_run_that_stands_in_the_folder(client: TestClient, own_folder: Path) -> None:
    elsewhere = Recommender.load(own_folder)
    with pytest.warns(UserWarning, match="no column"):
        elsewhere.add_items(pl.DataFrame({"item": ["from elsewhere"]}))
    elsewhere.save(own_folder)
    assert client.post("/items", json={"items": [{"item": "from here"}]}).status_code == 200
    ids = set(Recommender.load(own_folder).fitted.encoder.item_ids)
    assert {"from elsewhere", "from here"} <= ids
    assert client.get("/items/from elsewhere").status_code == 200


def test_a_forgotten_user_is_gone(client: TestClient, own_folder: Path, user: str, items: list[str]) -> None:
    client.post("/events", json={"events": [{"user": user, "item": items[0]}]})
    before = client.get(f"/users/{user}").json()["run"]
    answer = client.delete(f"/users/{user}").json()
    assert answer["forgotten"] == user
    assert answer["run"]["check"] != before["check"]
    assert client.get(f"/users/{user}").status_code == 404
    assert client.delete(f"/users/{user}").status_code == 404
    assert client.post("/recommend", json={"user": user}).json()["known"] is False
    assert all(user.encode() not in path.read_bytes() for path in own_folder.rglob("*.jsonl"))
    assert Recommender.load(own_folder).fitted.encoder.user_numbers([user])[0] == -1


def test_what_others_observe_mark_and_forget_counts(client: TestClient, own_folder: Path, user: str) -> None:
    elsewhere = Recommender.load(own_folder)
    best, second = (item for item, _ in ranking(client, user, 2))
    elsewhere.observe({"user": user, "item": best})
    assert best not in [item for item, _ in ranking(client, user)]
    elsewhere.mark_sold([second])
    assert second not in [item for item, _ in ranking(client, user)]
    elsewhere.forget(user)
    assert client.get(f"/users/{user}").status_code == 404
    assert client.post("/recommend", json={"user": user}).json()["known"] is False


def test_nothing_can_be_kept_where_the_folder_is_gone(
    client: TestClient, own_folder: Path, user: str, items: list[str]
) -> None:
    shutil.rmtree(own_folder)
    bodies: dict[str, Any] = {
        "/events": {"events": [{"user": user, "item": items[0]}]},
        "/availability": {"sold": items[:1]},
        "/items": {"items": [{"item": "new"}]},
    }
    for path, body in bodies.items():
        response = client.post(path, json=body)
        assert response.status_code == 503, path
        assert "folder of the run 'first' is gone" in response.json()["detail"]
        assert response.headers["retry-after"] == "1"
    assert client.delete(f"/users/{user}").status_code == 503
    assert not own_folder.exists(), "nothing of it is made anew"


def test_a_recommender_without_a_folder_keeps_in_memory(run_folder: Path, user: str, items: list[str]) -> None:
    recommender = Recommender.load(run_folder)
    recommender._folder, recommender._folders = None, {}
    with client_of(recommender) as client:  # type: ignore[arg-type]
        assert client.post("/events", json={"events": [{"user": user, "item": items[5]}]}).json()["kept"] == 1
        assert client.get(f"/users/{user}").json()["history"][0]["item"] == items[5]
        assert client.post("/items", json={"items": [{"item": "new"}]}).json()["added"] == 1
        assert client.get("/items/new").status_code == 200
        assert client.delete(f"/users/{user}").status_code == 200
        assert client.get(f"/users/{user}").status_code == 404
        assert client.post("/reload").json()["swapped"] == []
    assert not (run_folder / "events.jsonl").exists()
