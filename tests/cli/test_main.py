from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gmlfm.cli import main
from gmlfm.cli.main import build_parser
from gmlfm.errors import DataError

VERBS = (
    *("demo", "init", "models", "settings", "data", "train", "evaluate", "tune", "compare"),
    *("recommend", "predict", "explain", "similar", "attributes", "observe", "sold", "back", "add-items", "forget", "bench"),
)


def _parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every command's parser by its whole name, those of sub-commands too."""
    parsers = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                parsers |= {command.prog.removeprefix("gmlfm "): command, **_parsers(command)}
    return parsers


def test_every_command_has_examples_that_parse() -> None:
    parsers = _parsers(build_parser())
    assert set(VERBS) <= set(parsers)
    for name, parser in parsers.items():
        help_text = parser.format_help()
        assert parser.description, name
        assert "Examples:\n  gmlfm " in help_text, name
        if name not in ("data", "bench"):
            assert "--json" in help_text, name
    for parser in parsers.values():
        for row in (parser.epilog or "").splitlines():
            if row.startswith("  gmlfm "):
                build_parser().parse_args(shlex.split(row)[1:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "describe", "nowhere"], "'nowhere' is neither a folder, a .toml file nor a known dataset"),
        (["data", "describ", "x"], "unknown 'describ'; did you mean 'describe'?"),
        (["data", "describe", "x", "--splt", "random"], "unknown option '--splt'; did you mean '--split'?"),
        (["data", "describe", "x", "--split", "randm"], "unknown 'randm'; did you mean 'random'?"),
        (["data", "describe"], "the following arguments are required: DATA"),
        (["init", "gone.csv"], "gone.csv does not exist"),
        ([], "say what to do: gmlfm COMMAND; gmlfm demo is a good beginning (see gmlfm --help)"),
        (["data", "describe", "a", "b"], "'b' is one argument too many"),
        (["data", "describe", "x" * 300], "too long"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_failure_is_reported_to_machines_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "describe", "nowhere", "--json"]) == 2
    assert "nowhere" in json.loads(capsys.readouterr().out)["error"]


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(DataError):
        main(["data", "describe", "nowhere", "--debug"])


def test_the_installed_command_ends_quietly_when_its_reader_goes_away(shop: Path) -> None:
    subprocess.run([sys.executable, "-m", "gmlfm", "init", str(shop / "orders.csv")], check=True, capture_output=True)
    finished = subprocess.run(
        f"{sys.executable} -m gmlfm data describe {shop} | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0
    assert finished.stderr == ""


def test_importing_does_not_load_the_command_line() -> None:
    modules = ("rich", "torch", "numba", "pandas", "pyarrow", "matplotlib")
    code = f"import sys, gmlfm; print([name for name in {modules} if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


def test_building_the_parser_loads_no_heavy_library() -> None:
    code = "import sys; from gmlfm.cli.main import build_parser; build_parser(); print([name for name in ('torch', 'numba', 'matplotlib') if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


def test_a_terminal_without_our_characters_still_gets_an_answer(shop: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "gmlfm", "init", str(shop / "orders.csv")]
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


def test_modules_of_the_current_folder_are_importable_for_module_and_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    assert main(["evaluate", "nowhere"]) == 2
    assert "" not in sys.path
    assert main(["evaluate", "nowhere", "--model", "my_module:MyModel"]) != 0
    assert sys.path[0] == ""


def test_every_command_of_the_help_has_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    for verb in VERBS:
        assert any(row[:1] == [verb] and len(row) > 1 for row in rows), verb
