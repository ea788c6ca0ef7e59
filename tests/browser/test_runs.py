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
    marks = page.texts(".columns.two .mark")
    assert len(marks) == 20
    assert marks.count("only here") == 20 - 2 * both
    assert page.announced() == f"{both} of 10 are recommended by both."
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


def test_another_run_keeps_what_was_chosen(day_page: Page, runs: Runs) -> None:
    page = day_page
    items = (runs.market.html_item, runs.market.long_item)
    page.open(f"#/new?user.likes=music&user.likes=sport&item={items[0]}&item={items[1]}")
    page.one(".picked li")
    Select(page.one("#run")).select_by_index(1)
    page.wait(lambda: "run=second" in page.run("return location.hash"))
    page.wait(lambda: len(page.all(".picked li")) == 2)
    assert len(page.all(".toggle[aria-pressed=true]")) == 2
    assert str(page.one(".brand").get_attribute("href")).endswith("#/user?run=second")
    page.settled()


def test_a_comparison_searches_the_users_of_its_own_run(day_page: Page) -> None:
    page = day_page
    page.open("#/compare?left=bare&right=first")
    page.one(".pick-one", "user ")
    page.search("For which user", "user 1")
    page.one(".agreement, [role=alert]")
    page.settled()
    page.console()  # the other run does not know this user


def test_where_charts_cannot_be_had_the_rest_is_there(day_page: Page) -> None:
    page = day_page
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*plotly*"]})
    page.open("#/run")
    assert "could not be fetched" in page.text(".chart [role=alert]")
    assert page.all(".tile")
    assert page.all(".limits li")
    page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    page.one(".chart button", "Try again").click()
    page.one(".js-plotly-plot .scatterlayer")
    page.settled()
    page.console()


def test_what_is_kept_is_asked_for_again_after_a_reload(day_page: Page) -> None:
    page = day_page
    page.open("#/run")
    page.one(".tile")
    page.settled()
    counts = page.script(
        """
        const api = await import("/static/api.js");
        const ask = window.fetch.bind(window);
        let check = "the one before";
        let asked = 0;
        window.fetch = async (address, options) => {
          asked += String(address).startsWith("/schema");
          const content = await (await ask(address, options)).json();
          return new Response(JSON.stringify({ ...content, run: { ...content.run, check } }));
        };
        await api.users("");
        await api.schema();
        await api.schema();
        const before = asked;
        check = "the one after";
        await api.users("");
        await api.schema();
        return [before, asked];"""
    )
    assert counts == [1, 2]


def test_a_late_refusal_of_an_earlier_token_asks_nobody_again(locked_page: Page, runs: Runs) -> None:
    page = locked_page
    page.open("#/run")
    page.one("#token-input").send_keys(TOKEN, Keys.ENTER)
    page.one(".tile")
    page.settled()
    page.run("sessionStorage.setItem('gmlfm-token', 'one-that-is-old')")
    page.delay("/users", 0.8)
    page.run("location.hash = '#/user'")
    page.wait(lambda: page.run("return document.querySelector('.loading') !== null"))
    page.run("sessionStorage.setItem('gmlfm-token', arguments[0])", TOKEN)
    page.undelay()
    page.one(".pick-one")
    assert page.run("return document.getElementById('token').open") is False
    page.console()


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
