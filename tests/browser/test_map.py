"""The map of items."""

from __future__ import annotations

import pytest
from selenium.webdriver.support.ui import Select

from tests.browser.accessibility import faults
from tests.browser.chromium import Page
from tests.browser.conftest import Runs

pytestmark = pytest.mark.browser


def legend(page: Page) -> list[str]:
    return page.texts(".map-chart .legendtext")


def test_the_colour_can_be_switched_to_any_field(page: Page) -> None:
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.settled()
    assert "Concert" in legend(page)
    choice = Select(page.field("Coloured by"))
    choice.select_by_visible_text("condition")
    page.wait(lambda: "unused" in legend(page))
    assert page.run("return location.hash") == "#/map?color=condition"
    page.one("summary").click()
    assert "unused" in page.text("#main table")
    choice.select_by_visible_text("price")
    page.one(".map-chart .colorbar")
    assert faults(page) == []


def test_a_users_items_are_marked_and_a_found_item_shows_what_is_alike(page: Page, runs: Runs) -> None:
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.search("Mark a user", runs.buyer)
    page.wait(lambda: {"history", "recommended"} <= set(legend(page)))
    page.search("Find an item", "unused")
    page.one(".near li")
    page.wait(lambda: {"most alike", "chosen"} <= set(legend(page)))
    near = page.all(".near button")
    assert len(near) == 8
    title = near[0].text
    near[0].click()
    page.wait(lambda: page.text(".map-side h2") == title)
    page.settled()
    assert faults(page) == []


def test_a_click_on_a_point_chooses_its_item(page: Page) -> None:
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.settled()
    place = page.run("""
        const point = document.querySelector(".map-chart .scatterlayer .point").getBoundingClientRect();
        return [point.x + point.width / 2, point.y + point.height / 2];""")
    for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
        event = {
            "type": kind,
            "x": place[0],
            "y": place[1],
            "button": "left" if kind != "mouseMoved" else "none",
            "buttons": buttons,
        }
        page.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {**event, "clickCount": 1})
    page.one(".near li")
    assert "item=" in page.run("return location.hash")


def test_another_theme_draws_in_other_colours(page: Page) -> None:
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.settled()
    colour = "return document.querySelector('.map-chart .scatterlayer .point').style.fill"
    before = page.run(colour)
    page.one("#theme").click()
    page.wait(lambda: page.run(colour) != before)
