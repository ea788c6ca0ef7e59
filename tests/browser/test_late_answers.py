"""Answers that come in another order than they were asked for, or too late, or not at all."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.chromium import Page
from tests.browser.conftest import Runs
from tests.browser.test_map import legend

pytestmark = pytest.mark.browser
_LATE = 0.7  # seconds


def go(page: Page, *hashes: str) -> None:
    """To one address after another: to the second when the first has been asked about, before it is answered."""
    before = page.run("return window.nDelayed")
    for hash_ in hashes:
        page.run("location.hash = arguments[0]", hash_)
        page.wait(lambda: page.run("return window.nDelayed") > before)


def test_a_user_chosen_while_the_view_is_made_is_the_one_that_is_shown(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open("#/run")
    page.one(".tile")
    page.settled()
    first, second = runs.others[:2]
    page.delay(f"/users/{first}", _LATE)
    go(page, f"#/user/{first}", f"#/user/{second}")
    page.late()
    assert page.text(".person-head h2") == second
    page.one(".card")


def test_a_map_asked_for_anew_while_it_is_made_shows_what_was_asked_last(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open(f"#/user/{runs.buyer}")
    page.one(".card")
    page.run("sessionStorage.clear()")
    page.open("#/compare")
    page.one(".pick-one")
    page.delay("/schema", _LATE)
    go(page, "#/map", f"#/map?color=condition&user={runs.buyer}")
    page.late()
    page.one(".map-chart .scatterlayer")
    page.wait(lambda: {"unused", "recommended"} <= set(legend(page)))
    page.settled()


def test_a_view_that_could_not_be_made_is_made_by_its_tab(day_page: Page) -> None:
    page = day_page
    page.open("#/run")
    page.one(".tile")
    page.delay("/runs", 0, fails=True)
    page.one("#tabs a", "Compare").click()
    assert "does not answer" in page.text("[role=alert]")
    page.undelay()
    page.one("#tabs a", "Compare").click()
    page.one(".pick-one")


def test_a_failure_of_a_view_that_was_left_is_not_shown(day_page: Page) -> None:
    page = day_page
    page.open("#/run")
    page.one(".tile")
    page.delay("/runs", _LATE, fails=True)
    go(page, "#/compare", "#/user")
    page.one(".pick-one")
    page.late()
    assert not page.all("[role=alert].problem-box")
    assert page.all(".pick-one")


def test_the_colour_chosen_last_stays(day_page: Page) -> None:
    page = day_page
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.settled()
    page.delay("color=condition", _LATE)
    for name in ("condition", "payer"):
        Select(page.field("Coloured by")).select_by_visible_text(name)
    page.late()
    assert "seller pays" in legend(page)
    assert page.announced() == "The map is coloured by payer."
    page.one("summary", "The same as a table").click()
    assert page.text("#main caption") == "Items shown, by payer"


def test_the_user_and_the_item_chosen_last_stay(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open("#/map")
    page.one(".map-chart .scatterlayer")
    page.settled()
    first, second = runs.others[:2]
    page.delay(f"/users/{first}", _LATE)
    go(page, f"#/map?user={first}", f"#/map?user={second}")
    page.late()
    page.one("summary", "The same as a table").click()
    assert page.text(".as-table > .table-box:last-child caption") == f"What is marked for {second}"
    one, other = runs.market.html_item, runs.market.long_item
    page.delay(f'"item":"{one}"', _LATE)
    go(page, f"#/map?item={one}", f"#/map?item={other}")
    page.late(2)
    assert page.one(".map-side h2").text.startswith("Donau")
    chosen = "return document.querySelector('.map-chart').data.find((trace) => trace.name === 'chosen').customdata"
    assert page.run(chosen) == [other]


def test_the_newcomer_is_answered_as_they_are_now(day_page: Page) -> None:
    page = day_page
    page.open("#/new?user.age=50-59")
    page.one(".card")
    page.settled()
    wanted = page.texts(".card-title")
    page.open("#/new")
    page.one(".card")
    page.settled()
    page.delay('"age":"20-29"', _LATE)
    Select(page.field("age")).select_by_visible_text("20-29")
    page.wait(lambda: page.all(".list[aria-busy=true]"))
    Select(page.field("age")).select_by_visible_text("50-59")
    page.wait(lambda: page.texts(".card-title") == wanted)
    change = page.text(".changed")
    page.late()
    assert page.texts(".card-title") == wanted
    assert page.text(".changed") == change


def test_enter_takes_what_the_words_that_stand_there_find(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open()
    page.one(".pick-one")
    field = page.field("Find a user")
    field.click()
    page.one(".found [role=option]")
    page.delay("q=", 0.3)
    field.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, runs.buyer, Keys.ENTER)
    assert page.text(".person-head h2") == runs.buyer
    page.settled()


def test_a_press_on_the_list_of_what_was_found_leaves_it_open(day_page: Page) -> None:
    page = day_page
    page.open()
    page.one(".pick-one")
    page.field("Find a user").click()
    page.one(".found [role=option]")
    press = "return document.querySelector('.found').dispatchEvent(new MouseEvent('mousedown', { bubbles: true, cancelable: true }))"
    assert page.run(press) is False
