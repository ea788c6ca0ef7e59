from __future__ import annotations

from collections.abc import Iterator

import pytest

from gmlfm.training.objectives import GROUPED, OBJECTIVES


@pytest.fixture
def loss_registry() -> Iterator[None]:
    """Losses that a test registers are gone after it."""
    losses, grouped = dict(OBJECTIVES), set(GROUPED)
    yield
    OBJECTIVES.clear()
    OBJECTIVES.update(losses)
    GROUPED.intersection_update(grouped)
