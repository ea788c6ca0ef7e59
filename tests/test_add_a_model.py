"""docs/add-a-model.md, followed: its model in a file outside the package, its commands one after another."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from gmlfm.data.sources.bazaar import Market, write_bazaar

PAGE = Path(__file__).parent.parent / "docs" / "add-a-model.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's file and a small market beside it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "my_models.py").write_text(code, encoding="utf-8")
    write_bazaar(Market(n_users=120, n_purchases=1_440), folder / "market")
    return folder


def gmlfm(place: Path, command: str) -> str:
    environment = {**os.environ, "COLUMNS": "120"}
    run = subprocess.run(
        [sys.executable, "-m", "gmlfm", *command.split()], cwd=place, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_command_of_the_page_works(place: Path) -> None:
    commands = re.findall(r"^    gmlfm (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["train", "evaluate", "recommend", "explain", "settings", "compare"]
    purchases = pl.read_parquet(place / "market" / "purchases" / "*.parquet")
    buyer, item = purchases["buyer"][0], purchases["item"][0]
    for command in commands:
        on_small_data = (
            command.replace("b0000042", buyer)
            .replace("t000000009", item)
            .replace(" bazaar ", " ./market ")
            .replace("--set epochs=3 ", "--set epochs=40 ")  # of some twenty steps each
            .replace("--seconds 120", "--trials 1 --set epochs=3")
        )
        assert gmlfm(place, on_small_data).strip()
    metrics = json.loads(gmlfm(place, "evaluate runs/near --model my_models:NearFM --protocol sampled --json"))
    assert metrics["hr@10"] > 0.1
    reason = json.loads(gmlfm(place, f"explain runs/near --model my_models:NearFM --user {buyer} --item {item} --json"))
    assert sum(term["value"] for term in reason["terms"]) == pytest.approx(reason["score"], abs=1e-5)


def test_in_python_by_class_instance_and_name(place: Path) -> None:
    code = """
import gmlfm, numpy as np, sys
sys.path.insert(0, '.')
from my_models import NearFM
data = gmlfm.load_dataset('./market')
tables = []
for model, settings in ((NearFM, {'k': 4}), (NearFM(k=4), {}), ('near-fm', {'k': 4})):
    rec = gmlfm.Recommender(model, epochs=1, threads=1, **settings).fit(data)
    tables.append(rec.recommend(data.users.ids[0], 5))
assert tables[0].equals(tables[1]) and tables[0].equals(tables[2])
rec.save('runs/py')
again = gmlfm.Recommender.load('runs/py', model=NearFM)
assert again.recommend(data.users.ids[0], 5).equals(tables[0])
print('same')
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True)
    assert run.stdout.strip().endswith("same"), run.stderr


def test_a_run_of_it_says_how_to_load_it(place: Path) -> None:
    gmlfm(place, "train ./market --model my_models:NearFM --set epochs=1 --out runs/named")
    command = [sys.executable, "-m", "gmlfm", "recommend", "runs/named", "--user", "x"]
    run = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert run.returncode == 2
    assert "give its class: Recommender.load(" in run.stderr
    assert "Traceback" not in run.stderr
