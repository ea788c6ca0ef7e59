from __future__ import annotations

from pathlib import Path

import polars as pl

from gmlfm import Schema
from gmlfm.data.sources.preparing import prepare


def test_fields_may_have_the_names_of_our_own_columns(tmp_path: Path) -> None:
    items = pl.DataFrame(
        {"sku": [f"p{n}" for n in range(40)], "listed": ["l0", "l1"] * 20, "id": ["a", "b"] * 20, "title": ["x"] * 40}
    )
    items.with_columns(name=pl.lit("N")).write_parquet(tmp_path / "items.parquet")
    pl.DataFrame({"u": [n % 9 for n in range(80)], "i": [f"p{n % 45}" for n in range(80)]}).write_parquet(
        tmp_path / "e.parquet"
    )
    fields = 'fields = { listed = "category", id = "category", title = "category" }'
    (tmp_path / "dataset.toml").write_text(
        '[interactions]\npath = "e.parquet"\nuser = "u"\nitem = "i"\n[items]\npath = "items.parquet"\nid = "sku"\ntitle = "name"\n'
        + fields
    )
    prepared = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out", rows_per_bucket=20)
    assert {field.name: field.n_values for field in prepared.info.fields if field.kind == "category"} == {
        "listed": 2,
        "id": 2,
        "title": 1,
    }
