from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOML = """name = "shop"
[interactions]
path = "rows.csv"
user = "u"
item = "i"
time = "t"
label = "stars"
positive = "stars >= 2"
weight = "n"
context = { device = "category", mood = { kind = "set", separator = "|" } }
read = { tolerate = 3 }
[users]
path = "users.csv"
id = "u"
fields = { city = "category", age = "number" }
[items]
path = "items.jsonl"
id = "i"
fields = { tags = { kind = "set", weighting = "sqrt" }, price = "number" }
title = "name"
[encoding]
min_count = { item = 2, tags = 3 }
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Every feature at once: repeats, unlisted ids, missing cells, negatives, context, rare values, rows without ids."""
    rng = np.random.default_rng(5)
    n = 900
    folder = tmp_path / "shop"
    folder.mkdir()
    moods = ["calm", "calm|busy", "", "late|busy|calm"]
    rows = [
        f"{rng.integers(40)},p{int(rng.integers(60))},{rng.integers(300)},{rng.integers(1, 6)},{rng.integers(1, 4)},"
        f"{['web', 'app', ''][rng.integers(3)]},{moods[rng.integers(4)]}"
        for _ in range(n)
    ]
    rows[17] = ",p3,1,5,1,web,calm"
    (folder / "rows.csv").write_text("u,i,t,stars,n,device,mood\n" + "\n".join(rows) + "\n")
    users = [f"{u},{['Rome', 'Oslo', ''][u % 3]},{20 + u if u % 5 else ''}" for u in range(35)]
    (folder / "users.csv").write_text("u,city,age\n" + "\n".join(users) + "\n")
    items: list[dict[str, Any]] = [
        {"i": f"p{i}", "tags": [f"t{i % 7}", f"t{i % 3}", f"rare{i}"], "price": float(i * i), "name": f"Thing {i}"}
        for i in range(55)
    ]
    items[3].pop("tags")
    items[4]["price"] = None
    (folder / "items.jsonl").write_text("\n".join(json.dumps(item) for item in items))
    (folder / "dataset.toml").write_text(TOML)
    return folder
