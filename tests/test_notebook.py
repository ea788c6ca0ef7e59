from __future__ import annotations

from xml.etree import ElementTree

from gmlfm.notebook import html_table, html_waterfall


def test_a_table_is_html_that_shows_texts_as_they_are() -> None:
    html = html_table("a & b", ["<name>", "value"], [("<x>", 0.25), ("y", 1234), ("z", "")], ["<note>"])
    root = ElementTree.fromstring(f"<div>{html}</div>")
    assert [cell.text for cell in root.iter("td")] == ["<x>", "0.2500", "y", "1,234", "z", None]
    assert [cell.text for cell in root.iter("th")] == ["<name>", "value"]
    assert [element.text for element in (*root.iter("caption"), *root.iter("p"))] == ["a & b", "<note>"]


def _bars(html: str) -> list[tuple[float, float]]:
    """Where each bar begins and how long it is, in percent."""
    bars = []
    for bar in ElementTree.fromstring(html).iter("div"):
        style = dict(part.split(":") for part in bar.attrib["style"].split(";"))
        bars.append((float(style["margin-left"][:-1]), float(style["width"][:-1])))
    return bars


def test_each_bar_begins_where_the_last_one_ended() -> None:
    assert _bars(html_waterfall("", [("a", 3.0), ("b", -4.0), ("c", 2.0)], 1.0)) == [
        (25.0, 75.0),
        (0.0, 100.0),
        (0.0, 50.0),
        (25.0, 25.0),
    ]
    assert _bars(html_waterfall("", [], 0.0)) == [(0.0, 0.0)]
    assert _bars(html_waterfall("", [("a", -1.0)], -1.0)) == [(0.0, 100.0), (0.0, 100.0)]
