"""A user: search, history, recommendations, and the reasons of one."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.accessibility import faults
from tests.browser.chromium import PHONE, Page
from tests.browser.conftest import Runs
from tests.browser.market import HTML_TITLE

pytestmark = pytest.mark.browser


def test_searching_a_user_shows_history_and_recommendations(page: Page, runs: Runs) -> None:
    page.open()
    page.one(".pick-one")
    assert faults(page) == []
    page.search("Find a user", runs.buyer)
    assert page.text(".person-head h2") == runs.buyer
    page.settled()
    assert page.all(".timeline > li")
    assert page.text(".figures strong") == str(len(page.all(".timeline > li")))
    assert len(page.all(".recommended .card")) == 12
    assert page.run("return location.hash") == f"#/user/{runs.buyer}"
    assert faults(page) == []


def test_a_click_on_a_recommendation_shows_the_parts_of_its_score(page: Page, runs: Runs) -> None:
    page.open(f"#/user/{runs.buyer}")
    card = page.one(".card")
    score = float(card.find_element("css selector", ".score").text.split()[-1])
    title = page.one(".card-title")
    title.click()
    page.one("#reasons .js-plotly-plot .bars")
    page.settled()
    assert page.text("#reasons h2") == title.text.split("\n")[0]
    page.one("#reasons summary").click()
    page.one("#reasons tbody tr")
    rows = page.texts("#reasons tbody tr")
    shown = [float(row.split()[-1].replace("\u2212", "-")) for row in rows]
    assert shown[-1] == pytest.approx(score, abs=0.01)
    assert sum(shown[:-1]) == pytest.approx(score, abs=0.2)  # each is rounded
    assert faults(page) == []
    page.run("return document.activeElement").send_keys(Keys.ESCAPE)
    page.gone("#reasons")
    assert page.run("return document.activeElement.className") == "card-title"


def test_a_title_with_html_is_shown_as_it_is(page: Page, runs: Runs) -> None:
    page.open(f"#/user/{runs.buyer}")
    page.one(".card")
    assert page.texts(".timeline-title")[0] == HTML_TITLE
    page.one(".card-title").click()
    page.one("#reasons .js-plotly-plot .bars")
    page.settled()
    page.one("#reasons summary").click()
    assert page.one("#reasons tbody th", HTML_TITLE)
    page.open(f"#/map?user={runs.buyer}")
    page.one(".map-chart .scatterlayer")
    page.settled()
    assert page.run("return window.wasRun") is None
    assert page.run("return document.querySelectorAll('#main img, #reasons img, #main b b').length") == 0


def test_a_filter_narrows_the_list_and_a_wrong_one_is_answered_in_a_sentence(page: Page, runs: Runs) -> None:
    page.open(f"#/user/{runs.buyer}")
    field = page.one("#filter")
    field.send_keys("genre = 'Concert'", Keys.ENTER)
    page.wait(
        lambda: (
            set(page.texts(".chip")) & {"genre Concert", "genre\nConcert"} and page.run("return location.hash").count("filter")
        )
    )
    page.settled()
    field.clear()
    field.send_keys("colour = 'red'", Keys.ENTER)
    assert "colour" in page.text("[role=alert]")
    assert faults(page) == []
    page.console()  # the browser itself notes the answer 400


def test_an_unknown_user_is_a_sentence(page: Page) -> None:
    page.open("#/user/nobody-of-that-name")
    assert "not known" in page.text("[role=alert]")
    assert faults(page) == []
    page.console()


def test_a_model_without_reasons_or_map_says_so(page: Page) -> None:
    page.open("#/new?run=third")
    page.one(".card-title").click()
    assert "an explanation is not available for 'popularity'" in page.text("#reasons [role=alert]")
    assert faults(page) == []
    page.open("#/map?run=third")
    assert "a map is not available for 'popularity'" in page.text("#main [role=alert]")
    assert faults(page) == []
    page.console()


def test_all_of_it_fits_a_phone(page: Page, runs: Runs) -> None:
    page.size(*PHONE)
    for view in (f"#/user/{runs.buyer}", "#/new", "#/map", "#/run", f"#/compare?user={runs.buyer}"):
        page.open(view)
        page.one("h1")
        page.settled()
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), view
        assert faults(page) == [], view


def test_the_theme_can_be_changed_and_is_kept(page: Page, theme: str) -> None:
    page.open()
    page.one(".pick-one")
    other = {"light": "dark", "dark": "light"}[theme]
    assert page.run("return document.documentElement.dataset.theme") == theme
    page.one("#theme").click()
    assert page.run("return document.documentElement.dataset.theme") == other
    page.open()
    page.one(".pick-one")
    assert page.run("return document.documentElement.dataset.theme") == other
    assert faults(page) == []
