"""Tuning and comparing under equal budgets. Every choice is made on validation; the test part is looked at once, at the end."""

from __future__ import annotations

from gmlfm.tuning.comparison import Comparison, compare
from gmlfm.tuning.study import Budget, Tuned, tune

__all__ = ["Budget", "Comparison", "Tuned", "compare", "tune"]
