from __future__ import annotations

import builtins
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import gmlfm.serve
from gmlfm.cli import main
from gmlfm.serve import server
from gmlfm.serve.options import ServeOptions


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command would serve; its address is announced, and nothing is begun."""
    given: dict[str, Any] = {}

    def serve(folders: list[str], host: str, port: int, options: ServeOptions, **more: Any) -> None:
        given.update(folders=folders, host=host, port=port, options=options, **more)
        more["announce"](f"http://{host}:{port}/")

    monkeypatch.setattr(server, "serve", serve)
    for variable in ("GMLFM_TOKEN", "GMLFM_WRITE_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    return given


def test_serves_this_machine_alone_by_default(served: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "runs/a", "runs/b"]) == 0
    assert (served["folders"], served["host"], served["port"], served["workers"]) == (
        ["runs/a", "runs/b"],
        "127.0.0.1",
        8765,
        1,
    )
    assert served["options"] == ServeOptions(hosts=("localhost", "127.0.0.1", "[::1]"))
    printed = capsys.readouterr()
    assert (
        printed.out == "Serving runs/a, runs/b at http://127.0.0.1:8765/ (the API: http://127.0.0.1:8765/docs). Ctrl-C stops.\n"
    )
    assert printed.err == ""


def test_json_says_where(served: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "runs/a", "--port", "9000", "--workers", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"url": "http://127.0.0.1:9000/", "runs": ["runs/a"], "workers": 2}


@pytest.mark.parametrize(
    ("words", "opened"),
    [
        ([], []),
        (["--open", "--port", "9000"], ["http://127.0.0.1:9000/"]),
        (["--open", "--host", "0.0.0.0", "--insecure"], ["http://127.0.0.1:8765/"]),
    ],
)
def test_the_page_is_opened_where_it_is_asked_for(
    words: list[str], opened: list[str], served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []
    asked = threading.Event()

    def open_page(url: str) -> bool:
        addresses.append(url)
        asked.set()
        return True

    monkeypatch.setattr("webbrowser.open", open_page)
    assert main(["serve", "runs/a", *words]) == 0
    if opened:
        assert asked.wait(60)
    assert addresses == opened


def test_tokens_come_from_files_or_the_environment(
    served: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("from-the-file\n")
    monkeypatch.setenv("GMLFM_TOKEN", "from-the-environment")
    monkeypatch.setenv("GMLFM_WRITE_TOKEN", " write-environment ")
    assert main(["serve", "runs/a", "--host", "0.0.0.0"]) == 0
    assert (served["options"].token, served["options"].write_token) == ("from-the-environment", "write-environment")
    assert served["options"].hosts == ()
    assert main(["serve", "runs/a", "--token-file", str(tmp_path / "token")]) == 0
    assert served["options"].token == "from-the-file"
    assert "from-the" not in repr(served["options"]) + capsys.readouterr().out


def test_limits_are_options(served: dict[str, Any]) -> None:
    words = ["--max-body", "10", "--max-n", "5", "--timeout", "2.5", "--max-in-flight", "3", "--log", "requests"]
    assert main(["serve", "runs/a", *words]) == 0
    options = served["options"]
    assert (options.max_body, options.max_n, options.timeout, options.max_in_flight, options.log) == (10, 5, 2.5, 3, "requests")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from elsewhere, and no token is set"),
        (["--host", "::", "--write-token-file", "TOKEN"], "no token is set"),
        (["--token-file", "EMPTY"], "--token-file holds no token: expected 8 or more ASCII characters without spaces"),
        (["--token-file", "nowhere"], "nowhere does not exist"),
        (["--port", "70000"], "--port is 70000; expected a whole number of 0 to 65,535"),
        (["--workers", "0"], "--workers is 0"),
        (["--timeout", "0"], "--timeout is 0"),
        (["--timeout", "nan"], "--timeout is nan"),
        (["--max-body", "-1"], "--max-body is -1"),
        (["--log", "everything"], "--log is 'everything'; expected requests, errors or none"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    words: list[str], said: str, served: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "EMPTY").write_text("\n")
    (tmp_path / "TOKEN").write_text("long enough to be one".replace(" ", "-"))
    words = [str(tmp_path / word) if word in ("EMPTY", "TOKEN") else word for word in words]
    assert main(["serve", "runs/a", *words]) == 2
    assert said in capsys.readouterr().err
    assert served == {}


def test_insecure_lets_everybody_in(served: dict[str, Any]) -> None:
    for host in ("0.0.0.0", "127.0.0.1"):
        assert main(["serve", "runs/a", "--host", host, "--insecure"]) == 0
        assert (served["options"].token, served["options"].hosts) == (None, ())


def test_a_writing_token_alone_leaves_reading_to_this_machine(served: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMLFM_WRITE_TOKEN", "write-environment")
    assert main(["serve", "runs/a", "--host", "127.0.0.2"]) == 0
    assert served["options"].hosts == ("localhost", "127.0.0.1", "[::1]", "127.0.0.2")


def test_a_folder_that_is_no_run_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path), "--port", "0"]) == 2
    assert "is no run" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_missing_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named '{missing}'", name=missing)
        return real(name, *rest, **more)

    monkeypatch.setattr(gmlfm, "serve", gmlfm.serve)  # which importing it anew replaces, for all tests to come
    for name in [name for name in sys.modules if name.startswith("gmlfm.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["serve", "runs/a"]) == 2
    printed = capsys.readouterr().err
    assert (
        printed == f"gmlfm: gmlfm serve needs {missing}, which is not installed; install it with: pip install 'gmlfm[serve]'.\n"
    )
