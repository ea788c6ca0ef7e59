"""Which items can be had. Marking is O(items marked): a flag each, and one line in an append-only file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gmlfm.errors import DataError

STOCK = "stock.jsonl"
Mark = tuple[str, list[str]]  # 'sold' or 'back', and the items' ids


class Stock:
    """Every item can be had until it is marked sold, and again when it is marked back.

    Marks name items by id: a run that gains items takes them over by `over`.
    """

    def __init__(self, item_ids: Sequence[str], marks: Sequence[Mark] = ()) -> None:
        self.log: list[Mark] = list(marks)
        self._file: Path | None = None
        last_mark = {item: kind for kind, items in self.log for item in items}
        if last_mark:
            self.is_available = np.array([last_mark.get(item) != "sold" for item in item_ids], bool)
        else:
            self.is_available = np.ones(len(item_ids), bool)

    def over(self, item_ids: Sequence[str]) -> Stock:
        """The same marks over another catalogue, written to the same file."""
        stock = Stock(item_ids, self.log)
        stock._file = self._file
        return stock

    def keep_in(self, file: Path | None) -> None:
        """From now on each mark is written to this file as well; a line that a crash cut short is taken off first."""
        self._file = file
        if file is not None and file.exists():
            content = file.read_bytes()
            if content and not content.endswith(b"\n"):
                file.write_bytes(content[: content.rfind(b"\n") + 1])

    def mark(self, numbers: npt.NDArray[np.integer], ids: Sequence[str], *, sold: bool) -> None:
        entry = ("sold" if sold else "back", [str(item) for item in ids])
        if self._file is not None:
            try:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
            except OSError as error:
                raise DataError(f"{self._file} could not be written ({error.strerror}); nothing was marked.") from error
        self.is_available[numbers] = not sold
        self.log.append(entry)

    def to_text(self) -> str:
        return "".join(json.dumps(entry) + "\n" for entry in self.log)


def read_marks(path: Path) -> list[Mark]:
    """The marks in their order; a last line cut short by a crash does not count."""
    if not path.exists():
        return []
    marks = []
    texts = path.read_text(encoding="utf-8").split("\n")
    for number, text in enumerate(texts):
        if not text:
            continue
        try:
            kind, ids = json.loads(text)
            if kind not in ("sold", "back") or not isinstance(ids, list):
                raise ValueError(kind)
        except (ValueError, TypeError) as error:
            if number == len(texts) - 1:
                break
            raise DataError(f"{path} is damaged in line {number + 1} ({error}).") from error
        marks.append((kind, ids))
    return marks
