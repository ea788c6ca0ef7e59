"""Every option of every command with values that nobody meant: an answer, or one sentence and exit code 2."""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gmlfm.cli.main import build_parser, main
from gmlfm.data.sources.bazaar import Market, write_bazaar
from tests.fuzz.cases import generator, n_cases

_SECONDS = 60
ODD = [
    *(
        "",
        " ",
        "-",
        "--",
        "-1",
        "0",
        "1",
        "1.5",
        "1e400",
        "nan",
        "inf",
        "0x10",
        "99999999999999999999",
        "-99999999999999999999",
    ),
    *(
        "x",
        "None",
        "true",
        "=",
        "a=b",
        "k=",
        "=3",
        "a=b=c",
        ",",
        ",,,",
        "k=1,k=2",
        "[",
        "*",
        "**/*",
        "{}",
        "'",
        '"',
        "\\",
        "é💥",
    ),
    *(
        "\udcff",
        "\x1b[2J",
        "a\nb",
        "x" * 5000,
        "../..",
        "/",
        ".",
        "/dev/null",
        "/dev/full",
        "/proc/self/mem",
        "nowhere/deep/er",
    ),
    *(
        "genre = 'Concert'",
        "price <",
        "((((",
        "not not not",
        "gml-fm",
        "os:system",
        "gmlfm.cli:main",
        "u.toml",
        "k=99999999999",
    ),
    *("epochs=-1", "lr=nan", "batch_size=99999999999999", "threads=0", "negatives=0", "full", "test", "b0000003", "t000000001"),
]
# Commands that can be carried out, each in a moment. {market}, {run}, {toml}, {table}, {out} are paths.
BASES: dict[str, list[str]] = {
    "init": ["init", "{table}", "--out", "{out}"],
    "models": ["models"],
    "settings": ["settings", "fm"],
    "data list": ["data", "list"],
    "data describe": ["data", "describe", "{market}"],
    "data prepare": ["data", "prepare", "{market}", "--out", "{out}"],
    "data get": ["data", "get", "ml-1m", "--from", "{table}", "--data-root", "{out}"],
    "train": ["train", "{market}", "--out", "{out}", "--model", "fm", "--set", "k=2", "--set", "epochs=1", "--threads", "1"],
    "evaluate": ["evaluate", "{run}"],
    "tune": ["tune", "{market}", "--model", "item-knn", "--trials", "1", "--out", "{out}"],
    "compare": ["compare", "{market}", "--models", "popularity,item-knn", "--trials", "1", "--seeds", "1", "--out", "{out}"],
    "recommend": ["recommend", "{run}", "--user", "b0000003"],
    "recommend all": ["recommend", "{run}", "--all", "--out", "{out}.parquet"],
    "recommend for": ["recommend", "{run}", "--attributes", "age=20-29", "--history", "t000000001"],
    "predict": ["predict", "{run}", "--user", "b0000003", "--item", "t000000001"],
    "explain": ["explain", "{run}", "--user", "b0000003", "--item", "t000000001"],
    "similar": ["similar", "{run}", "--item", "t000000001"],
    "attributes": ["attributes", "{run}"],
    "sold": ["sold", "{run}", "t000000001"],
    "back": ["back", "{run}", "t000000001"],
    "observe": ["observe", "{run}", "{table}"],
    "add-items": ["add-items", "{run}", "{table}"],
    "forget": ["forget", "{run}", "--user", "b0000004"],
    "bench topn": ["bench", "topn", "{market}", "--set", "k=2", "--users", "3", "--rounds", "1"],
    "doctor": ["doctor"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A market and a run of it. Read-only."""
    folder = tmp_path_factory.mktemp("commands")
    write_bazaar(Market(n_users=60, n_purchases=700), folder / "market")
    assert _run(["train", str(folder / "market"), "--out", str(folder / "run"), *BASES["train"][4:]])[0] == 0
    (folder / "table.csv").write_text("user,item,price\nu1,i1,3\nu2,i1,4\nu1,i2,5\n")
    return folder


def options_of(words: list[str]) -> list[tuple[str, bool]]:
    """A command's options, and whether each takes a value."""
    parser: Any = build_parser()
    for word in words:
        choices = next((action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
        if choices is None:
            break
        parser = choices[word]
    actions = [action for action in parser._actions if action.option_strings and action.dest not in ("help", "debug")]
    return [(action.option_strings[-1], action.nargs != 0) for action in actions]


def command_lines() -> Iterator[list[str]]:
    """Each base with each of its options and an odd value behind it, or an odd word in place of one of its own."""
    for base in BASES.values():
        for option, takes_value in options_of(base):
            for odd in ODD if takes_value else ("",):
                yield [*base, option, odd] if takes_value else [*base, option]
        for place in range(len(base)):
            for odd in ODD:
                yield [*base[:place], odd, *base[place + 1 :]]


def _run(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:  # --help and --version
            code = int(stop.code or 0)
    return code, out.getvalue(), err.getvalue()


def _stop(number: int, frame: Any) -> None:
    raise TimeoutError


def problem(words: list[str]) -> str:
    """What is wrong with how a command line ended; '' where nothing is."""
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(_SECONDS)
    try:
        code, _, errors = _run(words)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    if "unexpectedly" in errors or "Traceback" in errors:
        return errors[-300:]
    sentences = [text for text in errors.splitlines() if text.startswith("gmlfm: ")]
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if code == 2 and len(sentences) != 1:
        return f"exit code 2 with {len(sentences)} sentences: {errors[-200:]!r}"
    if code == 1 and "nothing was learned" not in errors:
        return f"exit code 1: {errors[-200:]!r}"
    return ""


ALL = list(command_lines())
N_IN_CI = 160


@pytest.mark.parametrize("share", range(8))
@pytest.mark.filterwarnings("ignore")
def test_odd_command_lines_end_in_answers_or_one_sentence(
    share: int, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"user": "u1", "item": "i1"}\n')))
    order = generator("command lines").permutation(len(ALL))[: n_cases(N_IN_CI)]
    problems = []
    for number in order[share::8]:
        run = Path(shutil.copytree(home / "run", tmp_path / "run"))
        paths = {"market": home / "market", "run": run, "table": home / "table.csv", "out": tmp_path / "out", "toml": "no.toml"}
        words = [word.format(**paths) if word.startswith("{") and len(word) > 2 else word for word in ALL[int(number)]]
        what = problem(words)
        if what:
            problems.append(f"{[word[:60] for word in ALL[int(number)]]}: {what}")
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert problems == []


def test_there_are_as_many_as_were_tried_by_hand() -> None:
    assert len(ALL) >= 241
