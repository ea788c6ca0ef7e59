"""The built-in second-hand market: made up, seeded, the same on every machine; and the oracle that knows true preferences."""

from __future__ import annotations

from gmlfm.data.sources.bazaar.market import Block, Market
from gmlfm.data.sources.bazaar.oracle import Oracle
from gmlfm.data.sources.bazaar.tables import bazaar_dataset, write_bazaar

__all__ = ["Block", "Market", "Oracle", "bazaar_dataset", "write_bazaar"]
