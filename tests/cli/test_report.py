from __future__ import annotations

from pathlib import Path

from gmlfm.cli.report import Report


def test_a_page_holds_its_sections_in_order(tmp_path: Path) -> None:
    report = Report("A & B")
    report.text("x < y")
    report.heading("Numbers")
    report.table(["name", "value"], [("a", 0.25), ("b", 1234), ("<c>", "text")])
    report.lines("Curves", {"loss": [0.5, 0.4]})
    report.bars("Bars", {"a": {"of items": 0.5}})
    ranges = report.ranges("Ranges", {"fm": (0.1, 0.2, 0.3)})
    waterfall = report.waterfall("Waterfall", {"a": 1.0, "b": -1.0})
    report.write(tmp_path / "sub" / "page.html")
    page = (tmp_path / "sub" / "page.html").read_text()
    expected = [
        "<title>A &amp; B</title>",
        "x &lt; y",
        "<h2>Numbers</h2>",
        '<td class="n">0.2500</td>',
        '<td class="n">1,234</td>',
    ]
    expected += ["&lt;c&gt;", "Curves</figcaption>", "Bars</figcaption>", ranges, waterfall]
    places = [page.index(text) for text in expected]
    assert places == sorted(places)
    assert page.count("<svg") == 4
    assert "<script" not in page
