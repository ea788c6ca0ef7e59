"""A service on a free port, started as people start it, and pages of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gmlfm import Recommender
from tests.browser.market import SmallMarket, bare_market, small_market
from tests.browser.serving import served

if TYPE_CHECKING:
    from tests.browser.chromium import Page

# What drives Chromium is installed by `make browser` alone.
collect_ignore_glob = [] if find_spec("selenium") else ["test_*.py"]
TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True)
class Runs:
    folders: tuple[Path, ...]
    market: SmallMarket

    @property
    def buyer(self) -> str:
        return self.market.buyer

    @property
    def others(self) -> list[str]:
        """Other buyers, in the order of the data."""
        return [str(user) for user in self.market.data.users.ids if str(user) != self.buyer]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Three runs on a small market, named first, second and third; and one on data without fields, named bare."""
    folder = tmp_path_factory.mktemp("browser")
    market = small_market(folder / "market")
    first, second, third, bare = folders = tuple(folder / name for name in ("first", "second", "third", "bare"))
    Recommender("gml-fm", k=8, epochs=3, threads=1, seed=0).fit(market.data, out=first)
    Recommender("fm", k=8, epochs=2, threads=1, seed=1).fit(market.data, out=second)
    Recommender("popularity").fit(market.data, out=third)
    Recommender("gml-fm", k=4, epochs=1, threads=1, seed=0).fit(bare_market(), out=bare)
    return Runs(folders, market)


@pytest.fixture(scope="session")
def url(runs: Runs) -> Iterator[str]:
    with served(*map(str, runs.folders)) as address:
        yield address


@pytest.fixture(scope="session")
def url_of_one(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One run, behind a token."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN, encoding="utf-8")
    with served(str(runs.folders[0]), "--token-file", str(file)) as address:
        yield address


@pytest.fixture(scope="session")
def tab() -> Iterator[Page]:
    from tests.browser.chromium import chromium

    with chromium("about:blank") as page:
        yield page


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def dressed(tab: Page, address: str, theme: str) -> Page:
    """A tab that remembers nothing of the tests before."""
    from tests.browser.chromium import DESKTOP

    tab.url = address.rstrip("/")
    tab.driver.get(f"{tab.url}/static/icon.svg")
    tab.run("sessionStorage.clear(); localStorage.clear();")
    tab.size(*DESKTOP)
    tab.prefer(theme)
    tab.console()
    return tab


@pytest.fixture
def page(tab: Page, url: str, theme: str) -> Iterator[Page]:
    """In light and in dark colours. Nothing may have been written to the console in the end."""
    yield dressed(tab, url, theme)
    assert tab.console() == []


@pytest.fixture
def day_page(tab: Page, url: str) -> Iterator[Page]:
    """In light colours alone, for what colours have no part in."""
    yield dressed(tab, url, "light")
    assert tab.console() == []


@pytest.fixture
def locked_page(tab: Page, url_of_one: str, theme: str) -> Page:
    """Of a service that asks for a token, which the console is told of by the browser itself."""
    return dressed(tab, url_of_one, theme)
