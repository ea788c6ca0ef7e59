"""A user: search, history, recommendations, and the reasons of one."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.accessibility import faults
from tests.browser.chromium import PHONE, Page
from tests.browser.conftest import Runs
from tests.browser.market import HTML_TITLE, LONG_TITLE

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
    assert sum(shown[:-1]) == pytest.approx(score, abs=0.08)  # each is rounded
    assert page.text("#reasons .headline").startswith("Because of ")
    assert page.text("#reasons .drawer-about .pill") == f"score {score:.2f}"
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
    assert no_markup(page)
    page.open(f"#/map?user={runs.buyer}&item={runs.market.html_item}")
    page.one(".map-chart .scatterlayer")
    assert page.one(".map-side h2", HTML_TITLE)
    page.settled()
    assert no_markup(page)
    page.open(f"#/new?item={runs.market.html_item}")
    assert page.one(".picked li", HTML_TITLE)
    assert page.one(".because", HTML_TITLE)
    assert no_markup(page)


def no_markup(page: Page) -> bool:
    """Nothing of what people wrote has become an element, or has run."""
    elements = "#main img, #main script, #main b, #reasons img, #reasons script"
    return bool(
        page.run("return window.wasRun === undefined && !document.querySelector(arguments[0])", elements)
        and page.run("return !document.querySelector('#reasons b')")
    )


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


def test_a_wrong_filter_in_the_address_leaves_the_history_and_the_filter(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open(f"#/user/{runs.buyer}?filter=colour+%3D+%27red%27")
    assert "colour" in page.text(".list [role=alert]")
    assert page.all(".timeline > li")
    field = page.one("#filter")
    assert field.get_attribute("value") == "colour = 'red'"
    field.clear()
    field.send_keys("genre = 'Concert'", Keys.ENTER)
    page.one(".card")
    page.console()


def test_each_recommendation_names_an_earlier_item_and_history_its_attributes(page: Page, runs: Runs) -> None:
    page.open(f"#/user/{runs.buyer}")
    page.one(".card")
    titles = page.texts(".timeline-title")
    reasons = {text.removeprefix("because of ") for text in page.texts(".because")}
    assert reasons
    assert reasons <= set(titles)
    page.one(".timeline summary.more").click()
    shown = page.text(".timeline dl")
    assert "condition" in shown
    assert "price" in shown
    assert faults(page) == []


def test_a_surprise_may_be_any_user(day_page: Page, runs: Runs) -> None:
    page = day_page
    page.open()
    page.one(".pick-one")
    last = page.script(
        """
        const ask = async (more) => (await fetch(`/users?limit=1${more}`)).json();
        return (await ask(`&offset=${(await ask("")).total - 1}`)).users[0].user;"""
    )
    page.run("Math.random = () => 0.9999")
    page.one("button", "Surprise me").click()
    assert page.one(".person-head h2", last)
    assert page.run("return document.title").startswith(f"{last} - User")
    page.delay("/users?", 0, fails=True)
    page.one("button", "Surprise me").click()
    assert "does not answer" in page.text("[role=alert]")


def test_attributes_that_the_title_says_are_left_out_by_whole_words(day_page: Page) -> None:
    page = day_page
    page.open()
    page.one(".pick-one")
    shown = page.script(
        """
        const { chips } = await import("/static/cards.js");
        const list = chips({ size: "S", kind: "Sumo", of: "Red Herons", mark: "?", price: 2 }, "Sumo by Red Herons, in 2 days");
        return [...list.children].map((chip) => chip.textContent);"""
    )
    assert shown == ["sizeS", "mark?", "price2"]


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
    press = "document.elementFromPoint(...arguments).click(); return document.getElementById('reasons').open"
    width, height = page.run("return [innerWidth, innerHeight]")
    assert page.run(press, width - 40, height - 20), "the empty part below is the drawer's own"
    assert not page.run(press, 40, height - 20), "beside it is the page, which closes it"
    page.open("#/map?run=third")
    assert "a map is not available for 'popularity'" in page.text("#main [role=alert]")
    assert faults(page) == []
    page.console()


def test_all_of_it_fits_a_phone(page: Page, runs: Runs) -> None:
    page.size(*PHONE)
    item = runs.market.long_item
    for view in (
        f"#/user/{runs.buyer}",
        f"#/new?item={item}",
        f"#/map?user={runs.buyer}&item={item}",
        "#/run",
        f"#/compare?user={runs.buyer}",
    ):
        page.open(view)
        page.one("h1")
        page.settled()
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), view
        assert faults(page) == [], view
    page.open(f"#/user/{runs.buyer}")
    page.one(".timeline-title", LONG_TITLE)
    page.one(".card-title").click()
    page.one("#reasons .js-plotly-plot .bars")
    page.settled()
    assert page.run("const sheet = document.getElementById('reasons'); return sheet.scrollWidth <= sheet.clientWidth")


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
