"""A run behind HTTP: `create_app(recommender)` makes the application that `gmlfm serve` runs."""

from __future__ import annotations

from gmlfm.serve.app import create_app
from gmlfm.serve.options import ServeOptions

__all__ = ["ServeOptions", "create_app"]
