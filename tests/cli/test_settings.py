from __future__ import annotations

import json

import pytest

from gmlfm.cli import main
from gmlfm.training.settings import settings_table

KEYS = {"name", "kind", "default", "range", "meaning", "searched", "of"}


def test_what_all_models_share(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    shown = capsys.readouterr().out
    for text in ("Settings of the training", "Settings of the batches", "cold_start_rate", "above 0", "auto", "lr *"):
        assert text in shown
    assert "Settings of the model" not in shown
    assert main(["settings", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == settings_table()


def test_the_settings_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "gml-fm", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert all(set(row) == KEYS for row in rows.values())
    assert all(row["meaning"] for row in rows.values())
    assert (rows["k"]["kind"], rows["k"]["default"], rows["k"]["range"], rows["k"]["of"]) == ("int", 64, "1 to 10,000", "model")
    assert {row["of"] for row in rows.values()} == {"model", "training", "batches", "history"}
    assert main(["settings", "gml-fm"]) == 0
    shown = capsys.readouterr().out
    for text in ("Settings of the model", "factors of each attribute", "1 to 10,000"):
        assert text in shown
    for model, absent in (("ease", "lr"), ("mamo", "batch_size")):
        assert main(["settings", model, "--task", "rating", "--json"]) == 0
        assert absent not in {row["name"] for row in json.loads(capsys.readouterr().out)}


def test_an_unknown_model_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "gml-fn"]) == 2
    printed = capsys.readouterr().err
    assert "did you mean 'gml-fm'" in printed
    assert printed.count("\n") == 1


def test_meanings_have_room_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["settings", "gml-fm"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert all(len(row) <= 80 for row in shown if row.startswith("│"))
    meanings = [row.split("│")[-2] for row in shown if row.startswith("│")]
    assert all(len(meaning) >= 24 for meaning in meanings)
