from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gmlfm.cli import main


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    rows = [f"{n % 6},p{n % 9},{n}" for n in range(90)]
    (tmp_path / "orders.csv").write_text("customer,product,when\n" + "\n".join(rows) + "\n")
    (tmp_path / "products.csv").write_text(
        "product,colour\n" + "\n".join(f"p{n},{'red' if n % 2 else 'blue'}" for n in range(10)) + "\n"
    )
    return tmp_path


def test_init_then_describe(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), str(shop / "products.csv")]) == 0
    shown = capsys.readouterr().out
    assert "customer" in shown
    assert "What was guessed, and why" in shown
    assert "# " in (shop / "dataset.toml").read_text()
    assert main(["data", "describe", str(shop)]) == 0
    shown = capsys.readouterr().out
    assert "The long tail" in shown
    assert "leave-one-out" in shown
    assert main(["data", "describe", str(shop), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [summary[key] for key in ("users", "items", "interactions", "attributes", "catalogue")] == [6, 9, 18, 17, 10]


def test_init_tells_machines_what_it_did(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), "--out", str(shop / "x.toml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == str(shop / "x.toml")
    assert told["reasons"]["interactions.user"].startswith("by its name")
    assert main(["data", "describe", str(shop / "x.toml"), "--split", "random", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["split"]["name"] == "random"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "describe", "nowhere"], "'nowhere' is neither a folder, a .toml file nor a known dataset"),
        (["data", "describ", "x"], "unknown 'describ'; did you mean 'describe'?"),
        (["data", "describe", "x", "--splt", "random"], "unknown option '--splt'; did you mean '--split'?"),
        (["data", "describe", "x", "--split", "randm"], "unknown 'randm'; did you mean 'random'?"),
        (["data", "describe"], "the following arguments are required: DATA"),
        (["init", "gone.csv"], "gone.csv does not exist"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_failure_is_told_to_machines_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "describe", "nowhere", "--json"]) == 2
    assert "nowhere" in json.loads(capsys.readouterr().out)["error"]


def test_debug_shows_the_traceback() -> None:
    from gmlfm.errors import DataError

    with pytest.raises(DataError):
        main(["data", "describe", "nowhere", "--debug"])


def test_bad_data_names_file_column_and_line(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "products.csv").write_text("product,price\np1,3\np2,cheap\n")
    toml = '[interactions]\npath = "orders.csv"\nuser = "customer"\nitem = "product"\n[items]\npath = "products.csv"\nid = "product"\n'
    (shop / "dataset.toml").write_text(toml + 'fields = { price = "number" }\n')
    assert main(["data", "describe", str(shop)]) == 2
    assert (
        f"{shop / 'products.csv'} line 3: column 'price' holds 'cheap' where a number was expected" in capsys.readouterr().err
    )
    (shop / "dataset.toml").write_text(toml + 'fields = { prise = "number" }\n')
    assert main(["data", "describe", str(shop)]) == 2
    assert "products.csv has no column 'prise', which [items] fields names; did you mean 'price'?" in capsys.readouterr().err
    (shop / "products.csv").write_text("product,price\np1,3\np1,4\n")
    (shop / "dataset.toml").write_text(toml)
    assert main(["data", "describe", str(shop)]) == 2
    assert "line 3: column 'product' holds 'p1' again (first at" in capsys.readouterr().err


def test_strict_refuses_what_is_not_listed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "products.csv").write_text("product,colour\np0,red\n")
    assert main(["init", str(shop / "orders.csv"), str(shop / "products.csv")]) == 0
    assert main(["data", "describe", str(shop)]) == 0
    assert "have no row in the items table" in capsys.readouterr().out
    assert main(["data", "describe", str(shop), "--strict"]) == 2
    assert "orders.csv line 3: 8 items" in capsys.readouterr().err


def test_the_installed_command_ends_quietly_when_its_reader_goes_away(shop: Path) -> None:
    subprocess.run([sys.executable, "-m", "gmlfm", "init", str(shop / "orders.csv")], check=True, capture_output=True)
    told = subprocess.run(
        f"{sys.executable} -m gmlfm data describe {shop} | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0
    assert told.stderr == ""


def test_importing_does_not_load_the_command_line() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sys, gmlfm; print([name for name in ('rich', 'torch', 'numba', 'pandas', 'pyarrow') if name in sys.modules])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == "[]"


def test_one_argument_too_many_and_names_too_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "describe", "a", "b"]) == 2
    assert "'b' is one argument too many" in capsys.readouterr().err
    assert main(["data", "describe", "x" * 300]) == 2
    assert "too long" in capsys.readouterr().err


def test_a_terminal_without_our_characters_still_gets_an_answer(shop: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "gmlfm", "init", str(shop / "orders.csv")]
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


def test_the_list_shows_datasets_of_any_name(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(shop / "orders.csv"), "--json"]) == 0
    capsys.readouterr()
    assert main(["data", "list", "--data-root", str(shop.parent), "--json"]) == 0
    assert shop.name in [row["name"] for row in json.loads(capsys.readouterr().out)]


def test_a_description_from_an_editor_that_marks_utf_8(shop: Path) -> None:
    toml = '[interactions]\npath = "orders.csv"\nuser = "customer"\nitem = "product"\n'
    (shop / "dataset.toml").write_text("\ufeff" + toml, encoding="utf-8")
    assert main(["data", "describe", str(shop)]) == 0


@pytest.mark.parametrize("name", ["device=cuda", "task=rating", "model=fm", "preset=paper"])
def test_what_is_an_option_of_its_own_is_no_setting(name: str, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option, value = name.split("=")
    assert main(["train", str(shop), "--out", str(shop / "run"), "--set", name]) == 2
    assert f"{option} is an option of its own; use --{option} {value}." in capsys.readouterr().err
