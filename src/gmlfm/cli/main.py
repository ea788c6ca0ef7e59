"""`gmlfm`: one parser, and one place where errors become a sentence and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from gmlfm import __version__
from gmlfm.errors import GmlfmError, did_you_mean

WRONG_USE, FAILED, INTERRUPTED = 2, 1, 130


class Parser(argparse.ArgumentParser):
    """argparse whose errors are ours: one sentence, exit 2."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        # Checked by the parser that met them, so that the hint is among that command's own options.
        parsed, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return parsed, left

    def error(self, message: str) -> NoReturn:
        raise GmlfmError(f"{_with_hint(message, self)} (see {self.prog} --help)")


def _with_hint(message: str, parser: argparse.ArgumentParser) -> str:
    if message.startswith("unrecognized arguments: "):
        given = message.split(": ", 1)[1].split()[0].split("=")[0]
        if not given.startswith("-"):
            return f"'{given}' is one argument too many"
        known = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
        return f"unknown option '{given}'{did_you_mean(given, known)}".rstrip(".")
    if "invalid choice: '" in message:
        given = message.split("invalid choice: '", 1)[1].split("'", 1)[0]
        listed = message.split("(choose from ", 1)[-1].rstrip(")")
        known = [word.strip().strip("'") for word in listed.split(",")]
        return f"unknown '{given}'{did_you_mean(given, known)}".rstrip(".")
    return message


def build_parser() -> Parser:
    from gmlfm.cli import attributes, bench, compare, data, demo, evaluate, explain, init, models, recommend, train, tune

    parser = Parser(
        prog="gmlfm", description="Recommendation from attributes, with factorization machines that learn their own metric."
    )
    parser.add_argument("--version", action="version", version=f"gmlfm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for module in (demo, init, data, models, train, evaluate, recommend, explain, attributes, tune, compare, bench):
        module.add_to(commands)
    return parser


def shared_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON value for machines")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug, as_json = "--debug" in words, "--json" in words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character gets a question mark
    try:
        parsed = build_parser().parse_args(words)
        parsed.run(parsed)
        sys.stdout.flush()
        return 0
    except GmlfmError as error:
        return _failed(str(error), WRONG_USE, error, debug, as_json)
    except KeyboardInterrupt as error:
        return _failed("interrupted.", INTERRUPTED, error, debug, as_json)
    except BrokenPipeError:
        # The reader went away (gmlfm ... | head); nothing is wrong, and Python must not complain at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        return _failed("out of memory.", FAILED, error, debug, as_json)
    except Exception as error:
        message = f"gmlfm failed unexpectedly: {type(error).__name__}: {error}; run again with --debug and report it."
        return _failed(message, FAILED, error, debug, as_json)


def _failed(message: str, code: int, error: BaseException, debug: bool, as_json: bool) -> int:
    if debug:
        raise error
    if as_json:
        print(json.dumps({"error": message}, ensure_ascii=False))
    print(f"gmlfm: {message}", file=sys.stderr)
    return code
