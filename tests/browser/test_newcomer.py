"""Somebody new: the form made from the schema, and a list that answers each click."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.accessibility import faults
from tests.browser.chromium import Page
from tests.browser.conftest import Runs

pytestmark = pytest.mark.browser


def listed(page: Page) -> list[str]:
    page.settled()
    return [str(card.get_attribute("data-item")) for card in page.all(".recommended .card")]


def changed(page: Page, before: list[str]) -> list[str]:
    """The list, once it is another one."""
    page.wait(lambda: (now := [card.get_attribute("data-item") for card in page.all(".recommended .card")]) and now != before)
    return listed(page)


def test_each_choice_changes_the_list(page: Page) -> None:
    page.open("#/new")
    page.one(".card")
    first = listed(page)
    assert len(first) == 12
    Select(page.field("age")).select_by_visible_text("20-29")
    by_age = changed(page, first)
    page.field("budget").send_keys("45000")
    by_budget = changed(page, by_age)
    page.one(".toggle", "music").click()
    by_likes = changed(page, by_budget)
    Select(page.field("channel")).select_by_visible_text("app")
    page.wait(lambda: "context.channel=app" in page.run("return location.hash"))
    assert by_likes != first
    assert faults(page) == []


def test_picked_items_are_taken_into_account_and_left_out(page: Page) -> None:
    page.open("#/new")
    page.one(".card")
    first = listed(page)
    page.search("Items they chose", "unused")
    page.one(".picked li")
    after = changed(page, first)
    taken = page.one(".take")
    card = after[0]
    page.run("arguments[0].scrollIntoView({ block: 'center' })", taken)
    taken.click()
    page.wait(lambda: len(page.all(".picked li")) == 2)
    final = changed(page, after)
    assert card not in final
    assert page.all(".mark.fresh, .mark.up, .mark.down")
    assert faults(page) == []
    page.one(".picked button").click()
    page.wait(lambda: len(page.all(".picked li")) == 1)


def test_the_address_brings_the_same_newcomer_back(page: Page) -> None:
    page.open("#/new?user.age=20-29&user.budget=3000&user.likes=music&context.channel=web")
    page.one(".card")
    assert Select(page.field("age")).first_selected_option.text == "20-29"
    assert page.field("budget").get_attribute("value") == "3000"
    assert page.one(".toggle[aria-pressed=true]").text == "music"
    assert Select(page.field("channel")).first_selected_option.text == "web"
    without_item = listed(page)
    page.search("Items they chose", "unused")
    page.one(".picked li")
    with_item = changed(page, without_item)
    again = page.run("return location.hash")
    page.open(again)
    page.one(".picked li")
    assert listed(page) == with_item


def test_begin_anew_leaves_nothing_behind_and_back_brings_it_back(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open("#/new?run=second")
    page.one(".card")
    nothing = listed(page)
    query = f"user.age=20-29&user.likes=music&context.channel=web&item={runs.market.html_item}&run=second"
    page.run("location.hash = arguments[0]", f"#/new?{query}")
    page.one(".picked li")
    assert Select(page.field("age")).first_selected_option.text == "20-29"
    page.one("button", "Begin anew").click()
    page.gone(".picked li")
    assert page.run("return location.hash") == "#/new?run=second"
    assert listed(page) == nothing
    assert not page.all(".toggle[aria-pressed=true]")
    assert Select(page.field("age")).first_selected_option.text == "not known"
    Select(page.field("age")).select_by_visible_text("50-59")
    page.wait(lambda: page.run("return location.hash") == "#/new?user.age=50-59&run=second")
    page.driver.back()
    page.one(".picked li")
    assert page.one(".toggle[aria-pressed=true]").text == "music"
    page.settled()


def test_a_field_of_many_values_takes_any_text(page: Page) -> None:
    page.open("#/new")
    page.one(".card")
    field = page.field("campaign")
    assert len(page.all(f"#{field.get_attribute('id')}-list option")) == 200
    field.send_keys("campaign 229", Keys.TAB)
    page.wait(lambda: "context.campaign=campaign+229" in page.run("return location.hash"))
    hidden = page.run("return [...document.querySelectorAll('[aria-label=\"Another likes\"] + datalist option')].at(-1).value")
    page.one("[aria-label='Another likes']").send_keys(hidden, Keys.TAB)
    assert page.one(".toggle[aria-pressed=true]", hidden)
    page.wait(lambda: "user.likes=hobby" in page.run("return location.hash"))
    page.settled()
    assert faults(page) == []


def test_the_occasion_is_asked_about(day_page: Page) -> None:
    page = day_page
    page.open("#/new?context.channel=app")
    page.one(".card")
    page.settled()
    page.run(
        """
        window.bodies = [];
        const ask = window.fetch.bind(window);
        window.fetch = (address, options) => (window.bodies.push(options?.body ?? ""), ask(address, options));"""
    )
    Select(page.field("channel")).select_by_visible_text("web")
    page.wait(lambda: '"context":{"channel":"web"}' in "".join(page.run("return window.bodies")))
    page.settled()


def test_a_pick_is_dropped_only_where_the_item_is_not_known(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open("#/new?item=nothing-of-that-name")
    page.one(".card")
    assert "1 item of the address is not in this run" in page.text("form")
    page.console()
    page.delay("/items/", 0, fails=True)
    page.run("location.hash = arguments[0]", f"#/new?item={runs.market.html_item}")
    assert "does not answer" in page.text("[role=alert]")
    page.undelay()
    page.one("button", "Try again").click()
    page.one(".picked li")
    page.settled()


def test_reasons_of_a_newcomers_recommendation(page: Page) -> None:
    page.open("#/new?user.age=20-29")
    page.one(".card-title").send_keys(Keys.ENTER)
    page.one("#reasons .js-plotly-plot .bars")
    page.settled()
    assert faults(page) == []
