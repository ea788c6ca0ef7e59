"""The run's own page, two runs side by side, and the token."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.accessibility import faults
from tests.browser.chromium import Page
from tests.browser.conftest import TOKEN, Runs

pytestmark = pytest.mark.browser


def test_the_run_shows_metrics_curve_and_card(page: Page) -> None:
    page.open("#/run")
    page.one(".js-plotly-plot .scatterlayer")
    page.settled()
    assert "gml-fm" in page.text("h1")
    assert len(page.all(".tile")) >= 2
    page.one("summary", "The same as a table").click()
    assert len(page.all("#main tbody tr")) == 3
    assert "probabilities" in page.text(".limits")
    assert faults(page) == []


def test_the_run_can_be_changed(page: Page, runs: Runs) -> None:
    page.open(f"#/user/{runs.buyer}")
    page.one(".card")
    Select(page.one("#run")).select_by_index(1)
    page.wait(lambda: "run=second" in page.run("return location.hash"))
    page.one(".card")
    page.settled()
    page.one("#tabs a", "Run").click()
    page.wait(lambda: page.text("h1").startswith("fm on"))
    assert faults(page) == []


def test_two_runs_are_shown_side_by_side(page: Page, runs: Runs) -> None:
    page.open("#/compare")
    page.one(".pick-one")
    assert faults(page) == []
    page.search("For which user", runs.buyer)
    page.one(".agreement")
    page.settled()
    assert [column.text for column in page.all(".columns.two h2")] == ["first", "second"]
    both = int(page.text(".agreement strong").split()[0])
    left, right = (
        {card.get_attribute("data-item") for card in column.find_elements("css selector", ".card")}
        for column in page.all(".columns.two > section")
    )
    assert len(left) == len(right) == 10
    assert both == len(left & right)
    page.one(".card-title").click()
    page.one("#reasons .js-plotly-plot .bars")
    page.settled()
    assert faults(page) == []


def test_a_token_is_asked_for_and_kept_for_the_tab(locked_page: Page, runs: Runs) -> None:
    page = locked_page
    page.open(f"#/user/{runs.buyer}")
    page.one("#token-input").send_keys("not-the-token", Keys.ENTER)
    page.wait(lambda: "not the token" in page.text("#token-problem"))
    assert faults(page) == []
    page.one("#token-input").send_keys(TOKEN, Keys.ENTER)
    page.one(".card")
    page.gone("#token")
    refused = [line for line in page.console() if "401" not in line]
    assert refused == []
    page.open("#/compare")
    assert "Only one run is served" in page.text(".empty")
    assert page.console() == []
    assert page.run("return sessionStorage.getItem('gmlfm-token')") == TOKEN


def test_keys_alone_lead_through_the_page(page: Page) -> None:
    page.open()
    page.one(".pick-one")
    body = page.one("body")
    body.send_keys(Keys.TAB)
    assert page.run("return document.activeElement.textContent") == "Skip to the content"
    page.run("return document.activeElement").send_keys(Keys.ENTER)
    assert page.run("return document.activeElement.id") == "main"
    page.run("return document.activeElement").send_keys(Keys.TAB)
    assert page.run("return document.activeElement.getAttribute('role')") == "combobox"
    page.run("return document.activeElement").send_keys("b")
    page.one(".found [role=option]")
    page.run("return document.activeElement").send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    page.one(".card")
