"""From data and settings to fitted scores: split, encode, train, choose on validation, and perhaps train again."""

from __future__ import annotations

from gmlfm.fitting.fit import fit
from gmlfm.fitting.memory import labelled
from gmlfm.fitting.run import FittedRun, Refit

__all__ = ["FittedRun", "Refit", "fit", "labelled"]
