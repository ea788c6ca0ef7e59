from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.cli import main

USER = "b0000003"


def _given(text: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    content = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def _lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _best(run: str, n: int) -> list[str]:
    return Recommender.load(run).recommend([USER], n)["item"].to_list()


def test_a_table_of_what_users_did_counts_from_then_on(
    own_plain_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best, second = _best(own_plain_run, 2)
    table = pl.DataFrame({"user": [USER, "visitor"], "item": [best, best], "time": ["2026-01-31", "2026-02-01"]})
    capsys.readouterr()
    for name, n, n_known in (("clicks.csv", 2, 0), ("clicks.parquet", 0, 2), ("clicks.jsonl", 0, 2)):
        path = tmp_path / name
        write = {"csv": table.write_csv, "parquet": table.write_parquet, "jsonl": table.write_ndjson}[name.split(".")[1]]
        write(path)
        assert main(["observe", own_plain_run, str(path), "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        figures = {"observed": n, "duplicates": n_known, "new_users": int(n > 0), "new_items": 0}
        assert printed == {"run": own_plain_run, **figures}
    assert _best(own_plain_run, 1) == [second]
    assert main(["observe", own_plain_run, str(tmp_path / "clicks.csv")]) == 0
    assert "0 rows of what users did count from now on in" in capsys.readouterr().out


def test_new_items_come_in_a_table_of_their_own(own_plain_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = Recommender.load(own_plain_run).fitted.data.items
    rows, table = tmp_path / "rows.csv", tmp_path / "items.csv"
    pl.DataFrame({"user": [USER], "item": ["brand-new"]}).write_csv(rows)
    items.fields.head(1).with_columns(item=pl.lit("brand-new")).write_parquet(table.with_suffix(".parquet"))
    assert main(["observe", own_plain_run, str(rows)]) == 2
    assert "the item 'brand-new' is not in the catalogue; give a table of new items beside" in capsys.readouterr().err
    assert main(["observe", own_plain_run, str(rows), "--items", str(table.with_suffix(".parquet"))]) == 0
    assert "1 row of what users did counts from now on" in (said := capsys.readouterr().out)
    assert "1 new items" in said
    assert Recommender.load(own_plain_run).observed.of(USER) == ((len(items), None),)


def test_where_histories_are_read_what_is_observed_changes_the_others_scores(own_run: str, tmp_path: Path) -> None:
    before = Recommender.load(own_run)
    ranked = before.recommend([USER], 50)
    best = ranked["item"][0]
    rows = tmp_path / "rows.csv"
    pl.DataFrame({"user": [USER], "item": [best]}).write_csv(rows)
    assert main(["observe", own_run, str(rows)]) == 0
    after = Recommender.load(own_run)
    others = after.recommend([USER], 49)
    assert best not in others["item"].to_list()
    scores = dict(zip(ranked["item"].to_list(), ranked["score"].to_list(), strict=True))
    assert any(abs(row["score"] - scores[row["item"]]) > 1e-6 for row in others.iter_rows(named=True) if row["item"] in scores)


def test_lines_of_standard_input(
    own_plain_run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best, second = _best(own_plain_run, 2)
    rows: list[dict[str, object]] = [{"user": USER, "item": best}, {"user": "visitor", "item": second, "event": "click"}]
    _given("\ufeff" + _lines(rows[:1]) + "\n  \n" + _lines(rows[1:]).rstrip("\n"), monkeypatch)
    capsys.readouterr()
    assert main(["observe", own_plain_run, "-"]) == 0
    assert "2 rows of what users did count from now on in" in capsys.readouterr().out
    observed = Recommender.load(own_plain_run).observed
    assert observed.rows_of("visitor") == (("visitor", second, None, "click"),)
    assert _best(own_plain_run, 1) == [second]
    _given("", monkeypatch)
    assert main(["observe", own_plain_run, "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["observed"] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            '{"user": "u1", "item": "gone"}',
            "line 4,002 of standard input: the item 'gone' is not in the catalogue; give a table",
        ),
        ('{"user": "u1"', "line 4,002 of standard input is broken (Expecting ',' delimiter"),
        ("[1]", "line 4,002 of standard input is broken (it is no object); expected a row such as"),
        ('{"user": "", "item": "gone"}', "line 4,002 of standard input: the column 'user' is empty"),
        ('{"user": "\\ud800", "item": "t000000001"}', "line 4,002 of standard input is broken"),
        (b"\xff\xfe", "line 4,002 of standard input is broken"),
        ("[" * 50_000, "nested too deeply"),
    ],
)
def test_what_came_before_a_wrong_line_is_kept(
    wrong: str | bytes, message: str, own_plain_run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As far as it came in parts before, of which the error says how many lines they had."""
    monkeypatch.setattr("gmlfm.cli.observe._CHUNK", 60_000)
    item = _best(own_plain_run, 1)[0]
    good = _lines([{"user": f"u{n}", "item": item, "time": n} for n in range(4_000)])
    _given(b"\n" + good.encode() + (wrong.encode() if isinstance(wrong, str) else wrong) + b"\n" + good.encode(), monkeypatch)
    capsys.readouterr()
    assert main(["observe", own_plain_run, "-", "--json"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    sentences = [text for text in printed.err.splitlines() if text.startswith("gmlfm: ")]
    assert len(sentences) == 1
    n_lines = int(sentences[0].split("; lines 1 to ")[1].split(" were kept")[0].replace(",", ""))
    assert 2_000 < n_lines <= 4_001
    assert Recommender.load(own_plain_run).observed.n == n_lines - 1  # the first one is blank
    assert json.loads(printed.out)["error"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("user,item\nb0000003,t000000001\nb0000003,gone\n", "clicks.csv line 3: the item 'gone' is not in the catalogue"),
        ("user,item\nb0000003,t000000001\n,t000000001\n", "clicks.csv line 3: the column 'user' is empty"),
        ("who,what\na,b\n", "clicks.csv: the columns are who, what; expected user, item and perhaps time and event"),
        ("user,item,time\nb0000003,t000000001,soon\n", "clicks.csv line 2: column 'time' holds 'soon'"),
        (None, "clicks.csv does not exist"),
    ],
)
def test_of_a_file_everything_is_kept_or_nothing(
    content: str | None, message: str, own_plain_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "clicks.csv"
    if content is not None:
        path.write_text(content)
    capsys.readouterr()
    assert main(["observe", own_plain_run, str(path)]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not (Path(own_plain_run) / "events.jsonl").exists()


def test_what_will_not_change_is_noted_once(
    market: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    assert main(["train", market, "--out", run, "--model", "popularity"]) == 0
    monkeypatch.setattr("gmlfm.cli.observe._CHUNK", 100)
    _given(_lines([{"user": f"u{n}", "item": "t000000001", "shop": 3} for n in range(20)]), monkeypatch)
    capsys.readouterr()
    assert main(["observe", run, "-"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("'popularity' does not read what users did before") == 1
    assert printed.count("the column 'shop' of the observations is not read") == 1
    assert "20 rows of what users did count" in printed


def test_a_line_without_end_is_refused(
    own_run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _given("x" * ((1 << 24) + 10), monkeypatch)
    assert main(["observe", own_run, "-"]) == 2
    assert "a line of standard input has more than 16 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("name", [".lock", "events.jsonl"])
def test_a_folder_that_can_only_be_read_is_one_sentence(
    name: str, own_run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = os.open

    def refusing(path: object, flags: int, *more: int, **named: int) -> int:
        if str(path).endswith(name) and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(30, "Read-only file system")
        return real(path, flags, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    _given('{"user": "b0000003", "item": "t000000001"}', monkeypatch)
    capsys.readouterr()
    assert main(["observe", own_run, "-"]) == 2
    printed = capsys.readouterr().err
    assert "could not be written (Read-only file system); nothing was changed; no line before was kept." in printed
    assert printed.count("\n") == 1


def test_lines_are_kept_as_they_come_and_a_stop_says_how_many(own_run: str) -> None:
    """A process that is still being written to: the first line is in the folder before the second one is sent."""
    item = _best(own_run, 1)[0]
    process = subprocess.Popen(
        [sys.executable, "-m", "gmlfm", "observe", own_run, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip
    assert process.stdin is not None
    recommender = Recommender.load(own_run)
    for n in range(1, 4):
        process.stdin.write(_lines([{"user": "visitor", "item": item, "time": n}]).encode())
        process.stdin.flush()
        while recommender.observed.n < n:
            assert process.poll() is None
            recommender.reload()
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + 15
    assert b"interrupted; lines 1 to " in errors
