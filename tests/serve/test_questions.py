"""Recommendations, scores, reasons and neighbours over HTTP say what the Recommender says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gmlfm import Recommender
from gmlfm.serve import contracts


@pytest.fixture(scope="module")
def recommender(run_folder: Path) -> Recommender:
    return Recommender.load(run_folder)


def asked(client: TestClient, path: str, body: dict[str, Any], status: int = 200) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_recommends_what_the_recommender_does(reader: TestClient, recommender: Recommender, user: str) -> None:
    answer = asked(reader, "/recommend", {"user": user, "n": 5})
    table = recommender.recommend([user], n=5)
    assert [item["item"] for item in answer["items"]] == table["item"].to_list()
    assert [item["score"] for item in answer["items"]] == table["score"].to_list()
    assert [item["title"] for item in answer["items"]] == table["title"].to_list()
    assert answer["known"] is True
    contracts.RecommendAnswer.model_validate(answer)


def test_an_item_has_its_attributes(reader: TestClient, recommender: Recommender, user: str) -> None:
    item = asked(reader, "/recommend", {"user": user, "n": 1})["items"][0]
    fields = recommender.fitted.data.items.fields
    number = int(recommender.fitted.encoder.item_numbers([item["item"]])[0])
    assert item["attributes"] == fields.row(number, named=True)


def test_every_answer_is_stamped_with_its_run(
    reader: TestClient, recommender: Recommender, user: str, items: list[str]
) -> None:
    about = recommender.about
    expected = {"name": "first", "generation": about["generation"], "check": about["check"][:16]}
    for path, body in (
        ("/recommend", {"user": user}),
        ("/score", {"user": user, "items": items}),
        ("/explain", {"user": user, "item": items[0]}),
        ("/similar", {"item": items[0]}),
        ("/recommend/batch", {"requests": [{"user": user}]}),
    ):
        assert asked(reader, path, body)["run"] == expected
    for path in ("/items", "/users", "/schema", "/model", "/curve", f"/items/{items[0]}", f"/users/{user}"):
        assert reader.get(path).json()["run"] == expected


def test_filter_and_caps_narrow(reader: TestClient, user: str) -> None:
    answer = asked(reader, "/recommend", {"user": user, "n": 6, "filter": "genre = 'Theatre'", "caps": {"category": 2}})
    categories = [item["attributes"]["category"] for item in answer["items"]]
    assert {item["attributes"]["genre"] for item in answer["items"]} == {"Theatre"}
    assert len(categories) > 2
    assert max(categories.count(category) for category in categories) == 2


def test_somebody_new_by_attributes_and_history(reader: TestClient, recommender: Recommender, items: list[str]) -> None:
    body = {"attributes": {"age": "20-29"}, "history": items[:2], "n": 4}
    answer = asked(reader, "/recommend", body)
    table = recommender.recommend_for({"age": "20-29"}, items[:2], 4)
    assert [item["item"] for item in answer["items"]] == table["item"].to_list()
    assert answer["known"] is None
    assert not {item["item"] for item in answer["items"]} & set(items[:2])


def test_who_is_unknown_gets_what_is_popular(reader: TestClient) -> None:
    answer = asked(reader, "/recommend", {"user": "nobody of that name", "n": 2})
    assert answer["known"] is False
    assert len(answer["items"]) == 2


def test_what_counts_as_unknown_is_noted(reader: TestClient) -> None:
    answer = asked(reader, "/recommend", {"attributes": {"age": "a thousand"}, "history": ["no such item"], "n": 1})
    assert any("a thousand" in note for note in answer["notes"])
    assert any("no such item" in note for note in answer["notes"])
    assert asked(reader, "/recommend", {"attributes": {}, "n": 1})["notes"] == []


def test_because_names_an_earlier_item(reader: TestClient, recommender: Recommender, user: str) -> None:
    answer = asked(reader, "/recommend", {"user": user, "n": 3, "because": True})
    table = recommender.recommend([user], n=3, because=True)
    assert [item["because"] for item in answer["items"]] == table["because"].to_list()
    assert any(item["because"] for item in answer["items"])


def test_scores_come_in_the_order_asked(reader: TestClient, recommender: Recommender, user: str, items: list[str]) -> None:
    asked_for = [items[3], items[0], items[3]]
    answer = asked(reader, "/score", {"user": user, "items": asked_for})
    expected = recommender.predict([(user, item) for item in asked_for])["score"].to_list()
    assert [score["item"] for score in answer["scores"]] == asked_for
    assert [score["score"] for score in answer["scores"]] == expected


def test_a_newcomers_scores_are_those_of_the_recommendation(reader: TestClient, items: list[str]) -> None:
    who = {"attributes": {"region": "Osaka"}, "history": items[:1]}
    best = asked(reader, "/recommend", {**who, "n": 3})["items"]
    scores = asked(reader, "/score", {**who, "items": [item["item"] for item in best]})["scores"]
    assert [score["score"] for score in scores] == pytest.approx([item["score"] for item in best], abs=1e-4)


@pytest.mark.parametrize("new", [False, True])
def test_reasons_sum_to_the_score(reader: TestClient, user: str, items: list[str], new: bool) -> None:
    who: dict[str, Any] = {"attributes": {"age": "20-29"}, "history": items[1:3]} if new else {"user": user}
    answer = asked(reader, "/explain", {**who, "item": items[0], "most": 3})
    assert sum(part["value"] for part in answer["parts"]) == pytest.approx(answer["score"], abs=1e-6)
    score = asked(reader, "/score", {**who, "items": [items[0]]})["scores"][0]["score"]
    assert answer["score"] == pytest.approx(score, abs=1e-4)
    earlier = [part for part in answer["parts"] if part["kind"] == "earlier"]
    assert earlier
    assert all(part["label"].startswith("after ") and part["item"] and part["roles"] for part in earlier)
    contracts.ExplainAnswer.model_validate(answer)


def test_neighbours_and_a_filter_over_them(reader: TestClient, recommender: Recommender, items: list[str]) -> None:
    answer = asked(reader, "/similar", {"item": items[0], "n": 3})
    assert [item["item"] for item in answer["items"]] == recommender.similar_items(items[0], 3)["item"].to_list()
    narrowed = asked(reader, "/similar", {"item": items[0], "n": 3, "filter": "genre = 'Concert'"})["items"]
    assert [item["attributes"]["genre"] for item in narrowed] == ["Concert"] * 3


@pytest.mark.parametrize("path", ["/recommend", "/score", "/explain"])
def test_a_batch_answers_as_each_alone(reader: TestClient, user: str, items: list[str], path: str) -> None:
    more: dict[str, Any] = {"/recommend": {"n": 2}, "/score": {"items": items[:2]}, "/explain": {"item": items[0]}}[path]
    bodies = [{"user": user, **more}, {"attributes": {"age": "30-39"}, **more}]
    answers = asked(reader, f"{path}/batch", {"requests": bodies})["answers"]
    for body, answer in zip(bodies, answers, strict=True):
        alone = asked(reader, path, body)
        assert {name: alone[name] for name in answer} == answer


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/recommend", {"user": "u", "n": 0}, "n is 0; expected a whole number of 1 to 1,000."),
        ("/recommend", {"user": "u", "n": -1}, "n is -1"),
        ("/recommend", {"user": "u", "n": 10**9}, "n is 1000000000"),
        ("/recommend", {"user": "u", "n": 10**400}, "n is 1000"),
        ("/recommend/batch", {"requests": [{"user": "u", "n": 10**9}]}, "n of all requests together is 1000000000"),
        ("/similar", {"item": "no such item", "n": 10**9}, "n is 1000000000"),
        ("/score", {"user": "u", "items": ["no such item"] * 1_001}, "the number of items is 1001"),
        ("/recommend", {"user": "u", "caps": {"genre": 0}}, "at_most of 'genre' is 0"),
        ("/recommend", {"user": "u", "filter": "(" * 1_900}, "the condition"),
        ("/recommend", {"user": "u", "available": ["no such item"]}, "no item is left"),
        ("/recommend", {"attributes": {"age": ["20-29"]}}, "the user field 'age' is a category"),
        ("/recommend", {}, "say for whom"),
        ("/recommend", {"user": "u", "attributes": {}}, "in one way"),
        ("/recommend", {"attributes": {"colour": "red"}}, "no user field 'colour'"),
        ("/recommend", {"attributes": {}, "seen": True}, "seen goes with user"),
        ("/recommend", {"user": "u", "filter": "colour = 'red'"}, "colour"),
        ("/recommend", {"user": "u", "filter": "price <"}, "price"),
        ("/recommend", {"user": "u", "caps": {"colour": 1}}, "colour"),
        ("/recommend", {"user": "u", "context": {"channel": "app"}}, "no context"),
        ("/score", {"user": "u", "items": ["no such item"]}, "'no such item' is not in the catalogue"),
        ("/score", {"attributes": {}, "items": ["no such item"]}, "'no such item' is not in the catalogue"),
        ("/explain", {"user": "u", "item": "no such item"}, "'no such item' is not in the catalogue"),
        ("/similar", {"item": "no such item"}, "'no such item' is not in the catalogue"),
        ("/similar", {"item": "no such item", "n": 0}, "n is 0"),
        ("/recommend?run=second", {"user": "u"}, "no run 'second' is served here; known: first."),
    ],
)
def test_what_cannot_be_answered_is_told_in_a_sentence(reader: TestClient, path: str, body: dict[str, Any], said: str) -> None:
    response = reader.post(path, json=body)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert said in problem["detail"]
    assert (problem["status"], problem["title"], problem["type"]) == (400, "Bad Request", "about:blank")


@pytest.mark.parametrize(
    "body",
    [
        {"user": ["u"]},
        {"user": True},
        {"user": 1.5},
        {"user": "u", "n": "10"},
        {"user": "u", "n": 2.0},
        {"user": "u", "n": None},
        {"user": "u", "because": "yes"},
        {"user": "u", "nn": 1},
        {"user": 2**70},
        {"attributes": {"age": {"deep": {}}}},
        {"attributes": [1]},
        [],
        None,
    ],
)
def test_wrong_types_are_told_in_a_sentence(reader: TestClient, body: Any) -> None:
    response = reader.post("/recommend", json=body)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"].endswith(".")


def test_a_wrong_value_is_not_quoted(reader: TestClient) -> None:
    assert "secret" not in reader.post("/recommend", json={"user": {"name": "secret"}}).text


def test_two_runs_are_told_apart(run_folder: Path, other_folder: Path, user: str) -> None:
    from gmlfm.serve import ServeOptions, create_app

    with TestClient(create_app([run_folder, other_folder], ServeOptions(log="none", hosts=()))) as client:
        names = [run["name"] for run in client.get("/runs").json()["runs"]]
        assert names == ["first", "other"]
        answers = [asked(client, f"/recommend?run={name}", {"user": user, "n": 3}) for name in names]
        assert [answer["run"]["name"] for answer in answers] == names
        assert answers[0]["items"] != answers[1]["items"]
        assert asked(client, "/recommend", {"user": user, "n": 3}) == answers[0]
