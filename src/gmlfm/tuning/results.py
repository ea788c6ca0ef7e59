"""What a comparison keeps of each method: the settings chosen, and by seed the tested queries and the seconds they took."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.errors import DataError
from gmlfm.reading import READ_ERRORS, parse_json, read_parquet, reason
from gmlfm.storage import new_file, write_text
from gmlfm.tuning.study import Tuned

Queries = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Final:
    """A final training with one seed, its test included. epochs, best_epoch: before a refit, 0 where the model is fitted at
    once; given: the `epochs` that it had instead of its settings', 0 for theirs."""

    seconds: float
    epochs: int = 0
    best_epoch: int = 0
    given: int = 0


def file_name(model: str) -> str:
    """Of a model named module:Class, too: some file systems allow no colon."""
    return model.replace(":", ".")


class Results:
    """The folder `results` of a comparison."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "results"

    def choose(self, tuned: Tuned) -> Tuned:
        """What was chosen is written down before it is tested: the table shows what was tested, whatever a study does later."""
        write_text(self._choice(tuned.model), json.dumps(asdict(tuned), indent=1) + "\n")
        return tuned

    def chosen(self, model: str) -> Tuned | None:
        path = self._choice(model)
        if not path.exists():
            return None
        try:
            return Tuned(**parse_json(path.read_text(encoding="utf-8")))
        except READ_ERRORS as error:
            raise DataError(f"{path} is damaged ({reason(error)}); remove it and run the comparison again.") from error

    def tested(self, model: str) -> Tuned:
        tuned = self.chosen(model)
        if tuned is None:
            raise DataError(f"{self._choice(model)} is missing; run the comparison again.")
        return tuned

    def add(self, model: str, seed: int, queries: Queries, seconds: float, **more: int) -> None:
        """The queries last: a seed that has them is done. more: of a `Final`."""
        write_text(self._seconds(model, seed), json.dumps(asdict(Final(seconds, **more))) + "\n")
        with new_file(self._queries(model, seed)) as draft:
            pl.DataFrame(queries).write_parquet(draft)

    def has(self, model: str, seed: int) -> bool:
        """A result that cannot be read is made again."""
        try:
            self.seconds(model, seed)
            return read_parquet(self._queries(model, seed)).height > 0
        except (DataError, *READ_ERRORS):
            return False

    def queries(self, model: str, seed: int) -> Queries:
        path = self._queries(model, seed)
        try:
            frame = read_parquet(path)
            return {name: frame[name].to_numpy() for name in frame.columns}
        except READ_ERRORS as error:
            raise DataError(f"{path} is missing or damaged ({reason(error)}); run the comparison again.") from error

    def seconds(self, model: str, seed: int) -> float:
        return self.final(model, seed).seconds

    def final(self, model: str, seed: int) -> Final:
        path = self._seconds(model, seed)
        try:
            about = parse_json(path.read_text(encoding="utf-8"))
            return Final(float(about["seconds"]), *(int(about.get(name, 0)) for name in ("epochs", "best_epoch", "given")))
        except READ_ERRORS as error:
            raise DataError(f"{path} is missing or damaged ({reason(error)}); run the comparison again.") from error

    def _choice(self, model: str) -> Path:
        return self._folder / f"{file_name(model)}.json"

    def _queries(self, model: str, seed: int) -> Path:
        return self._folder / f"{file_name(model)}-{seed}.parquet"

    def _seconds(self, model: str, seed: int) -> Path:
        return self._folder / f"{file_name(model)}-{seed}.json"
