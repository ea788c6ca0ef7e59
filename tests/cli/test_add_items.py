from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.cli import main


def test_new_items_can_be_recommended_from_then_on(own_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    side = Recommender.load(own_run).fitted.data.items
    table = side.fields.head(2).insert_column(0, side.ids.head(2).str.replace("t", "new").alias("item"))
    table.drop("brand").write_csv(tmp_path / "new.csv")
    capsys.readouterr()
    assert main(["add-items", own_run, str(tmp_path / "new.csv"), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"run": own_run, "added": 2, "updated": 0}
    assert "note the new items have no column 'brand'; it counts as missing." in printed.err
    ids = table["item"].to_list()
    chosen = Recommender.load(own_run).recommend(["b0000003"], 2, available=ids)["item"].to_list()
    assert sorted(chosen) == sorted(ids)
    assert main(["add-items", own_run, str(tmp_path / "new.csv")]) == 2
    printed = capsys.readouterr()
    assert "is in the catalogue already" in printed.err
    assert printed.err.count("\n") == 1
    prices = table.select("item", price=pl.lit(7.0)).vstack(pl.DataFrame({"item": ["another"], "price": [8.0]}))
    prices.with_columns(shelf=pl.lit("A")).write_csv(tmp_path / "prices.csv")
    assert main(["add-items", own_run, str(tmp_path / "prices.csv"), "--update"]) == 0
    shown = capsys.readouterr().out
    assert "1 new item is in the catalogue of" in shown
    assert "2 changed." in shown
    assert "note the new items have a column 'shelf', which the model does not know: it is left out." in shown
    changed = Recommender.load(own_run).fitted.data.items
    assert changed.fields["price"].tail(3).to_list() == [7.0, 7.0, 8.0]
    assert changed.fields["genre"].tail(3).to_list() == [*table["genre"].to_list(), None]
    assert main(["add-items", own_run, "gone.csv"]) == 2
    assert "gone.csv does not exist" in capsys.readouterr().err
