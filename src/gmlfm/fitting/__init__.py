"""From data and settings to a fitted run: split, encode, train, choose on validation, and perhaps train again."""

from __future__ import annotations

from gmlfm.fitting.fit import fit
from gmlfm.fitting.labels import labelled
from gmlfm.fitting.run import FittedRun, Refit

__all__ = ["FittedRun", "Refit", "fit", "labelled"]
