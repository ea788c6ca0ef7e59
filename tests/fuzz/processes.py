"""Commands in processes of their own, some of which send themselves a signal at a counted moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from subprocess import PIPE

# The n-th call of a function, among those whose arguments hold a text, sends the signal to the process.
SIGNALLED = """
import os, sys
from importlib import import_module
number, module, name, text, count, words = int(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5]), sys.argv[6:]
owner = import_module(module.partition(":")[0])
owner = getattr(owner, module.partition(":")[2]) if ":" in module else owner
function, calls = getattr(owner, name), []
def counted(*positional, **named):
    calls.extend([name] if text in repr(positional) else [])
    if len(calls) == count:
        calls.append("sent")
        os.kill(os.getpid(), number)
    return function(*positional, **named)
setattr(owner, name, counted)
from gmlfm.cli import main
sys.exit(main(words))
"""


def signalled(number: int, moment: tuple[str, str, str, int], words: list[str]) -> subprocess.CompletedProcess[str]:
    """A command that gets a signal; moment: module (or module:class), function, a text among its arguments, which call."""
    module, name, text, count = moment
    command = [sys.executable, "-c", SIGNALLED, str(number), module, name, text, str(count), *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )


def started(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "gmlfm", *words], stdout=PIPE, stderr=PIPE, text=True)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=PIPE, stderr=PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and what it complained of."""
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors
