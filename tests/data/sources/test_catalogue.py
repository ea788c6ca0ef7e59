from __future__ import annotations

import pytest

from gmlfm.data.sources.bazaar import BUILT_IN
from gmlfm.data.sources.catalogue import SOURCES


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in BUILT_IN])
def test_every_source_can_be_had_and_loaded(name: str) -> None:
    source = SOURCES[name]
    assert source.url or source.needs
    assert source.convert or source.described, "nothing gives it a dataset.toml"
    assert source.url is None or source.md5
