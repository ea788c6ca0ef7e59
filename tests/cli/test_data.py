from __future__ import annotations

import json
from pathlib import Path

import pytest

from gmlfm.cli import main

TABLES = (
    '[interactions]\npath = "orders.csv"\nuser = "customer"\nitem = "product"\n[items]\npath = "products.csv"\nid = "product"\n'
)


def test_describe(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), str(shop / "products.csv")]) == 0
    capsys.readouterr()
    assert main(["data", "describe", str(shop)]) == 0
    shown = capsys.readouterr().out
    assert "The long tail" in shown
    assert "Split random" in shown
    assert "note no time is declared, so the rows are split at random; set [interactions] time" in shown
    assert main(["data", "describe", str(shop), "--split", "leave-one-out"]) == 0
    shown = capsys.readouterr().out
    assert "Split leave-one-out" in shown
    assert "note no time is declared: the order of the file decides which row is the latest." in shown
    assert main(["data", "describe", str(shop), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [summary[key] for key in ("users", "items", "interactions", "attributes", "catalogue")] == [6, 9, 18, 17, 10]


def test_describe_shows_a_split_from_files(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "dataset.toml").write_text(TABLES)
    (shop / "test.tsv").write_text("customer\tproduct\n0\tp0\n1\tp1\n")
    command = ["data", "describe", str(shop), "--split", "files", "--split-file", f"test={shop / 'test.tsv'}", "--json"]
    assert main(command) == 0
    split = json.loads(capsys.readouterr().out)["split"]
    assert (split["name"], split["train"]["rows"], split["validation"]["rows"], split["test"]["rows"]) == ("files", 16, 0, 2)
    (shop / "test.tsv").write_text("customer\tproduct\n0\tp0\n0\tp1\n")
    assert main(command) == 2
    assert "test.tsv line 3: user '0' and item 'p1' are no interaction of the data" in capsys.readouterr().err


def test_bad_data_names_file_column_and_row(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "products.csv").write_text("product,price\np1,3\np2,cheap\n")
    (shop / "dataset.toml").write_text(TABLES + 'fields = { price = "number" }\n')
    assert main(["data", "describe", str(shop)]) == 2
    message = f"{shop / 'products.csv'} line 3: column 'price' holds 'cheap' where a number was expected"
    assert message in capsys.readouterr().err
    (shop / "dataset.toml").write_text(TABLES + 'fields = { prise = "number" }\n')
    assert main(["data", "describe", str(shop)]) == 2
    assert "products.csv has no column 'prise', which [items] fields names; did you mean 'price'?" in capsys.readouterr().err
    (shop / "products.csv").write_text("product,price\np1,3\np1,4\n")
    (shop / "dataset.toml").write_text(TABLES)
    assert main(["data", "describe", str(shop)]) == 2
    assert "line 3: column 'product' holds 'p1' again (first at" in capsys.readouterr().err


def test_describe_warns_of_dates_that_could_be_read_in_two_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"u{n % 3},p{n % 5},0{1 + n % 9}/0{1 + n // 9}/2024" for n in range(30)]
    (tmp_path / "e.csv").write_text("u,i,t\n" + "\n".join(rows))
    toml = '[interactions]\npath = "e.csv"\nuser = "u"\nitem = "i"\ntime = "t"\n'
    (tmp_path / "dataset.toml").write_text(toml)
    assert main(["data", "describe", str(tmp_path), "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any('set [interactions] time_format = "%d/%m/%Y" where the day comes first' in warning for warning in warnings)
    (tmp_path / "dataset.toml").write_text(toml + 'time_format = "%d/%m/%Y"\n')
    assert main(["data", "describe", str(tmp_path), "--json"]) == 0
    assert not any("time_format" in warning for warning in json.loads(capsys.readouterr().out)["warnings"])


def test_infinite_numbers_and_where_have_their_sentences(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "products.csv").write_text("product,price\np1,3\np2,inf\n")
    (shop / "dataset.toml").write_text(TABLES + 'fields = { price = "number" }\n')
    assert main(["data", "describe", str(shop)]) == 2
    assert f"{shop / 'products.csv'} line 3: the column 'price' is infinite" in capsys.readouterr().err
    for where, message in (
        ("product = 'none'", "orders.csv: no row fulfils where = "),
        ("prodct = 'p1'", "orders.csv has no column 'prodct', which where names; did you mean 'product'?"),
        ("product =", "expects a number or a text in quotes"),
    ):
        (shop / "dataset.toml").write_text(TABLES.replace("[items]", f'where = "{where}"\n[items]'))
        assert main(["data", "describe", str(shop)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error


def test_strict_refuses_what_is_not_listed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "products.csv").write_text("product,colour\np0,red\n")
    assert main(["init", str(shop / "orders.csv"), str(shop / "products.csv")]) == 0
    assert main(["data", "describe", str(shop)]) == 0
    assert "have no row in the items table" in capsys.readouterr().out
    assert main(["data", "describe", str(shop), "--strict"]) == 2
    assert "orders.csv line 3: 8 items" in capsys.readouterr().err


def test_the_list_shows_datasets_of_any_name(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), "--json"]) == 0
    capsys.readouterr()
    assert main(["data", "list", "--data-root", str(shop.parent), "--json"]) == 0
    assert shop.name in [row["name"] for row in json.loads(capsys.readouterr().out)]


def test_a_description_from_an_editor_that_marks_utf_8(shop: Path) -> None:
    toml = '[interactions]\npath = "orders.csv"\nuser = "customer"\nitem = "product"\n'
    (shop / "dataset.toml").write_text("\ufeff" + toml, encoding="utf-8")
    assert main(["data", "describe", str(shop)]) == 0


def test_a_description_ends_in_the_next_command(market: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "describe", market, "--split", "random"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Next: gmlfm train {market} --split random --out runs/bazaar-120-1200-0"


def test_the_list_is_readable_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["data", "list"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert len(shown.splitlines()) < 40
    assert main(["data", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert "reviews_Automotive_5.json.gz" in rows["amazon-auto"]["how"]
