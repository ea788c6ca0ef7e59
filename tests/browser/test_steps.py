"""Back and forward, the keyboard, where the focus is, what is read aloud, and a machine without a network."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.chromium import Page, chromium
from tests.browser.conftest import Runs
from tests.browser.test_map import legend

pytestmark = pytest.mark.browser


def test_back_and_forward_go_through_users(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open("#/user")
    page.one(".pick-one")
    for user in (runs.buyer, runs.others[0]):
        page.search("Find a user", user)
        assert page.one(".person-head h2", user)
    page.driver.back()
    assert page.one(".person-head h2", runs.buyer)
    page.driver.back()
    page.one(".pick-one")
    page.driver.forward()
    assert page.one(".person-head h2", runs.buyer)
    page.settled()


def test_back_takes_away_what_was_chosen_on_the_map(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.search("Mark a user", runs.buyer)
    page.wait(lambda: "recommended" in legend(page))
    page.search("Find an item", "unused")
    page.one(".near li")
    page.driver.back()
    assert page.one(".map-side .empty-title", "Choose an item")
    assert page.one(".map-user .pill", runs.buyer)
    page.driver.back()
    page.gone(".map-user .pill")
    page.wait(lambda: "recommended" not in legend(page))


def test_back_leads_from_a_comparison_to_the_choice(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open("#/compare")
    page.one(".pick-one").click()
    page.one(".agreement")
    page.driver.back()
    page.one(".pick-one")
    page.settled()


def test_the_focus_stays_where_something_was_picked_or_taken_away(day_page: Page) -> None:
    page = day_page
    page.open("#/new")
    for n in (1, 2):
        page.one(".take")
        page.settled()
        page.run("document.querySelectorAll('.take')[3].focus()")
        page.press(Keys.ENTER)
        page.wait(lambda n=n: len(page.all(".picked li")) == n)
        page.wait(lambda: page.all(".mark.fresh, .mark.up, .mark.down"))
        page.settled()
        assert page.focused() == "take"
    page.run("document.querySelector('.picked button').focus()")
    page.press(Keys.ENTER)
    page.wait(lambda: len(page.all(".picked li")) == 1)
    assert page.focused() == "round small"
    page.press(Keys.ENTER)
    page.wait(lambda: not page.all(".picked li"))
    assert page.focused("role") == "combobox"
    page.settled()
    assert not [found for found in page.all(".found") if found.is_displayed()]


def test_the_focus_goes_to_what_took_the_place_of_a_button(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open("#/user")
    page.one(".pick-one")
    page.run("document.querySelector('.pick-one').focus()")
    page.press(Keys.ENTER)
    page.one(".card")
    assert page.focused() == "person"
    page.run("document.querySelector('.card-title').focus()")
    page.press(Keys.ENTER)
    page.one("#reasons .bars")
    page.one("#reasons [aria-label=Close]").send_keys(Keys.ENTER)
    page.gone("#reasons")
    assert page.focused() == "card-title"
    page.open(f"#/map?user={runs.buyer}&item={runs.market.html_item}")
    page.one(".near .link")
    page.settled()
    page.run("document.querySelector('.near .link').focus()")
    page.press(Keys.ENTER)
    page.wait(lambda: runs.market.html_item not in page.run("return location.hash"))
    page.settled()
    assert page.focused().startswith("panel map-side")
    page.run("document.querySelector('.map-user button').focus()")
    page.press(Keys.ENTER)
    page.gone(".map-user .pill")
    assert page.focused("role") == "combobox"


def test_what_is_shown_is_read_aloud(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open(f"#/user/{runs.buyer}")
    page.one(".card")
    page.wait(lambda: page.announced().endswith("12 recommendations."))
    assert f"in the history of {runs.buyer}" in page.announced()
    assert page.run("return document.title") == f"{runs.buyer} - User - gmlfm explorer"
    page.open("#/new")
    page.one(".card")
    page.wait(lambda: page.announced() == "12 recommendations.")
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.settled()
    assert page.announced() == "Map is shown."
    page.search("Mark a user", runs.buyer)
    page.wait(lambda: page.announced().startswith(f"Of {runs.buyer}, "))
    assert "10 recommendations are marked" in page.announced()
    page.search("Find an item", "unused")
    page.wait(lambda: page.announced().startswith("Chosen: "))
    assert not page.all(".map-side[aria-live]")


def test_all_views_work_without_a_network(url: str, runs: Runs) -> None:
    with chromium(url, ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]) as page:
        for view, shown in (
            (f"#/user/{runs.buyer}", ".card"),
            ("#/new", ".card"),
            ("#/map", ".scatterlayer"),
            ("#/run", ".scatterlayer"),
            (f"#/compare?user={runs.buyer}", ".agreement"),
        ):
            page.open(view)
            page.one(shown)
            page.settled()
        assert page.console() == []
