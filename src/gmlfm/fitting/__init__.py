"""From data and settings to fitted scores: split, encode, train, choose on validation, and perhaps train again."""

from __future__ import annotations

from gmlfm.fitting.fit import fit
from gmlfm.fitting.fitted import Fitted, Refit
from gmlfm.fitting.memory import labelled

__all__ = ["Fitted", "Refit", "fit", "labelled"]
