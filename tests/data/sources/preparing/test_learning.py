from __future__ import annotations

from pathlib import Path

import polars as pl

from gmlfm import Encoder, Schema, load_dataset, make_split
from gmlfm.data.sources.preparing import prepare


def test_ids_below_the_count_that_is_asked_for_have_no_row(tmp_path: Path) -> None:
    """min_count may name an id by its side and name."""
    pl.DataFrame({"u": [n % 7 for n in range(60)], "i": [n * n % 23 for n in range(60)], "t": range(60)}).write_csv(
        tmp_path / "e.csv"
    )
    (tmp_path / "dataset.toml").write_text(
        '[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\ntime = "t"\n[encoding]\nmin_count = { "item.item" = 4 }\n'
    )
    prepared = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out", rows_per_bucket=20)
    data = load_dataset(tmp_path)
    encoder = Encoder.fit(data, make_split(data).train)
    sizes = [[(field.name, field.n_values) for field in fields] for fields in (prepared.info.fields, encoder.fields)]
    assert sizes[0] == sizes[1]
    assert 0 < sizes[0][1][1] < len(data.seen_items)
