from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm.cli import main
from gmlfm.cli.compare import show
from gmlfm.cli.output import console_for
from gmlfm.cli.pictures import PanelPoint, panels_of_lines, to_svg
from gmlfm.tuning import Comparison
from gmlfm.tuning.rows import Row


def test_a_table_and_a_picture_are_written(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", market, "--models", "popularity, item-knn", "--trials", "1", "--seeds", "1", "--threads", "1"]
    out = tmp_path / "study"
    assert main([*command, "--out", str(out), "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert {row["model"] for row in comparison["rows"]} == {"popularity", "item-knn"}
    assert "popularity" in (out / "table.md").read_text()
    assert "<svg" in (out / "table.html").read_text()
    picture = (out / "picture.svg").read_text()
    ElementTree.fromstring(picture)
    assert main([*command, "--out", str(out)]) == 0
    assert "95 % interval" in capsys.readouterr().out
    assert (out / "picture.svg").read_text() == picture


def test_the_tables_are_readable_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, object] = {"cold_start_rate": 0.1, "v_scale": 0.01, "lr": 0.0299, "loss": "softmax"}
    row = Row(
        model="gml-fm-dnn",
        means={"ndcg@10": 0.5, "hr@10": 0.7},
        low=0.49,
        high=0.51,
        seed_spread=0.001,
        against="popularity",
        difference=-0.0262,
        p_value=1e-5,
        validation=0.53,
        trials=20,
        failed=2,
        seconds=6140.0,
        final_seconds=2000.0,
        at_border=("cold_start_rate", "v_scale", "lr"),
        settings=settings,
        fixed={"epochs": 12, "batch_size": 4096},
    )
    rows = tuple(replace(row, model=model) for model in ("gml-fm-dnn", "popularity", "my_package.my_module:MyModel"))
    comparison = Comparison(
        *("bazaar", "topn", "global-time", "full", "ndcg@10", "1 trials a method", 60.0, 3, True, False, rows, {"fm": "no [b]"})
    )
    monkeypatch.setenv("COLUMNS", "80")
    show(comparison, console_for())
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for whole in ("0.4900 to 0.5100", "gml-fm-dnn", "popularity", "-0.0262***", "(popularity)", "4140 + 2000", "(2 failed)"):
        assert whole in shown
    assert "cold_start_rate=0.1," in shown  # no setting is cut
    assert "1 trial a method" in " ".join(shown.split())
    assert "fm could not take part: no [b]" in shown
    assert len(shown.splitlines()) < 50


def test_inputs_are_refused_in_one_sentence(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", market, "--trials", "1", "--seeds", "1", "--out", str(tmp_path / "out")]
    for models, inputs, message in (
        (
            "fm,sasrec",
            "paper",
            "inputs is 'paper', which has no place for sasrec (sequences of earlier rows are all that is read)",
        ),
        ("fm,ncf", "history", "inputs is 'history', which has no place for ncf (what users did before cannot be read)"),
        ("fm,mf", "histori", "did you mean 'history'"),
    ):
        assert main([*command, "--models", models, "--inputs", inputs]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "out").exists()


def test_a_table_of_one_kind_of_inputs(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["compare", market, "--models", "popularity,item-knn", "--inputs", "history", "--trials", "1", "--seeds", "1"]
    assert main([*command, "--out", str(out), "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["inputs"] == "history"
    assert {row["model"]: row["reads_history"] for row in comparison["rows"]} == {"popularity": None, "item-knn": True}
    assert main([*command, "--out", str(out)]) == 0
    assert "inputs history" in " ".join(capsys.readouterr().out.split())
    assert main([*command[:4], "--inputs", "paper", "--trials", "1", "--seeds", "1", "--out", str(out)]) == 2
    assert "inputs: history there, paper here" in " ".join(capsys.readouterr().err.split())


QUICK_SIZES = ["--models", "fm,mf", "--set", "epochs=1", "--threads", "1"]


def test_sizes_are_a_table_a_picture_and_json(market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sizes"
    command = ["compare", market, *QUICK_SIZES, "--sizes", "2,4", "--out", str(out)]
    assert main([*command, "--json"]) == 0
    sizes = json.loads(capsys.readouterr().out)
    assert sizes == json.loads((out / "sizes.json").read_text())
    assert [(point["model"], point["k"]) for point in sizes["points"]] == [("fm", 2), ("fm", 4), ("mf", 2), ("mf", 4)]
    picture = (out / "sizes.svg").read_text()
    ElementTree.fromstring(picture)
    for text in (
        "bytes of the table",
        "bytes of all items",
        "seconds of training",
        ">fm<",
        ">mf<",
        "NDCG@10, validation, full",
    ):
        assert text in picture
    assert main(command) == 0  # nothing is left to do, and the same is written
    shown = capsys.readouterr().out
    assert "VALIDATION" in shown
    assert (out / "sizes.svg").read_text() == picture
    assert (out / "sizes.md").read_text().count("\n| ") == 6  # heading, rule, four points


def test_sizes_are_readable_on_a_narrow_terminal(
    market: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", market, *QUICK_SIZES, "--sizes", "2", "--out", str(tmp_path / "sizes")]) == 0
    shown = capsys.readouterr().out
    tables = [line for line in shown.splitlines() if line.startswith(("│", "┃", "┏", "└"))]
    assert max(map(len, tables)) <= 80
    for heading in ("NDCG@10 full", "HR@10 sampled", "item vectors", "seconds", "best for"):
        assert any(heading in line for line in tables)


def test_options_that_make_no_sense_with_sizes_are_refused(
    market: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sizes"
    command = ["compare", market, *QUICK_SIZES, "--out", str(out), "--sizes", "2,4"]
    for more, message in (
        (["--trials", "3"], "--trials makes no sense with --sizes: nothing is searched; leave it out."),
        (["--seconds", "9"], "--seconds makes no sense with --sizes"),
        (["--protocol", "full"], "--protocol makes no sense with --sizes: both protocols are shown"),
        (["--no-refit"], "--no-refit makes no sense with --sizes"),
        (["--preset", "paper"], "--preset makes no sense with --sizes: it chooses on the test part"),
        (["--task", "rating"], "--sizes compares rankings; leave --task rating out"),
        (["--set", "fm.k=8"], "k is what sizes vary and cannot be fixed"),
        (["--sizes", "2,x"], "--sizes takes whole numbers, such as 8,16,32,64,128; got '2,x'"),
        (["--sizes", "0"], "sizes is 0; expected numbers from 1 to 10,000"),
        (["--models", "fm,ease"], "sizes vary k, which ease has not"),
    ):
        assert main([*command, *more]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert not out.exists()


def test_without_numbers_the_sizes_are_the_usual_ones() -> None:
    from gmlfm.cli.compare_sizes import USUAL
    from gmlfm.tuning import sizes

    assert ",".join(map(str, sizes.USUAL)) == USUAL == "8,16,32,64,128"


def test_a_picture_of_points_that_have_no_item_vectors() -> None:
    points = [PanelPoint(10.0, 0.5, "8", True), PanelPoint(20.0, 0.4, "16", False)]
    svg = to_svg(panels_of_lines({"bytes": {"fm": points, "nfm": []}, "seconds": {"fm": points, "nfm": points}}), "sizes")
    ElementTree.fromstring(svg)
    assert svg.count(">8<") == 3  # where it is marked: nothing is as good for less
    assert ">16<" not in svg
