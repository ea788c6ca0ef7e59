"""`gmlfm`: one parser, and one place where errors become a sentence and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

from gmlfm import __version__
from gmlfm.cli.output import print_json
from gmlfm.errors import GmlfmError, did_you_mean
from gmlfm.escaping import terminal_text
from gmlfm.progress import display, watched_by

FAILED = 1
_STOPS = (signal.SIGTERM, signal.SIGHUP)
# The modules of the commands, in the order of --help.
_COMMANDS = """
    demo init models settings data train update evaluate tune compare
    recommend predict explain similar attributes observe stock add_items forget serve bench doctor
""".split()


class _ToStderr(logging.StreamHandler[Any]):
    """What the library has to say, on whatever stderr is at the moment."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        pass

    def format(self, record: logging.LogRecord) -> str:
        return terminal_text(super().format(record), lines=True)


@contextlib.contextmanager
def _log_shown() -> Iterator[None]:
    """While a command runs, what the library logs is shown; a program that calls us keeps its own logging."""
    log, handler = logging.getLogger("gmlfm"), _ToStderr()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@contextlib.contextmanager
def _stopping(stops: list[int]) -> Iterator[None]:
    """While a command runs, SIGTERM and SIGHUP end it as Ctrl-C does, and `stops` has their numbers; one that is ignored
    (nohup) stays so."""

    def stop(number: int, frame: Any) -> None:
        stops.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOPS}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)


class _CommandList(argparse.HelpFormatter):
    """Every command beside what it does: argparse forgets that commands stand two columns further in."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)
        self._action_max_length = 14


class Parser(argparse.ArgumentParser):
    """argparse whose errors are ours: one sentence, exit 2."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        # Checked by the parser that met them, so that the hint is among that command's options.
        parsed, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return parsed, left

    def error(self, message: str) -> NoReturn:
        if message == "the following arguments are required: COMMAND":
            message = "say what to do: gmlfm COMMAND; gmlfm demo is a good beginning"
        raise GmlfmError(f"{_with_hint(message, self)} (see {self.prog} --help)")

    def format_help(self) -> str:
        """With what only --help needs to know, which takes time to load."""
        more = self.get_default("help_ends_in")
        return super().format_help() + (f"\n{more()}\n" if more else "")


def _with_hint(message: str, parser: argparse.ArgumentParser) -> str:
    if message.startswith("unrecognized arguments: "):
        word = message.split(": ", 1)[1].split()[0].split("=")[0]
        if not word.startswith("-"):
            return f"'{word}' is one argument too many"
        options = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
        return f"unknown option '{word}'{did_you_mean(word, options)}".rstrip(".")
    if "invalid choice: '" in message:
        word = message.split("invalid choice: '", 1)[1].split("'", 1)[0]
        listed = message.split("(choose from ", 1)[-1].rstrip(")")
        choices = [choice.strip().strip("'") for choice in listed.split(",")]
        return f"unknown '{word}'{did_you_mean(word, choices)}".rstrip(".")
    return message


def build_parser() -> Parser:
    parser = Parser(
        prog="gmlfm",
        description="Recommendation from attributes, with factorization machines that learn their own metric.",
        formatter_class=_CommandList,
        epilog="gmlfm COMMAND --help shows a command's options and examples. Begin with: gmlfm demo",
    )
    parser.add_argument("--version", action="version", version=f"gmlfm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for module in _COMMANDS:
        import_module(f"gmlfm.cli.{module}").add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    # OpenMP reads this when PyTorch is loaded. Its threads would spin for milliseconds while they wait, which a busy neighbour
    # turns into a standstill; some ten microseconds are as good on an idle machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug, as_json = "--debug" in words, "--json" in words
    stops: list[int] = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character gets a question mark
    try:
        parsed = build_parser().parse_args(words)
        parsed.words = words
        _allow_own_models(parsed)
        with _log_shown(), _stopping(stops), display("working") as watcher, watched_by(watcher):
            parsed.run(parsed)
        sys.stdout.flush()
        return 0
    except GmlfmError as error:
        return _failed(str(error), error.exit_code, error, debug, as_json)
    except KeyboardInterrupt as error:
        code = 128 + (stops[0] if stops else signal.SIGINT)
        return _failed(str(error) or "interrupted.", code, error, debug, as_json)
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not _reader_is_gone(error):
            raise
        # The reader went away (gmlfm ... | head); nothing is wrong, and Python must not complain at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        return _failed("out of memory.", FAILED, error, debug, as_json)
    except Exception as error:
        message = f"gmlfm failed unexpectedly: {type(error).__name__}: {error}; run again with --debug and report it."
        return _failed(message, FAILED, error, debug, as_json)


def _allow_own_models(parsed: argparse.Namespace) -> None:
    """With module:Class, modules of the current folder can be imported, as by `python -m`."""
    models = [getattr(parsed, name, None) or "" for name in ("model", "models")]
    if any(":" in model for model in models) and "" not in sys.path:
        sys.path.insert(0, "")


def _reader_is_gone(error: SystemExit) -> bool:
    """rich ends the program where it meets a broken pipe."""
    return isinstance(error.__context__, BrokenPipeError)


def _failed(message: str, code: int, error: BaseException, debug: bool, as_json: bool) -> int:
    if debug:
        raise error
    if as_json:
        print_json({"error": message})
    print(f"gmlfm: {terminal_text(message)}", file=sys.stderr)
    return code
