"""The map of items."""

from __future__ import annotations

import polars as pl
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.accessibility import faults
from tests.browser.chromium import Page
from tests.browser.conftest import Runs

pytestmark = pytest.mark.browser
_TRACES = "document.querySelector('.map-chart').data"


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
    counts = page.run(f"return Object.fromEntries({_TRACES}.map((trace) => [trace.name, trace.x.length]))")
    n_earlier = runs.market.data.interactions.filter(pl.col("user") == runs.market.data.users.ids.to_list().index(runs.buyer))
    assert (counts["history"], counts["recommended"]) == (n_earlier["item"].n_unique(), 10)
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


def test_sets_and_fields_of_many_values_are_grouped(page: Page) -> None:
    page.open("#/map?color=tags")
    page.one(".map-chart .scatterlayer")
    page.settled()
    assert set(legend(page)) == {"family", "late", "none", "not known"}
    page.open("#/map?color=brand")
    page.one(".map-chart .scatterlayer")
    page.settled()
    groups = legend(page)
    assert groups[0] == "all others"
    assert len(groups) == 12
    assert "not known" not in groups
    assert faults(page) == []


def test_a_user_that_is_not_known_leaves_the_map(day_page: Page) -> None:
    page = day_page
    page.open("#/map?user=nobody-of-that-name")
    page.one(".map-chart .scatterlayer")
    page.settled()
    assert "not known" in page.text(".map-note [role=alert]")
    assert "Concert" in legend(page)
    assert "recommended" not in legend(page)
    page.one(".map-user button").click()
    page.gone(".map-note [role=alert]")
    page.console()


def test_data_without_item_fields_have_a_map(page: Page) -> None:
    page.open("#/map?run=bare")
    page.one(".map-chart .scatterlayer")
    page.settled()
    assert page.run(f"return {_TRACES}.map((trace) => [trace.name, trace.x.length])") == [["items", 40]]
    assert not page.all("#map-color, .as-table")
    assert faults(page) == []


def ranges(page: Page) -> tuple[list[float], list[float]]:
    x, y = page.run("const { xaxis, yaxis } = document.querySelector('.map-chart').layout; return [xaxis.range, yaxis.range]")
    return x, y


def test_the_map_keeps_its_shape_and_can_be_zoomed_by_keys(page: Page, runs: Runs) -> None:
    page.open(f"#/map?user={runs.buyer}")
    page.one(".map-chart .scatterlayer")
    page.wait(lambda: "recommended" in legend(page))
    page.settled()

    def width() -> float:
        x, _ = ranges(page)
        return x[1] - x[0]

    units = "const { xaxis, yaxis } = document.querySelector('.map-chart')._fullLayout; return [xaxis._m, -yaxis._m]"
    whole = width()
    for name, is_so in (
        ("Zoom in", lambda: width() < 0.8 * whole),
        ("Whole map", lambda: abs(width() - whole) < 0.01),
        ("Zoom to marks", lambda: width() != whole),
    ):
        page.one(f".map-tools [aria-label='{name}']").send_keys(Keys.ENTER)
        page.wait(is_so)
        across, up = page.run(units)
        assert abs(across) == pytest.approx(abs(up), rel=1e-6)
    (left, right), (low, high) = ranges(page)
    for name in ("history", "recommended"):
        xs, ys = page.run(f"const marks = {_TRACES}.find((trace) => trace.name === '{name}'); return [marks.x, marks.y]")
        assert all(left < x < right for x in xs)
        assert all(low < y < high for y in ys)
    page.settled()


def test_another_theme_draws_in_other_colours(page: Page) -> None:
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.settled()
    colour = "return document.querySelector('.map-chart .scatterlayer .point').style.fill"
    before = page.run(colour)
    page.one("#theme").click()
    page.wait(lambda: page.run(colour) != before)
    page.run("window.left = document.querySelector('.map-chart')")
    page.one("#tabs a", "Run").click()
    page.one(".run-columns .scatterlayer")
    page.settled()
    assert page.run("return window.left._fullLayout === undefined"), "Plotly still keeps a chart that is gone"
