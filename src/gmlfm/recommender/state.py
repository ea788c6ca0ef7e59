"""What a Recommender answers from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gmlfm.fitting import FittedRun
from gmlfm.recommender.following import following
from gmlfm.recommender.observed import Observed
from gmlfm.recommender.run_index import RunIndex
from gmlfm.recommender.stock import Stock
from gmlfm.runs import RunFolder


@dataclass(frozen=True)
class State:
    """What is fitted, what is looked up of it, what can be had and what users did since: replaced as a whole, so that no thread
    sees two of them mixed."""

    run: FittedRun
    index: RunIndex
    stock: Stock
    observed: Observed

    @classmethod
    def of(cls, run: FittedRun, marks: Mapping[str, str] | None = None, observed: Observed | None = None) -> State:
        index = RunIndex(run)
        return cls(run, index, Stock.over(run.encoder, marks), Observed(index) if observed is None else observed.over(index))

    def in_folder(self, folder: RunFolder) -> State:
        """With what is marked and observed there, by others, too; what was read before is not read again."""
        marks, observed = folder.marks(), following(self.observed, folder, folder.observed())
        stock = self.stock if marks == self.stock.marks else Stock.over(self.run.encoder, marks)
        return replace(self, stock=stock, observed=observed)

    def without_observed(self, user: str) -> State:
        return replace(self, observed=self.observed.without(user))
