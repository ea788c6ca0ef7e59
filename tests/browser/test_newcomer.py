"""Somebody new: the form made from the schema, and a list that answers each click."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.accessibility import faults
from tests.browser.chromium import Page

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


def test_reasons_of_a_newcomers_recommendation(page: Page) -> None:
    page.open("#/new?user.age=20-29")
    page.one(".card-title").send_keys(Keys.ENTER)
    page.one("#reasons .js-plotly-plot .bars")
    page.settled()
    assert faults(page) == []
