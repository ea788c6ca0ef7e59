"""Is the service of this container ready? At the port that it was started with."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

_DEFAULT = "8765"


def port_of(words: Sequence[str]) -> str:
    """Of a command line: the last --port, as the command itself reads it."""
    port = _DEFAULT
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name == "--port":
            port = value if equals else following
    return port


if __name__ == "__main__":
    # The service is the container's first process, or that one's words hold the service's.
    words = Path("/proc/1/cmdline").read_text(encoding="utf-8").split("\0")
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port_of(words)}/health/ready", timeout=4)
    except OSError as error:
        sys.exit(f"not ready: {error}")
