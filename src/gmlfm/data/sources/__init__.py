"""Where datasets come from: folders with a dataset.toml, and the names we know."""

from __future__ import annotations

from gmlfm.data.sources.named import load_dataset, load_toml

__all__ = ["load_dataset", "load_toml"]
