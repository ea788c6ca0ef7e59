"""The built-in markets by name and by content hash: the newest is `bazaar`, older ones carry their version."""

from __future__ import annotations

from gmlfm.data.sources.bazaar.market import VERSIONS, Market
from gmlfm.errors import DataError

# Version -> the content hash of its market of default size and seed. A change is a new version, never another hash.
HASHES = {2: "09311d3f9fc7b2ce", 3: "65bd46807d69b607"}
BUILT_IN = {Market(version=version).name: Market(version=version) for version in reversed(VERSIONS)}
_BY_HASH = "bazaar@"


def built_in(name: str) -> Market | None:
    """The market of `bazaar`, `bazaar-v2`, or `bazaar@HASH`, which no new version changes; None for other names."""
    if not name.startswith(_BY_HASH):
        return BUILT_IN.get(name)
    content_hash = name.removeprefix(_BY_HASH)
    for version, known in HASHES.items():
        if content_hash == known:
            return Market(version=version)
    known_names = " and ".join(f"{_BY_HASH}{known} (version {version})" for version, known in HASHES.items())
    raise DataError(f"no built-in market has the hash '{content_hash[:40]}'; expected {known_names}.")
