from __future__ import annotations

import json
from typing import Any

import pytest

from gmlfm.cli import main

ROWS: list[dict[str, Any]] = [
    {"name": "k", "kind": "int", "default": 64, "range": "1 or more", "meaning": "factors", "searched": True, "of": "model"},
    {"name": "lr", "kind": "float", "default": 0.01, "range": "above 0", "meaning": "step", "searched": True, "of": "training"},
    {"name": "batch_size", "kind": "int", "default": None, "range": "", "meaning": "rows", "searched": False, "of": "batches"},
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, str]]:
    """What the table was asked for, with a table of three settings in its place."""
    arguments: list[tuple[str | None, str]] = []

    def table(model: str | None, task: str) -> list[dict[str, Any]]:
        arguments.append((model, task))
        return ROWS

    monkeypatch.setattr("gmlfm.training.settings.settings_table", table, raising=False)
    return arguments


def test_every_setting_is_shown(calls: list[tuple[str | None, str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    shown = capsys.readouterr().out
    for text in ("Settings of the model", "Settings of the training", "Settings of the batches", "factors", "above 0", "auto"):
        assert text in shown
    assert main(["settings", "fm", "--task", "rating", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ROWS
    assert calls == [(None, "topn"), ("fm", "rating")]
