"""`gmlfm serve` as people start it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """On a free port, stopped in the end; its address."""
    command = [sys.executable, "-m", "gmlfm", "serve", *arguments, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, "gmlfm serve ended before it took requests."
            yield str(json.loads(line)["url"])
        finally:
            process.terminate()
            process.wait(60)
