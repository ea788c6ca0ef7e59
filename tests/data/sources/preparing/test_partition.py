from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gmlfm import Schema
from gmlfm.data.sources.preparing import prepare
from gmlfm.errors import DataError, GmlfmError


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("users.csv", "\n3,", "\n2,", "the id '2' occurs more than once"),
        ("rows.csv", ",web,", ",web,", None),
        (
            "rows.csv",
            "u,i,t,stars,n,device,mood\n",
            "u,i,t,stars,n,device,mood\n1,p1,5,inf,1,web,calm\n",
            "rows.csv line 2: the column 'stars' is infinite",
        ),
        (
            "rows.csv",
            "u,i,t,stars,n,device,mood\n",
            "u,i,t,stars,n,device,mood\n1,p1,-inf,5,1,web,calm\n",
            "rows.csv line 2: the column 't' is infinite",
        ),
        ("users.csv", ",21\n", ",inf\n", "users.csv line 3: the column 'age' is infinite; give a finite number"),
        ("dataset.toml", "tolerate = 3", "tolerate = 0", "rows.csv line 19: 1 row(s) so far have no user or no item"),
        ("dataset.toml", 'time = "t"', 'time = "tt"', "has no column 'tt'"),
        ("dataset.toml", "rows.csv", "gone.csv", "does not exist"),
    ],
)
def test_bad_tables_are_refused(shop: Path, tmp_path: Path, file: str, old: str, new: str, message: str | None) -> None:
    text = (shop / file).read_text()
    assert old in text
    (shop / file).write_text(text.replace(old, new, 1))
    schema = Schema.from_toml(shop / "dataset.toml")
    if message is None:
        assert prepare(schema, shop, tmp_path / "out").info.split == "leave-one-out"
        return
    with pytest.raises(GmlfmError) as caught:
        prepare(schema, shop, tmp_path / "out")
    assert message in str(caught.value)
    assert not (tmp_path / "out" / "prepared.json").exists()


@pytest.mark.parametrize("year", ["2020", "20"])
def test_dates_whose_order_of_day_and_month_is_open_are_refused(tmp_path: Path, year: str) -> None:
    (tmp_path / "e.csv").write_text(f"u,i,t\n1,a,2020-01-01\n1,b,03/04/{year}\n")
    toml = '[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\ntime = "t"\n'
    (tmp_path / "dataset.toml").write_text(toml)
    with pytest.raises(DataError, match=rf"dates such as '03/04/{year}', .* set .interactions. time_format"):
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out")
    (tmp_path / "e.csv").write_text(f"u,i,t\n1,b,03/04/{year}\n")
    (tmp_path / "dataset.toml").write_text(toml + f'time_format = "%d/%m/{"%Y" if year == "2020" else "%y"}"\n')
    (tmp_path / "out2").mkdir()
    assert (
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out2", split="none").info.n_interactions == 1
    )


def test_broken_lines_and_positives_are_counted_over_all_chunks(tmp_path: Path) -> None:
    rows = [f"{n % 9},p{n},{1 if n < 150 else 5}" for n in range(300)]
    rows[7] = "broken"
    (tmp_path / "e.csv").write_text("u,i,stars\n" + "\n".join(rows))
    toml = '[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\npositive = "stars >= 4"\nread = { tolerate = 1 }\n'
    (tmp_path / "dataset.toml").write_text(toml)
    pl.read_csv(tmp_path / "e.csv", ignore_errors=True, truncate_ragged_lines=True).drop_nulls().write_parquet(
        tmp_path / "e.parquet"
    )
    notes = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "out", rows_per_bucket=100).info.notes
    assert "e.csv: 1 broken line(s) left out, the first is line 9 (1 fields instead of 3)." in notes
    (tmp_path / "dataset.toml").write_text(toml.replace("e.csv", "e.parquet"))
    assert (
        prepare(
            Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "two", rows_per_bucket=100
        ).info.n_interactions
        == 299
    )
    (tmp_path / "dataset.toml").write_text(toml.replace(">= 4", ">= 9"))
    with pytest.raises(DataError, match="no row fulfils positive"):
        prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "three")


def test_an_empty_side_is_refused(shop: Path, tmp_path: Path) -> None:
    (shop / "users.csv").write_text("u,city,age\n")
    with pytest.raises(DataError, match=r"users\.csv is empty"):
        prepare(Schema.from_toml(shop / "dataset.toml"), shop, tmp_path / "out")
