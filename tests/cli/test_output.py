from __future__ import annotations

import io
import json
import warnings
from pathlib import Path

import polars as pl
import pytest
from rich.table import Table

from gmlfm.cli import main
from gmlfm.cli.output import console_for, field_names, print_json, show_rows, verbatim, warnings_as_notes

HOSTILE = "\x1b]0;owned\x07\x1b[2Jx\x9b31m\u202ey"  # sets a window's title, clears the screen, turns writing around
SHOWN = r"\x1b]0;owned\x07\x1b[2Jx\x9b31m\u202ey"


def test_warnings_become_notes_each_once() -> None:
    console = console_for(file=io.StringIO(), width=200)
    with warnings_as_notes(console):
        for message in ("n is [large]", "n is [large]", f"another {HOSTILE}"):
            warnings.warn(message, stacklevel=1)
    assert console.file.getvalue().splitlines() == ["note n is [large]", f"note another {SHOWN}"]  # type: ignore[attr-defined]


def test_rows_for_machines_and_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame({"item": ["a", "[b]"], "score": [0.123456, None], "known": [True, False]})
    show_rows(frame, console_for(stderr=True), as_json=True)
    assert json.loads(capsys.readouterr().out) == frame.to_dicts()
    show_rows(frame, console_for(), as_json=False)
    shown = capsys.readouterr().out
    assert "0.1235" in shown
    assert "[b]" in shown
    assert "known" not in shown


def test_users_without_an_id_have_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    for users, is_shown in ((["a", None], True), ([None, None], False)):
        show_rows(pl.DataFrame({"user": pl.Series(users, dtype=pl.String), "rank": [1, 2]}), console_for(), as_json=False)
        assert ("user" in capsys.readouterr().out) is is_shown


def test_a_console_shows_orders_as_text_and_keeps_its_own_colours() -> None:
    console = console_for(file=io.StringIO(), force_terminal=True, width=200, color_system="standard")
    console.print(HOSTILE, highlight=False)
    table = Table(HOSTILE)
    table.add_row(f"[red]{verbatim(HOSTILE)}[/]")
    console.print(table)
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert written.count(SHOWN.replace(r"\x07", "")) == 2  # rich leaves a bell out
    assert SHOWN in written
    assert "\x1b[31m" in written  # the red that was asked for
    assert not any(order in written for order in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e"))


def test_a_cell_is_as_wide_as_what_it_shows() -> None:
    console = console_for(file=io.StringIO(), width=200)
    table = Table()
    for text in (HOSTILE, "two\nlines", "[bold]"):
        table.add_row(verbatim(text))
    console.print(table)
    rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len({len(row) for row in rows}) == 1
    assert "two\\nlines" in "".join(rows)


def test_json_for_machines_holds_no_order_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"title": HOSTILE, "é": 1})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"title": HOSTILE, "é": 1}
    assert printed[:-1].isprintable()
    assert "é" in printed


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run whose ids, titles, fields and values are hostile, and its data beside it. Read-only."""
    folder = tmp_path_factory.mktemp("hostile")
    orders = [{"customer": f"u{n % 6}{HOSTILE}", "product": f"p{n % 9}{HOSTILE}", "when": n} for n in range(60)]
    pl.DataFrame(orders).write_parquet(folder / "orders.parquet")
    products = [{"product": f"p{n}{HOSTILE}", "colour": f"{n % 3}{HOSTILE}", "name": f"{n} {HOSTILE}"} for n in range(9)]
    pl.DataFrame(products).write_parquet(folder / "products.parquet")
    (folder / "dataset.toml").write_text(
        f'name = {json.dumps("shop" + HOSTILE)}\n[interactions]\npath = "orders.parquet"\nuser = "customer"\n'
        'item = "product"\ntime = "when"\n[items]\npath = "products.parquet"\nid = "product"\ntitle = "name"\n'
        '[items.fields]\ncolour = "category"\n'
    )
    command = ["train", str(folder), "--model", "fm", "--out", str(folder / "run"), "--set", "k=2", "--set", "epochs=1"]
    assert main([*command, "--threads", "1"]) == 0
    return str(folder / "run")


@pytest.mark.parametrize(
    "command",
    [
        ["data", "describe", "DATA"],
        ["evaluate", "RUN"],
        ["recommend", "RUN", "--user", "USER"],
        ["recommend", "RUN", "--user", f"nobody{HOSTILE}"],
        ["predict", "RUN", "--user", "USER", "--item", "ITEM"],
        ["predict", "RUN", "--user", "USER", "--item", f"nothing{HOSTILE}"],
        ["explain", "RUN", "--user", "USER", "--item", "ITEM"],
        ["explain", "RUN", "--user", "USER", "--item", "ITEM", "--against", "mean"],
        ["explain", "RUN", "--user", "USER", "--item", HOSTILE],
        ["similar", "RUN", "--item", "ITEM"],
        ["attributes", "RUN"],
        ["recommend", "RUN", "--user", "USER", "--filter", HOSTILE],
        ["train", f"nowhere{HOSTILE}", "--out", "run"],
        [f"trian{HOSTILE}"],
    ],
    ids=lambda command: " ".join(command)[:30].encode("ascii", "backslashreplace").decode(),
)
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["people", "machines"])
def test_no_command_lets_tables_or_arguments_steer_the_terminal(
    command: list[str], more: list[str], hostile_run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"RUN": hostile_run, "DATA": str(Path(hostile_run).parent), "USER": f"u1{HOSTILE}", "ITEM": f"p2{HOSTILE}"}
    capsys.readouterr()
    code = main([names.get(word, word) for word in command] + more)
    printed = capsys.readouterr()
    assert code in (0, 2)
    assert printed.out + printed.err
    for text in (printed.out, printed.err):
        assert not [character for character in text if character in HOSTILE and not character.isprintable()]


def test_ids_are_named_among_fields() -> None:
    assert field_names(("item",)) == "item id"
    assert field_names(("item.genre", "user")) == "item.genre x user id"
    assert field_names(()) == "the same for everything"
