"""Tuning and comparing under equal budgets. Every choice is made on validation; the test part is looked at once, at the end."""

from __future__ import annotations

from gmlfm.tuning.budget import Budget
from gmlfm.tuning.comparison import compare
from gmlfm.tuning.plan import Plan
from gmlfm.tuning.rows import Comparison
from gmlfm.tuning.search import Search
from gmlfm.tuning.study import Tuned, tune

__all__ = ["Budget", "Comparison", "Plan", "Search", "Tuned", "compare", "tune"]
