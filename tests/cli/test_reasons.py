from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gmlfm import load_dataset
from gmlfm.cli import main
from gmlfm.data.prepared import PreparedData
from gmlfm.data.sources.bazaar import Market, write_bazaar


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("market")
    write_bazaar(Market(n_users=150, n_purchases=1_500), folder / "m")
    out = str(folder / "run")
    assert main(["train", str(folder / "m"), "--out", out, "--set", "k=8", "--set", "epochs=2", "--threads", "1"]) == 0
    return out


def test_explain(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["recommend", run, "--user", "b0000003", "-n", "2", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    ask = ["explain", run, "--user", "b0000003", "--item", first["item"]]
    assert main([*ask, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["score"] == pytest.approx(first["score"], abs=1e-5)
    assert sum(one["value"] for one in told["terms"]) == pytest.approx(told["score"])
    assert {"kind", "fields", "attributes", "value"} <= set(told["terms"][0])
    grouped = {tuple(one["fields"]): one["value"] for one in told["by_fields"]}
    assert sum(grouped.values()) == pytest.approx(told["score"])
    assert grouped[()] == pytest.approx(next(one["value"] for one in told["terms"] if one["kind"] == "global"))
    assert main([*ask, "--against", second["item"], "--json"]) == 0
    against = json.loads(capsys.readouterr().out)
    assert against["by_fields"] == told["by_fields"]
    assert sum(one["value"] for one in against["against"]) == pytest.approx(first["score"] - second["score"], abs=1e-5)
    assert main([*ask, "--against", second["item"], "--picture", str(tmp_path / "why.svg")]) == 0
    shown = capsys.readouterr().out
    assert "against" in shown
    assert "weight" in shown
    ElementTree.fromstring((tmp_path / "why.svg").read_text())
    assert main([*ask, "--against", "mean"]) == 0
    assert "the catalogue's mean" in capsys.readouterr().out
    assert main(["explain", run, "--user", "b0000003", "--item", "nothing"]) == 2
    assert "is not in the catalogue" in capsys.readouterr().err


def test_attributes(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["attributes", run, "--retrain", "--json", "--picture", str(tmp_path / "worth.svg")]) == 0
    told = json.loads(capsys.readouterr().out)
    fields = {one["field"] for one in told["fields"]}
    data = load_dataset(Path(run).parent / "m")
    assert fields == {one.name for part in ("user", "item") for one in data.schema.fields_of(part)}  # type: ignore[arg-type]
    assert all(one["without"] is not None for one in told["fields"])
    assert told["pairs"][0]["spread"] >= told["pairs"][-1]["spread"]
    assert main(["attributes", run]) == 0
    assert "NDCG@10 lost on validation" in capsys.readouterr().out


def test_a_run_of_a_prepared_folder_says_how_to_retrain(
    small_prepared: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared, out = str(small_prepared.folder), str(tmp_path / "run")
    assert main(["train", prepared, "--out", out, "--set", "k=4", "--set", "epochs=1", "--threads", "1"]) == 0
    assert main(["attributes", out, "--json"]) == 0
    capsys.readouterr()
    assert main(["attributes", out, "--retrain"]) == 2
    told = capsys.readouterr().err
    assert "leave --retrain out, or train on the tables themselves (gmlfm train DATA --out RUN)" in " ".join(told.split())
    assert "Traceback" not in told


def test_bench_topn(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    market = str(Path(run).parent / "m")
    assert main(["bench", "topn", market, "--k", "8", "--threads", "1", "--rounds", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["same_items"] is True
    assert told["ratio"] == pytest.approx(told["baseline_seconds"] / told["seconds"])
    assert main(["bench", "topn", market, "--model", "nfm", "--k", "8"]) == 2
    assert "nothing to compare" in capsys.readouterr().err
