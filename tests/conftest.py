from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from gmlfm import Schema
from gmlfm.data.prepared import PreparedData
from gmlfm.data.sources.bazaar import Market, write_bazaar
from gmlfm.data.sources.preparing import prepare
from gmlfm.storage import cache_folder

# Compiled kernels are the same for every test; each in a cache of its own would compile them anew.
os.environ.setdefault("GMLFM_KERNEL_CACHE", str(cache_folder() / "kernels"))
# Small tensors on two threads cost more than on one.
torch.set_num_threads(1)
settings.register_profile("fast", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(autouse=True)
def _no_outside_data(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test may find a dataset in the developer's own folders."""
    monkeypatch.delenv("GMLFM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="session")
def small_market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a market of 300 buyers. Read-only.

    Its version is pinned: losses of so few rows are compared with bounds, which a new market would move.
    """
    folder = tmp_path_factory.mktemp("market") / "m"
    write_bazaar(Market(n_users=300, n_purchases=3_600, version=2), folder)
    return folder


@pytest.fixture(scope="session")
def small_prepared(small_market: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """The same in several shards. Read-only."""
    schema = Schema.from_toml(small_market / "dataset.toml")
    return prepare(schema, small_market, tmp_path_factory.mktemp("p") / "p", rows_per_bucket=1_000)
