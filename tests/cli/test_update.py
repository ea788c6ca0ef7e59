from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.cli import main


def test_a_run_learns_new_rows_of_a_table_and_says_so(own_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Recommender.load(own_run).fitted.data
    spec, items = data.schema.interactions, data.items.ids
    assert spec.time is not None
    columns = {spec.user: [f"new{n}" for n in range(30)], spec.item: items.head(30).to_list(), spec.time: ["2030-01-01"] * 30}
    columns |= {field.name: ["?"] * 30 for field in spec.context}
    pl.DataFrame(columns).write_csv(tmp_path / "today.csv")
    capsys.readouterr()
    command = ["update", own_run, str(tmp_path / "today.csv")]
    assert main([*command, "--json", "--epochs", "2", "--replay", "0.5", "--held-out", "0.2"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert (report["n_rows"], report["n_users"], report["epochs"], report["n_held_out"]) == (30, 30, 2, 6)
    assert report["n_replayed"] == 12 + 3
    assert set(report["before"]) == set(report["after"]) == {"hr@10", "ndcg@10"}
    assert "epoch   2" in printed.err
    assert len(Recommender.load(own_run).fitted.updates) == 1
    assert main(command) == 2
    shown = capsys.readouterr().err
    assert "no row that the run does not have" in shown
    assert shown.count("\n") == 1


def test_all_of_the_data_again_hold_nothing_new(own_run: str, market: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["update", own_run, market, "--json"]) == 2
    assert "no row that the run does not have" in json.loads(capsys.readouterr().out)["error"]


def test_without_data_what_was_observed_is_learned(own_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["update", own_run]) == 2
    assert "nothing was observed since" in capsys.readouterr().err
    (tmp_path / "rows.jsonl").write_text(
        '{"user": "someone", "item": "t000000001"}\n{"user": "someone", "item": "t000000002"}\n'
    )
    assert main(["observe", own_run, str(tmp_path / "rows.jsonl")]) == 0
    capsys.readouterr()
    assert main(["update", own_run]) == 0
    printed = capsys.readouterr().out
    assert "Learned 2 new rows, 1 new user (" in printed
    assert f"Saved in {own_run}." in printed


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--epochs", "-1"], "epochs is -1"),
        (["--lr", "0"], "lr is 0.0; expected a number above 0"),
        (["--device", "abacus"], "device is 'abacus'"),
    ],
)
def test_wrong_options_are_refused(
    extra: list[str], message: str, own_run: str, market: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["update", own_run, market, *extra]) == 2
    assert message in capsys.readouterr().err


def test_data_of_another_schema_and_prepared_folders_are_refused(
    own_run: str, context_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(Path(context_run).parent)
    assert main(["update", own_run, other]) == 2
    shown = capsys.readouterr().err
    assert "give data of the run's schema, or train anew" in shown
    assert shown.count("\n") == 1
    (tmp_path / "prepared.json").write_text("{}")
    assert main(["update", own_run, str(tmp_path)]) == 2
    assert "is a prepared folder; train it anew" in capsys.readouterr().err
    assert main(["update", own_run, "gone.csv"]) == 2
    assert "gone.csv does not exist" in capsys.readouterr().err


def test_help_ends_in_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["update", "--help"])
    assert "gmlfm update runs/demo today.csv --epochs 5" in capsys.readouterr().out
