"""GET /map and /map/place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from gmlfm import Recommender
from gmlfm.runs.layout import ITEM_MAP
from gmlfm.serve import ServeOptions, create_app, mapping
from gmlfm.serve.mapping import MapDrawing

_ASKS = 200  # each waits a moment for the drawing


def asked(client: TestClient, address: str) -> dict[str, Any]:
    """The answer, once the map is drawn."""
    for _ in range(_ASKS):
        answer = client.get(address)
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        if content["is_drawn"]:
            return content
    raise AssertionError("the map was not drawn")


def test_a_sample_is_bounded_and_coloured_by_a_field(reader: TestClient) -> None:
    answer = asked(reader, "/map?n=50&color=genre")
    assert len(answer["points"]) == 50
    assert answer["n_items"] > 50
    assert answer["field"]["kind"] == "category"
    colours = [point["color"] for point in answer["points"]]
    assert set(colours) == set(answer["field"]["values"])
    counts = [colours.count(value) for value in answer["field"]["values"]]
    assert counts == sorted(counts, reverse=True)
    assert all(-1 <= point["x"] <= 1 and -1 <= point["y"] <= 1 for point in answer["points"])
    assert answer["run"]["name"] == "first"
    assert asked(reader, "/map?n=50&color=genre") == answer


def test_numbers_stay_numbers(reader: TestClient) -> None:
    answer = asked(reader, "/map?n=5&color=price")
    assert answer["field"] == {"name": "price", "kind": "number", "values": []}
    assert all(isinstance(point["color"], float) for point in answer["points"])


def test_asked_items_are_among_the_points_and_stand_where_they_are_placed(reader: TestClient, items: list[str]) -> None:
    shown = {point["item"]: point for point in asked(reader, f"/map?n=1&items={items[0]},{items[1]}")["points"]}
    assert {items[0], items[1]} <= set(shown)
    placed = asked(reader, f"/map/place?items={items[1]}&items={items[0]}")["points"]
    assert [point["item"] for point in placed] == [items[1], items[0]]
    assert all((point["x"], point["y"]) == (shown[point["item"]]["x"], shown[point["item"]]["y"]) for point in placed)


@pytest.mark.parametrize(
    ("address", "status", "sentence"),
    [
        ("/map?color=genres", 400, "the data have no item field 'genres'; did you mean 'genre'?"),
        ("/map?color=age", 400, "the data have no item field 'age'"),
        ("/map?n=0", 422, "n: "),
        ("/map?n=1000000000", 422, "n: "),
        ("/map/place?items=nothing-of-that-name", 400, "the item 'nothing-of-that-name' is not in the catalogue"),
        (f"/map/place?items={','.join(map(str, range(201)))}", 400, "201 items are asked for; expected at most 200."),
        ("/map?run=another", 400, "no run 'another' is served here"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(reader: TestClient, address: str, status: int, sentence: str) -> None:
    answer = reader.get(address)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert sentence in answer.json()["detail"]


def test_it_is_kept_beside_the_run(client: TestClient, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = asked(client, "/map?n=20")
    assert (own_folder / ITEM_MAP).is_file()
    monkeypatch.setattr("gmlfm.recommender.item_map.draw", lambda positions: pytest.fail("it is drawn again"))
    with TestClient(create_app(own_folder), "http://127.0.0.1") as again:
        assert asked(again, "/map?n=20") == first


def test_forgetting_a_user_keeps_the_map(client: TestClient, user: str, own_folder: Path) -> None:
    first = asked(client, "/map?n=20")
    written = (own_folder / ITEM_MAP).stat().st_mtime_ns
    assert client.delete(f"/users/{user}").status_code == 200
    after = asked(client, "/map?n=20")
    assert after["points"] == first["points"]
    assert after["run"] != first["run"]
    assert (own_folder / ITEM_MAP).stat().st_mtime_ns == written


def test_while_it_is_drawn_the_answer_says_so(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MapDrawing, "result", lambda drawing: None)
    with TestClient(create_app(own_folder), "http://127.0.0.1") as client:
        assert client.get("/map?n=5").json()["is_drawn"] is False
        assert client.get("/map/place?items=").json() == client.get("/map/place").json()


def test_a_model_without_a_metric_has_no_map(small_market: Path) -> None:
    from gmlfm import load_dataset

    popular = Recommender("popularity").fit(load_dataset(str(small_market)))
    with TestClient(create_app(popular), "http://127.0.0.1") as client:
        answer = next(answer for _ in range(_ASKS) if (answer := client.get("/map")).status_code != 200)
        assert answer.status_code == 400
        assert "a map is not available for 'popularity'" in answer.json()["detail"]


def test_sets_are_coloured_by_their_first_member() -> None:
    points = [{"color": ["x", "y"]}, {"color": ["x"]}, {"color": []}, {"color": None}, {"color": ["y"]}]
    assert mapping._values(points, "set") == ["x", "y"]


def test_a_map_that_cannot_be_drawn_tells_nothing_of_why(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_folder / ITEM_MAP).unlink(missing_ok=True)

    def fail(positions: Any) -> Any:
        raise RuntimeError(f"a secret of {own_folder}")

    monkeypatch.setattr("gmlfm.recommender.item_map.draw", fail)
    with TestClient(create_app(own_folder, ServeOptions(log="errors")), "http://127.0.0.1") as client:
        for _ in range(3):
            answer = next(answer for _ in range(_ASKS) if (answer := client.get("/map")).status_code != 200)
            assert answer.status_code == 500
            assert "its log says where" in answer.json()["detail"]
            assert "secret" not in answer.text
    failures = [json.loads(line) for line in capsys.readouterr().err.splitlines() if '"failure"' in line]
    assert {failure["error"] for failure in failures} == {"RuntimeError"}
    assert all("test_mapping.py" in failure["where"][-1] for failure in failures), "where it failed, not who asked"
