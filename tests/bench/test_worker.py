"""A contender in a process of its own answers line by line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from gmlfm.bench import worker
from gmlfm.bench.contenders import Task

MakeTask = Callable[..., Task]


def replies(task: Task, requests: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    lines = [json.dumps(message) for message in (task.to_dict(), *requests)]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    worker.main()
    return [json.loads(text) for text in capsys.readouterr().out.splitlines()]


def test_it_reports_itself_and_then_each_round(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gmlfm.bench.roofline.measured", lambda device: {"device": device})
    about, reply, rates = replies(make_task(), [0.0, "rates"], monkeypatch, capsys)
    assert about["rows"] > 0
    assert about["parts"].keys() == {"operations", "bytes"}
    assert reply["instances"] > 0
    assert reply["seconds"] > 0
    assert reply["peak"] > 2**20  # bytes
    assert rates == {"device": "cpu"}


def test_what_cannot_be_measured_is_one_line(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replies(make_task(model="ease"), [0.0], monkeypatch, capsys) == [
        {"error": "'ease' is not trained by steps, so there is nothing to measure."}
    ]
