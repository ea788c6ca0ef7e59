from __future__ import annotations

import json
import re
from pathlib import Path

from fastapi.testclient import TestClient

from gmlfm.serve.metrics import Metrics, as_text, gathered, share_figures

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? [-+0-9.e]+|# (HELP|TYPE) .+')


def test_every_line_is_of_the_format(reader: TestClient) -> None:
    reader.get("/nothing")
    response = reader.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in response.text.splitlines():
        assert LINE.fullmatch(line), line


def test_requests_are_counted_by_pattern_and_never_by_id(client: TestClient, user: str, items: list[str]) -> None:
    for who in (user, "nobody", user):
        client.get(f"/users/{who}")
    client.post("/events", json={"events": [{"user": user, "item": item} for item in items[:3]]})
    client.request("BREW", "/items")
    text = client.get("/metrics").text
    assert 'gmlfm_requests_total{method="GET",route="/users/{user}",status="200"} 2' in text
    assert 'gmlfm_requests_total{method="GET",route="/users/{user}",status="404"} 1' in text
    assert "gmlfm_events_total 3" in text
    assert 'method="other"' in text
    assert user not in text
    assert "gmlfm_run_info{" in text


def test_a_histogram_counts_what_is_below(tmp_path: Path) -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.003, 0.003, 60.0):
        metrics.answered("/recommend", "POST", 200, seconds)
    lines = as_text(metrics.as_list(), []).splitlines()
    assert 'gmlfm_request_seconds_bucket{route="/recommend",le="0.001"} 1' in lines
    assert 'gmlfm_request_seconds_bucket{route="/recommend",le="0.005"} 3' in lines
    assert 'gmlfm_request_seconds_bucket{route="/recommend",le="10"} 3' in lines
    assert 'gmlfm_request_seconds_bucket{route="/recommend",le="+Inf"} 4' in lines
    assert 'gmlfm_request_seconds_count{route="/recommend"} 4' in lines
    assert 'gmlfm_request_seconds_sum{route="/recommend"} 60.0065' in lines


def test_workers_figures_are_summed(tmp_path: Path) -> None:
    here, elsewhere = Metrics(), Metrics()
    here.refused("full")
    elsewhere.refused("full")
    elsewhere.refused("token")
    share_figures(here.as_list(), tmp_path)
    (tmp_path / "figures-1.json").write_text(json.dumps(elsewhere.as_list()))
    (tmp_path / "figures-2.json").write_text("{half")
    elsewhere.add("gmlfm_in_flight", 5)
    (tmp_path / f"figures-{2**22 + 1}.json").write_text(json.dumps(elsewhere.as_list()))  # a process that is no more
    figures, n_workers = gathered(here.as_list(), tmp_path)
    text = as_text(figures, [("gmlfm_workers", {}, n_workers)])
    assert 'gmlfm_refused_total{reason="full"} 3' in text, "its own file is not counted twice"
    assert 'gmlfm_refused_total{reason="token"} 2' in text
    assert "gmlfm_workers 2" in text
    assert "\ngmlfm_in_flight" not in text, "a dead worker answers nothing"


def test_labels_are_escaped() -> None:
    text = as_text([], [("gmlfm_run_info", {"name": 'a"b\\c\nd'}, 1.0)])
    assert r'gmlfm_run_info{name="a\"b\\c\nd"} 1' in text.splitlines()
