from __future__ import annotations

import json

import pytest

from gmlfm.cli import main

KEYS = {"name", "tasks", "uses_attributes", "newcomers", "about", "settings"}


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)
    assert all(set(model) == KEYS for model in models)
    assert {"gml-fm", "fm", "mamo", "ease"} <= {model["name"] for model in models}
    assert main(["models"]) == 0
    assert "the factorization machine" in capsys.readouterr().out


def test_a_model_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "fm", "--json"]) == 0
    model = json.loads(capsys.readouterr().out)
    assert set(model) == KEYS
    assert (model["name"], model["uses_attributes"]) == ("fm", True)
    assert main(["models", "fm"]) == 0
    shown = capsys.readouterr().out
    assert "what gmlfm tune tries" in shown
    assert "Its equation is in the docstring of gmlfm.models.fm." in shown


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_an_unknown_name_is_one_sentence(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "gml-fn", *more]) == 2
    printed = capsys.readouterr()
    assert "model is 'gml-fn'; did you mean 'gml-fm'?" in printed.err
    assert printed.err.count("\n") == 1


def test_the_list_is_readable_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert len(shown.splitlines()) < 50  # more, and what a model is stands in a column of a few letters
    assert "translation-based" in shown  # no word is cut
    assert "shrunk cosine (topn alone)" in shown
