"""Seven small runs and hashes of what they learned: did a change of structure change a number?

    python benchmarks/run_hashes.py --out before.json        # in the one clone
    python benchmarks/run_hashes.py --against before.json    # in the other

Every run is trained on one thread, on tables that this script writes, in memory and, where the model reads shards, from a
prepared folder. It calls public names alone, so that it runs in clones of different age.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import load_file

from gmlfm import Recommender, load_dataset
from gmlfm.data.prepared import PreparedData

RUNS: dict[str, dict[str, Any]] = {
    "gml-fm-unit": {"k": 16, "epochs": 4},
    "gml-fm-md": {"k": 16, "epochs": 4},
    "fm": {"history": "none", "k": 16, "epochs": 4},
    "nfm": {"k": 16, "epochs": 3},
    "ngcf": {"k": 16, "epochs": 3, "batch_size": 1024},
    "ease": {},
    "mamo": {"k": 16, "epochs": 2},
}
METRICS = (
    *(f"{name}@10" for name in ("hr", "ndcg", "mrr", "recall", "precision", "map", "coverage", "novelty")),
    "rmse",
    "mae",
)
PREPARED = ("gml-fm-unit", "gml-fm-md", "fm", "nfm", "ngcf", "ease")
SCHEMA = """
name = "hashes"
[interactions]
path = "interactions.csv"
user = "user"
item = "item"
time = "time"
label = "stars"
positive = "stars >= 3"
[users]
path = "users.csv"
id = "user"
fields = { city = "category", age = "number" }
[items]
path = "items.csv"
id = "item"
fields = { genre = "category", price = "number", tags = { kind = "set", separator = "|" } }
"""


def write_tables(folder: Path, n_users: int = 200, n_items: int = 300, n_rows: int = 6_000) -> None:
    """Users of a city like items of a genre; a seeded draw, the same on every machine."""
    rng = np.random.default_rng(7)
    cities, genres = rng.integers(0, 6, n_users), rng.integers(0, 6, n_items)
    users, items = rng.integers(0, n_users, n_rows), rng.integers(0, n_items, n_rows)
    liked = cities[users] == genres[items]
    stars = np.clip(np.where(liked, 4, 2) + rng.integers(-1, 2, n_rows), 1, 5)
    rows = {"user": [f"u{n}" for n in users], "item": [f"i{n}" for n in items], "time": np.arange(n_rows), "stars": stars}
    pl.DataFrame(rows).unique(["user", "item"], keep="first", maintain_order=True).write_csv(folder / "interactions.csv")
    of_users = {
        "user": [f"u{n}" for n in range(n_users)],
        "city": [f"c{n}" for n in cities],
        "age": rng.integers(18, 80, n_users),
    }
    pl.DataFrame(of_users).write_csv(folder / "users.csv")
    tags = ["|".join(f"t{tag}" for tag in sorted(set(rng.integers(0, 12, 3)))) for _ in range(n_items)]
    of_items = {"item": [f"i{n}" for n in range(n_items)], "genre": [f"g{n}" for n in genres]}
    pl.DataFrame({**of_items, "price": rng.lognormal(3, 1, n_items).round(2), "tags": tags}).write_csv(folder / "items.csv")
    (folder / "dataset.toml").write_text(SCHEMA, encoding="utf-8")


def digest(value: Any) -> str:
    return hashlib.sha256(value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def run(model: str, data: Any, folder: Path) -> dict[str, Any]:
    """The weights' hash, tensor after tensor, and every figure of the validation and the test part."""
    task = "rating" if model == "mamo" else "topn"
    recommender = Recommender(model, task, seed=3, threads=1, device="cpu", **RUNS[model]).fit(data, out=folder)
    weights = load_file(next(folder.rglob("weights.safetensors")))
    protocols = ("full", "sampled") if task == "topn" else ("full",)
    figures = {}
    for protocol in protocols:
        metrics = recommender.evaluate(protocol=protocol).metrics
        figures[protocol] = {name: metrics[name] for name in METRICS if name in metrics}
    head = {name: {key: round(value, 6) for key, value in metrics.items()} for name, metrics in figures.items()}
    return {
        "weights": digest("".join(name + digest(weights[name].tobytes()) for name in sorted(weights))),
        "tensors": {name: [list(weights[name].shape), digest(weights[name].tobytes())] for name in sorted(weights)},
        "metrics": digest({name: {key: repr(value) for key, value in metrics.items()} for name, metrics in figures.items()}),
        "figures": head,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file to write")
    parser.add_argument("--against", type=Path, help="a JSON file written before, to compare with")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tables(folder)
        command = [sys.executable, "-m", "gmlfm", "data", "prepare", str(folder), "--out", str(folder / "prepared")]
        subprocess.run(command, check=True, capture_output=True)
        for model in RUNS:
            results[f"{model}, memory"] = run(model, load_dataset(str(folder)), folder / "runs" / model)
            if model in PREPARED:
                out = folder / "runs" / f"{model}-prepared"
                results[f"{model}, prepared"] = run(model, PreparedData(folder / "prepared"), out)
    before = json.loads(options.against.read_text(encoding="utf-8")) if options.against else None
    for name, result in results.items():
        same = "" if before is None else "  same" if _hashes(before[name]) == _hashes(result) else "  DIFFERS"
        print(f"{name:>20}  weights {result['weights']}  metrics {result['metrics']}{same}")
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if before is not None and any(_hashes(before[name]) != _hashes(result) for name, result in results.items()):
        sys.exit(1)


def _hashes(result: dict[str, Any]) -> tuple[str, str]:
    return result["weights"], result["metrics"]


if __name__ == "__main__":
    main()
