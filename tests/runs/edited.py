"""Runs that a test changes by hand, with checksums that fit again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gmlfm.runs.checksums import checksums, sealed


def reseal(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda about: None) -> None:
    """Change run.json, and give it the checksums of the files as they are now."""
    path = folder / "run.json"
    about = json.loads(path.read_text())
    change(about)
    about["files"] = checksums(folder / "generations" / about["generation"])
    path.write_text(json.dumps(sealed(about)))
