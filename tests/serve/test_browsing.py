from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient

from gmlfm import Dataset, Recommender
from gmlfm.fitting import FittedRun
from gmlfm.serve import contracts
from gmlfm.serve.catalogue import Catalogue, shown_values
from gmlfm.serve.hosting import Host
from tests.serve.conftest import client_of


def test_items_are_found_by_id_and_title(reader: TestClient, items: list[str]) -> None:
    by_id = reader.get("/items", params={"q": items[3].upper(), "limit": 3}).json()
    assert by_id["items"][0]["item"] == items[3]
    title = by_id["items"][0]["title"]
    by_title = reader.get("/items", params={"q": title.upper(), "limit": 200}).json()
    assert items[3] in [item["item"] for item in by_title["items"]]
    assert all(title.lower() in item["title"].lower() for item in by_title["items"])
    contracts.FoundItems.model_validate(by_title)


def test_what_is_searched_is_text_and_no_pattern(reader: TestClient) -> None:
    assert reader.get("/items", params={"q": ".*"}).json()["total"] == 0
    assert reader.get("/items", params={"q": "nothing is called that"}).json() | {"run": None} == {
        "notes": [],
        "items": [],
        "total": 0,
        "run": None,
    }


def test_without_words_the_commonest_come_first(reader: TestClient, run_folder: Path) -> None:
    data = Recommender.load(run_folder).fitted.data
    users = reader.get("/users?limit=5").json()
    counts = np.bincount(data.user_numbers, minlength=len(data.users))
    numbers = [data.users.ids.to_list().index(user["user"]) for user in users["users"]]
    assert [counts[number] for number in numbers] == sorted(counts, reverse=True)[:5]
    assert users["total"] == len(data.users)
    assert reader.get("/users", params={"q": users["users"][2]["user"]}).json()["users"][0] == users["users"][2]


@pytest.mark.parametrize("address", ["/users?limit=", "/items?limit=", "/items?q=e&limit="])
def test_what_is_found_can_be_gone_through(reader: TestClient, address: str) -> None:
    kind = address[1:6]
    first = reader.get(f"{address}6").json()
    second = reader.get(f"{address}3&offset=3").json()
    assert second[kind] == first[kind][3:]
    assert len(second[kind]) == 3
    beyond = reader.get(f"{address}3&offset={first['total']}").json()
    assert (beyond[kind], beyond["total"]) == ([], first["total"])


@pytest.mark.parametrize(
    "path",
    ["/items?limit=0", "/items?offset=-1", "/users?offset=x", "/items?limit=201", "/users?limit=x", f"/items?q={'x' * 300}"],
)
def test_limits_of_a_search(reader: TestClient, path: str) -> None:
    assert reader.get(path).status_code == 422


@pytest.mark.parametrize("path", ["/items/nothing", "/users/nobody", "/users/%ff", "/items/..%2f..%2fetc"])
def test_what_is_not_there_is_404(reader: TestClient, path: str) -> None:
    response = reader.get(path)
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


def test_a_users_history_is_latest_first_with_titles(reader: TestClient, run_folder: Path, user: str) -> None:
    data = Recommender.load(run_folder).fitted.data
    number = data.users.ids.to_list().index(user)
    rows = data.interactions.filter(pl.col("user") == number)
    answer = reader.get(f"/users/{user}?limit=3").json()
    times = [row["time"] for row in answer["history"]]
    assert times == sorted(rows["time"].to_list(), reverse=True)[:3]
    assert answer["total"] == rows.height
    assert all(row["title"] and row["attributes"] for row in answer["history"])
    assert answer["attributes"] == data.users.fields.row(number, named=True)
    contracts.UserAnswer.model_validate(answer)


def test_the_schema_says_what_a_form_needs(reader: TestClient, run_folder: Path) -> None:
    answer = contracts.SchemaAnswer.model_validate(reader.get("/schema").json())
    data = Recommender.load(run_folder).fitted.data
    assert [(field.role, field.name) for field in answer.fields] == [
        (part, field.name) for part, field in data.schema.all_fields()
    ]
    by_name = {field.name: field for field in answer.fields}
    assert by_name["price"].least == data.items.fields["price"].min()
    assert by_name["price"].categories == []
    ages = data.users.fields["age"].drop_nulls()
    assert sum(value.count for value in by_name["age"].categories) == len(ages)
    assert by_name["age"].n_categories == ages.n_unique()


