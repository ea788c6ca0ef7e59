from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from gmlfm import Recommender, load_dataset
from gmlfm.cli import main
from gmlfm.cli.output import console_for
from gmlfm.cli.run_report import leave_report, next_commands, run_report
from gmlfm.models.base import FitReport
from tests.cli.conftest import QUICK


def _page(recommender: Recommender, folder: Path) -> str:
    run_report(recommender.fitted, ["gmlfm evaluate <run>"]).write(folder / "page.html")
    return (folder / "page.html").read_text()


def test_every_training_leaves_its_page(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", market, "--out", str(out), *QUICK, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["report"] == str(out / "report.html")
    page = (out / "report.html").read_text()
    metrics = "".join(f'<tr><td>{name}</td><td class="n">{value:.4f}</td></tr>' for name, value in result["validation"].items())
    for text in (
        "<h1>gml-fm on bazaar-120-1200-0</h1>",
        "On validation (sampled: each row&#x27;s item is ranked among 99 others); the test part was not looked at.",
        metrics,
        "1 epochs; the weights are those of epoch 1",
        "<td>k</td><td>4</td>",
        "<td>rank</td><td>0</td>",  # a default
        f"<pre>gmlfm evaluate {out}\ngmlfm recommend {out} --user b",
        "<svg",
    ):
        assert text in page, text
    assert "<script" not in page


def test_what_comes_next_can_be_run(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = Recommender.load(run).fitted
    commands = next_commands(fitted, run, "gml-fm")
    assert [command.split()[1] for command in commands] == ["evaluate", "recommend", "attributes"]
    for command in commands:
        assert main([*command.split()[1:], "--json"]) == 0
    assert next_commands(fitted, "my run", "my_module:MyModel")[0] == "gmlfm evaluate 'my run' --model my_module:MyModel"


def test_a_run_of_all_rows_is_not_to_be_evaluated(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", market, "--model", "popularity", "--refit", "all", "--out", str(tmp_path / "run")]) == 0
    assert f"Next: gmlfm recommend {tmp_path / 'run'} --user b" in capsys.readouterr().out


def test_a_model_fitted_at_once_and_a_split_without_validation_have_pages(market: str, tmp_path: Path) -> None:
    data = load_dataset(market)
    assert "curve" not in _page(Recommender("popularity").fit(data), tmp_path)
    page = _page(Recommender("fm", k=2, epochs=1, threads=1).fit(data, "none"), tmp_path)
    assert "The split has no validation rows" in page
    assert "gmlfm evaluate &lt;run&gt;" in page
    published = _page(Recommender("popularity", preset="paper").fit(data), tmp_path)
    assert "On the TEST part, where the epoch was chosen, as published" in published
    assert "not looked at" not in published


def test_a_page_that_cannot_be_written_does_not_cost_the_run(
    market: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr("gmlfm.cli.run_report.run_report", fails)
    out = str(tmp_path / "run")
    assert main(["train", market, "--model", "popularity", "--out", out]) == 0
    shown = capsys.readouterr().out
    assert "note the run is saved, but its report was not written (RuntimeError: no fonts)." in shown
    assert f"Saved in {out}. Next:" in shown
    assert not (tmp_path / "run" / "report.html").exists()
    assert Recommender.load(out).is_fitted


def test_a_divergence_is_on_the_page(run: str, tmp_path: Path) -> None:
    fitted = Recommender.load(run).fitted
    report = FitReport(1, fitted.validation, "sampled", fitted.curve, "the weights of epoch 1 are kept: <why>")
    path = leave_report(replace(fitted, report=report), tmp_path, ["x"], console_for(file=io.StringIO()))
    assert path == tmp_path / "report.html"
    assert "the weights of epoch 1 are kept: &lt;why&gt;" in path.read_text()
