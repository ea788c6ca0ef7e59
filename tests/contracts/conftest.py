from __future__ import annotations

from collections.abc import Iterator

import pytest

from gmlfm.models.registry import MODELS, register
from tests.contracts.foreign import FOREIGN


@pytest.fixture(scope="package", autouse=True)
def _registered() -> Iterator[None]:
    """Other people's models have their names here, and nowhere else."""
    built_in = dict(MODELS)
    for name, cls in FOREIGN.items():
        register(name)(cls)
    yield
    MODELS.clear()
    MODELS.update(built_in)
