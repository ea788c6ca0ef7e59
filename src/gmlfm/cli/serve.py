"""gmlfm serve RUN: a run behind HTTP."""

from __future__ import annotations

import argparse
import os
import threading
import webbrowser
from typing import Any

from gmlfm.arguments import whole_number
from gmlfm.cli.options import add_command, shared_options
from gmlfm.cli.output import console_for, print_json, verbatim
from gmlfm.errors import OptionError
from gmlfm.streams import read_text

_LONGEST_TOKEN = 4_096
_MOST_WORKERS = 256
_MODULES = {"fastapi", "starlette", "uvicorn", "pydantic", "pydantic_core", "h11", "httptools", "anyio"}


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "serve",
        "a run behind HTTP, with a page to explore it",
        "Answer requests from a run: recommendations, scores, reasons; and take in what users just did, which counts in the "
        "next answer. The page at / explores it, /docs describes the API. SIGHUP takes the run that stands in the folder by "
        "then; Ctrl-C or SIGTERM stop after the last answer.",
        [
            "gmlfm serve runs/demo --open",
            "gmlfm serve runs/demo runs/other --port 9000 --workers 2",
            "gmlfm serve runs/demo --host 0.0.0.0 --token-file token.txt --write-token-file write-token.txt",
        ],
        "More in docs/serve.md.",
    )
    parser.add_argument(
        "run_folders", nargs="+", metavar="RUN", help="run folders, written by gmlfm train; the first is the default"
    )
    parser.add_argument("--model", metavar="MODULE:CLASS", help="for runs of a model that is not built in: where its class is")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1, this machine)"
    )
    parser.add_argument("--port", type=int, default=8765, help="0 takes a free one (default: 8765)")
    parser.add_argument("--token-file", metavar="FILE", help="holds the token that requests must bear (else $GMLFM_TOKEN)")
    parser.add_argument(
        "--write-token-file", metavar="FILE", help="holds the token of what changes something (else $GMLFM_WRITE_TOKEN)"
    )
    parser.add_argument("--insecure", action="store_true", help="without a token also where others reach it, and by any name")
    parser.add_argument("--open", action="store_true", help="open the page in a browser of this machine")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes, each with the runs (default: 1)")
    parser.add_argument("--max-body", type=int, default=1 << 20, metavar="BYTES", help="of a request (default: 1 MiB)")
    parser.add_argument(
        "--max-n", type=int, default=1_000, metavar="N", help="items that one request may ask for (default: 1000)"
    )
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="for a body to come, and for an answer (default: 10)"
    )
    parser.add_argument(
        "--max-in-flight", type=int, default=64, metavar="N", help="questions of a worker at once; more get 503 (default: 64)"
    )
    parser.add_argument(
        "--log",
        default="errors",
        metavar="WHAT",
        help="JSON lines on standard error: requests, errors or none (default: errors)",
    )
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    try:
        from gmlfm.serve.logs import LEVELS
        from gmlfm.serve.options import ServeOptions
        from gmlfm.serve.server import check_exposure, serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _MODULES:
            raise
        raise OptionError(
            f"gmlfm serve needs {error.name}, which is not installed; install it with: pip install 'gmlfm[serve]'."
        ) from error
    if options.log not in LEVELS:
        raise OptionError(f"--log is '{options.log}'; expected {', '.join(LEVELS[:-1])} or {LEVELS[-1]}.")
    if not 0 < options.timeout <= 3_600:
        raise OptionError(f"--timeout is {options.timeout:g}; expected a number of seconds above 0, at most 3,600.")
    whole_number(options.port, "--port", 0, 65_535)
    workers = whole_number(options.workers, "--workers", 1, _MOST_WORKERS)
    token = _token(options.token_file, "--token-file", "GMLFM_TOKEN")
    limits = ServeOptions(
        token=token,
        write_token=_token(options.write_token_file, "--write-token-file", "GMLFM_WRITE_TOKEN"),
        max_body=whole_number(options.max_body, "--max-body", 1),
        max_n=whole_number(options.max_n, "--max-n", 1),
        timeout=options.timeout,
        max_in_flight=whole_number(options.max_in_flight, "--max-in-flight", 1),
        hosts=_names(options.host) if token is None and not options.insecure else (),
        log=options.log,
    )
    check_exposure(options.host, limits, insecure=options.insecure)

    def announce(url: str) -> None:
        if options.json:
            print_json({"url": url, "runs": options.run_folders, "workers": workers})
        else:
            runs = ", ".join(verbatim(folder) for folder in options.run_folders)
            console_for().print(
                f"Serving {runs} at [bold]{verbatim(url)}[/] (the API: {verbatim(url)}docs). Ctrl-C stops.", soft_wrap=True
            )
        if options.open:
            # A browser in a terminal ends only with its page, which nobody would answer meanwhile.
            threading.Thread(target=webbrowser.open, args=(_reachable(url),), daemon=True).start()

    serve(options.run_folders, options.host, options.port, limits, workers=workers, model=options.model, announce=announce)


def _reachable(url: str) -> str:
    """Every address of the machine is none that a browser can go to."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _names(host: str) -> tuple[str, ...]:
    """What a request to this machine alone may call it: a page elsewhere could make another name lead here."""
    from gmlfm.serve.options import OWN_NAMES

    return tuple(dict.fromkeys((*OWN_NAMES, f"[{host}]" if ":" in host else host)))


def _token(path: str | None, option: str, variable: str) -> str | None:
    text = os.environ.get(variable) if path is None else read_text(path, _LONGEST_TOKEN)
    if text is None:
        return None
    from gmlfm.serve.options import check_token

    token = text.strip()
    check_token(token, option if path is not None else f"the environment variable {variable}")
    return token
