"""The built-in second-hand market: made up, seeded, the same on every machine; and the oracle that knows true preferences."""

from __future__ import annotations

from gmlfm.data.sources.bazaar.market import Block, Market
from gmlfm.data.sources.bazaar.oracle import Oracle
from gmlfm.data.sources.bazaar.tables import bazaar_dataset, write_bazaar
from gmlfm.data.sources.bazaar.versions import BUILT_IN, built_in

__all__ = ["BUILT_IN", "Block", "Market", "Oracle", "bazaar_dataset", "built_in", "write_bazaar"]
