from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from gmlfm.cli import pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWINGS: dict[str, tuple[Callable[[], Figure], list[str]]] = {
    "curves": (
        lambda: pictures.curves({"loss": [0.9, 0.5, 0.4], "hr@10": [0.1, 0.2, 0.3]}),
        ["loss: 0.900 to 0.400", "hr@10: 0.100 to 0.300", "epoch"],
    ),
    "curves of an epoch": (lambda: pictures.curves({"loss": [0.5]}), ["loss: 0.500 to 0.500"]),
    "grouped bars": (
        lambda: pictures.grouped_bars({"1 sale": {"of items": 0.7, "of rows": 0.3}, "2+": {"of items": 0.3, "of rows": 0.7}}),
        ["1 sale", "2+", "of items", "of rows", "70.0%"],
    ),
    "intervals": (
        lambda: pictures.intervals({"fm": (0.1, 0.2, 0.3), "mf": (0.2, 0.2, 0.2)}, "NDCG@10"),
        ["fm", "mf", "0.2000", "NDCG@10", "0.15", "0.25"],  # a dot's figure, the axis, its ticks
    ),
    "a single value": (lambda: pictures.intervals({"fm": (0.0, 0.0, 0.0)}), ["fm", "0.0000"]),
    "lines with intervals": (
        lambda: pictures.lines_with_intervals(
            {"fm": {0: (0.1, 0.2, 0.3), 10: (0.3, 0.4, 0.5)}, "popularity": {0: (0.1, 0.1, 0.1), 10: (0.1, 0.1, 0.1)}},
            "rows given",
            "ndcg@10",
        ),
        ["fm", "popularity", "rows given", "ndcg@10", "0", "10"],
    ),
    "signed bars": (
        lambda: pictures.signed_bars({"a x b": 0.5, "<c> & $d": -0.25}),
        ["a x b", "<c> & $d", "+0.5000", "-0.2500"],
    ),
    "no bars": (lambda: pictures.signed_bars({}), []),
    "bars of nothing": (lambda: pictures.signed_bars({"a": 0.0}), ["a", "+0.0000"]),
}


@pytest.mark.parametrize("name", list(DRAWINGS))
def test_a_drawing_is_text_that_parses_and_does_not_change(name: str) -> None:
    draw, texts = DRAWINGS[name]
    svg = pictures.to_svg(draw(), 'a "caption"')
    assert svg == pictures.to_svg(draw(), 'a "caption"')
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == 'a "caption"'
    written = {(element.text or "").strip() for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert set(texts) <= written
    for trace in ("date", "Matplotlib", "metadata"):
        assert trace not in svg


def test_labels_do_not_run_into_each_other() -> None:
    values = {f"user.a long field {n} x item.another long field {n}": (-1.0) ** n * n for n in range(8)}
    figure = pictures.signed_bars(values)
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    names = [label.get_window_extent() for label in axes.get_yticklabels()]
    numbers = [text.get_window_extent() for text in axes.texts]
    assert all(box.x0 >= 0 for box in names)
    assert not any(name.overlaps(number) for name in names for number in numbers)
    assert not any(upper.overlaps(lower) for upper, lower in pairwise(names))
    assert all(number.x1 <= figure.bbox.x1 for number in numbers)
