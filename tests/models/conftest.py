from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Weights are drawn from torch's generator: seeded for each test, and as before after it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
