"""Which items can be had. Marking is O(items marked): a flag each, and one line in an append-only file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gmlfm.errors import DataError


class Stock:
    """Every item can be had until it is marked sold, and again when it is marked back."""

    def __init__(self, n_items: int) -> None:
        self.here = np.ones(n_items, bool)
        self.log: list[tuple[str, list[str]]] = []
        self._file: Path | None = None

    def keep_in(self, file: Path | None) -> None:
        """From now on each mark is written to this file as well; a line that a crash cut short is taken off first."""
        self._file = file
        if file is not None and file.exists():
            content = file.read_bytes()
            if content and not content.endswith(b"\n"):
                file.write_bytes(content[: content.rfind(b"\n") + 1])

    def mark(self, numbers: npt.NDArray[np.integer], ids: Sequence[str], *, sold: bool) -> None:
        entry = ("sold" if sold else "back", [str(one) for one in ids])
        if self._file is not None:
            try:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
            except OSError as error:
                raise DataError(f"{self._file} could not be written ({error.strerror}); nothing was marked.") from error
        self.here[numbers] = not sold
        self.log.append(entry)

    def grow(self, ids: Sequence[str]) -> None:
        """More items, each as it was last marked."""
        last = {one: kind for kind, marked in self.log for one in marked}
        self.here = np.concatenate([self.here, np.array([last.get(one) != "sold" for one in ids], bool)])

    def write(self, path: Path) -> None:
        path.write_text("".join(json.dumps(one) + "\n" for one in self.log), encoding="utf-8")


def read_log(path: Path) -> list[tuple[str, list[str]]]:
    """The marks in their order; a last line cut short by a crash does not count."""
    if not path.exists():
        return []
    found = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for at, line in enumerate(lines):
        if not line:
            continue
        try:
            kind, ids = json.loads(line)
            if kind not in ("sold", "back") or not isinstance(ids, list):
                raise ValueError(kind)
        except ValueError as error:
            if at == len(lines) - 1:
                break
            raise DataError(f"{path} is damaged in line {at + 1} ({error}).") from error
        found.append((kind, ids))
    return found
