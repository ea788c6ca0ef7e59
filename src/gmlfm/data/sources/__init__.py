"""Where datasets come from: folders with a dataset.toml, and the named sources of the catalogue."""

from __future__ import annotations

from gmlfm.data.sources.named import data_roots, load_dataset

__all__ = ["data_roots", "load_dataset"]
