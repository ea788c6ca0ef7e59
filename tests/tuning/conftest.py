from __future__ import annotations

from pathlib import Path

import pytest

from gmlfm.data.sources.bazaar import Market, write_bazaar


@pytest.fixture(scope="session")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a market of 120 buyers. Read-only."""
    folder = tmp_path_factory.mktemp("tuning") / "market"
    write_bazaar(Market(n_users=120, n_purchases=1_200), folder)
    return folder
