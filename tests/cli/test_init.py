from __future__ import annotations

import json
from pathlib import Path

import pytest

from gmlfm import load_dataset
from gmlfm.cli import main


def test_guesses_are_shown_and_written(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), str(shop / "products.csv")]) == 0
    shown = capsys.readouterr().out
    assert "customer" in shown
    assert "What was guessed, and why" in shown
    assert "# " in (shop / "dataset.toml").read_text()


def test_json_gives_the_path_and_the_reasons(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), "--out", str(shop / "x.toml"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["path"] == str(shop / "x.toml")
    assert written["reasons"]["interactions.user"].startswith("by its name")
    assert all("repeated rows were merged" in warning for warning in written["warnings"])
    assert main(["data", "describe", str(shop / "x.toml"), "--split", "random", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["split"]["name"] == "random"


def test_doubtful_values_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"u{n % 7},p{n % 5},{0 if n % 3 else 1 + n % 5}" for n in range(90)]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "\n".join(rows))
    assert main(["init", str(tmp_path / "ratings.csv")]) == 0
    assert "'rating' is 0 in 60 of 90 rows" in capsys.readouterr().out
    assert main(["init", str(tmp_path / "ratings.csv"), "--force", "--json"]) == 0
    assert "'rating' is 0 in 60 of 90 rows" in json.loads(capsys.readouterr().out)["warnings"][0]


def test_the_caller_may_say_whether_there_is_a_header(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), "--header", "false", "--user", "column_1", "--item", "column_2"]) == 0
    assert "header = false" in (shop / "dataset.toml").read_text()
    assert main(["init", str(shop / "orders.csv"), "--header", "maybe", "--force"]) == 2


def test_a_description_is_replaced_by_force_only(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["init", str(shop / "orders.csv")]
    assert main(command) == 0
    assert main(command) == 2
    assert "exists already; it was left as it is" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0


def test_a_log_of_events_is_ready_to_train_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ("view", "purchase", "refund")
    rows = [f"v{n % 7},i{n % 11},{kinds[n % 3]},{1_600_000_000 + n}" for n in range(90)]
    (tmp_path / "log.csv").write_text("visitor_id,item_id,event_type,timestamp\n" + "\n".join(rows) + "\n")
    assert main(["init", str(tmp_path / "log.csv"), "--out", str(tmp_path / "dataset.toml")]) == 0
    output = capsys.readouterr()
    assert "kinds of events" in output.out + output.err
    text = (tmp_path / "dataset.toml").read_text()
    assert 'targets = ["purchase"]' in text
    assert 'history_events = ["purchase", "view"]     # without what takes back: refund' in text
    data = load_dataset(tmp_path)
    assert (data.n_interactions, data.history_rows.height) == (30, 30)