def test_the_card_and_the_curve(reader: TestClient, run_folder: Path) -> None:
    run = Recommender.load(run_folder).fitted
    card = reader.get("/model").json()["card"]
    assert card["data"]["hash"] == run.data.content_hash
    assert card["validation"] == run.validation
    assert card["limits"]
    assert reader.get("/curve").json()["curve"] == run.curve


def test_sets_contexts_missing_values_and_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    title = '<img src=x onerror="alert(1)">'
    rows = [(f"u{n % 10}", n * 7 % 12, ("web", "app")[n % 2]) for n in range(120)]
    interactions = pl.DataFrame(rows, schema=["user", "item", "channel"], orient="row")
    tags = [["a", "b"], [], None] * 4
    weights = [1.5, None, float("nan")] * 4
    items = pl.DataFrame({"item": list(range(12)), "name": [title] * 12, "tags": tags, "weight": weights})
    schema = {
        "interactions": {"user": "user", "item": "item", "context": {"channel": "category"}},
        "items": {"id": "item", "title": "name", "fields": {"tags": "set", "weight": "number"}},
    }
    data = Dataset.from_tables(interactions, items=items, schema=schema)
    recommender = Recommender("fm", k=4, epochs=1, threads=1).fit(data, out=tmp_path / "run")
    with client_of(recommender) as client:  # type: ignore[arg-type]
        answer = client.post("/recommend", json={"user": "u1", "context": {"channel": "app"}, "n": 12, "seen": True})
        assert answer.headers["content-type"] == "application/json"
        found = {item["item"]: item for item in answer.json()["items"]}
        assert found[0]["attributes"] == {"tags": ["a", "b"], "weight": 1.5}
        assert found[2]["attributes"]["weight"] is None
        assert found[1]["title"] == title
        fields = {field["name"]: field for field in client.get("/schema").json()["fields"]}
        assert fields["tags"]["categories"] == [{"value": "a", "count": 4}, {"value": "b", "count": 4}]
        assert {value["value"] for value in fields["channel"]["categories"]} == {"web", "app"}
        assert client.get("/items/3").json()["item"] == 3
        event = client.post("/events", json={"events": [{"user": "u1", "item": 3}]})
        assert event.json()["kept"] == 1
        assert title not in client.get("/docs").text


def test_values_that_json_does_not_have_are_missing() -> None:
    assert shown_values({"a": float("inf"), "b": [float("nan"), 1], "c": True, "d": None}) == {
        "a": None,
        "b": [None, 1],
        "c": True,
        "d": None,
    }


def test_figures_of_a_training_that_are_no_numbers_are_missing(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FittedRun, "validation", property(lambda run: {"hr@10": float("nan")}))
    monkeypatch.setattr(FittedRun, "curve", property(lambda run: [{"epoch": 1, "loss": float("inf")}]))
    with client_of(run_folder) as client:
        answer = client.get("/curve")
        assert "NaN" not in answer.text
        assert "Infinity" not in answer.text
        contracts.CurveAnswer.model_validate(answer.json())
        assert answer.json()["validation"] == {"hr@10": None}
        assert answer.json()["curve"] == [{"epoch": 1, "loss": None}]
        assert client.get("/model").json()["card"]["validation"] == {"hr@10": None}


def test_cards_are_there_while_others_make_room_for_theirs(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more items than are kept: another thread's room is made in the middle of one's own answer."""
    monkeypatch.setattr("gmlfm.serve.catalogue._MOST_CARDS", 10)
    catalogue = Host.load("first", run_folder).served.catalogue
    expected = {number: card for number, card in enumerate(catalogue._made(list(range(40))))}
    made = Catalogue._made
    is_nested = False

    def meanwhile(self: Catalogue, numbers: list[int]) -> list[dict[str, Any]]:
        nonlocal is_nested
        if not is_nested:
            is_nested = True
            assert self.cards(list(range(30, 39))) == [expected[number] for number in range(30, 39)]
            is_nested = False
        return made(self, numbers)

    monkeypatch.setattr(Catalogue, "_made", meanwhile)
    for numbers in ([0, 1, 2, 3, 4], [0, 1, 5, 6, 7, 8, 9, 10], [2, 0, 1, 11, 12, 13]):
        assert catalogue.cards(numbers) == [expected[number] for number in numbers]
    assert len(catalogue._cards) <= 20
