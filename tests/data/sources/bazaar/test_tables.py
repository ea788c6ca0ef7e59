from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import load_dataset, make_split
from gmlfm.data.sources.bazaar import Market, bazaar_dataset, write_bazaar
from gmlfm.errors import DataError

# A change of the market is a new version (market.VERSION), named in CHANGELOG, never another hash alone.
BAZAAR_HASH = "65bd46807d69b607"
V2_HASH = "09311d3f9fc7b2ce"

SMALL = Market(n_users=300, n_purchases=3_600)


def test_the_built_in_market_is_the_same_everywhere() -> None:
    data = load_dataset("bazaar")
    assert data.content_hash == BAZAAR_HASH
    assert (len(data.seen_users), data.n_interactions) == (3_855, 46_712)
    assert 45_800 < len(data.seen_items) < 46_300
    assert data.warnings == ()
    counts = np.bincount(data.item_numbers)[data.seen_items]
    assert (counts == 1).mean() > 0.99
    assert counts.max() >= 5
    # Half of the buyers have a past of eight purchases and more when they buy their last one.
    assert np.bincount(data.user_numbers).min() >= 5
    assert np.median(np.bincount(data.user_numbers)) >= 9
    assert len(data.items) - len(data.seen_items) == 8_843


def test_version_2_is_the_same_everywhere() -> None:
    data = load_dataset("bazaar-v2")
    assert (data.name, data.content_hash) == ("bazaar-v2", V2_HASH)
    assert (len(data.seen_users), len(data.seen_items), data.n_interactions) == (3_855, 46_067, 46_712)
    assert len(data.items) - len(data.seen_items) == 8_841
    assert bazaar_dataset(replace(SMALL, version=2)).content_hash == "565907f94edd1c38"


def test_the_tables_declare_listing_times_so_that_what_can_be_had_is_known() -> None:
    data = load_dataset("bazaar")
    assert data.sells_once
    assert data.items.listed is not None
    assert data.items.listed.null_count() == 0
    assert data.availability is not None
    times, listed = data.interactions["time"].to_numpy(), data.items.listed.to_numpy()
    assert (listed[data.item_numbers] <= times).all()
    assert make_split(data).name == "global-time"


def test_purchases_of_version_2_are_those_of_version_1() -> None:
    data = load_dataset("bazaar-v2")
    assert data.items.titles is not None
    rows = pl.DataFrame(
        {
            "user": data.users.ids.gather(data.user_numbers),
            "time": data.interactions["time"],
            "title": data.items.titles.gather(data.item_numbers),
            "price": data.items.fields["price"].gather(data.item_numbers),
        }
    )
    assert hashlib.sha256(rows.write_csv().encode()).hexdigest()[:16] == "7379282c3a0334a5"


def test_another_seed_is_another_market() -> None:
    hashes = {bazaar_dataset(Market(300, 3_600, seed)).content_hash for seed in (0, 0, 1)}
    assert len(hashes) == 2


def test_titles_are_readable() -> None:
    data = bazaar_dataset(SMALL)
    assert data.items.titles is not None
    assert data.items.titles.str.contains(r"^.+ by .+, .+, .+, ships in .+$").all()


def test_written_in_blocks_it_is_the_market_in_memory(tmp_path: Path) -> None:
    large = Market(n_users=9_000, n_purchases=60_000)
    assert large.n_blocks > 1
    reports: list[tuple[int, int]] = []
    write_bazaar(large, tmp_path / "m", lambda *report: reports.append(report))
    assert reports[-1] == (large.n_blocks, large.n_blocks)
    data = load_dataset(tmp_path / "m")
    assert data.content_hash == bazaar_dataset(large).content_hash
    assert data.n_interactions == 60_000
    assert data.name == "bazaar-9000-60000-0"
    assert data.items.ids.n_unique() == len(data.items) > len(data.seen_items) + 5_000


def test_a_market_that_does_not_fit_on_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DataError, match=r"need about .* GiB, but .* has 0\.0 GiB free"):
        write_bazaar(SMALL, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
