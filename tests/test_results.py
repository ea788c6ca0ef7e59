"""The figures that the command line and the README print are those of the results that lie in docs/results."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import pytest

from gmlfm.cli.models import _WHICH

ROOT = Path(__file__).parents[1]
RESULTS = [json.loads(line) for line in (ROOT / "docs" / "results" / "history.jsonl").read_text().splitlines()]


def ndcg(data: str, model: str, k: int, protocol: str) -> float:
    """The mean over seeds of trainings with nothing else set, but for the weights that gml-fm had."""
    usual = {f"k={k}"} | ({"weights=1"} if model == "gml-fm" else set())
    by_seed = {}
    for result in RESULTS:
        name, of_model, *settings = result["trial"].split()
        seeds = [setting for setting in settings if setting.startswith("seed=")] or ["seed=0"]
        if (name, of_model) == (data, model) and {s for s in settings if not s.startswith("seed=")} == usual:
            by_seed[seeds[0]] = result[protocol][1]
    return mean(by_seed.values())


@pytest.mark.parametrize(
    ("shown", "data"),
    [("ML-1M", "ml-1m"), ("Office", "amazon-office"), ("Auto", "amazon-auto"), ("Clothing", "amazon-clothing")],
)
def test_which_model_to_take_is_said_with_figures_of_the_results(shown: str, data: str) -> None:
    figures = " ".join(f"{ndcg(data, model, 64, 'full'):.4f}".removeprefix("0") for model in ("gml-fm", "fm"))
    assert f"{shown} {figures}" in _WHICH


@pytest.mark.parametrize(
    ("shown", "data", "sizes"),
    [
        ("MovieLens 1M", "ml-1m", (8, 16, 32, 64)),
        ("Amazon Office", "amazon-office", (8, 16, 32, 64)),
        ("Amazon Auto", "amazon-auto", (8, 16, 32, 64)),
        ("Amazon Clothing", "amazon-clothing", (16, 64)),
    ],
)
def test_the_readmes_table_by_size_is_of_the_results(shown: str, data: str, sizes: tuple[int, ...]) -> None:
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {shown} |"))
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    for cell, k in zip(cells, (8, 16, 32, 64), strict=True):
        if k not in sizes:
            assert cell == ""
            continue
        for figure, model in zip(cell.split(" / "), ("fm", "gml-fm"), strict=True):
            assert float(figure) == pytest.approx(ndcg(data, model, k, "full"), abs=0.00051)
