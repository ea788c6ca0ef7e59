"""The drawings of reports and commands, by matplotlib. The same values give the same SVG text."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gmlfm.errors import OptionError
from gmlfm.storage import new_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURE_ENDINGS = (".svg", ".png", ".pdf")
_COLOURS = ("#1f6f8b", "#c8553d", "#7a9e3a", "#8d6a9f")
_GREY = "#888888"
_WIDTH = 7.6  # inches of 72 points
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": "#222222",
    "axes.labelcolor": "#222222",
    "axes.edgecolor": _GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "xtick.color": "#444444",
    "ytick.color": "#222222",
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "gmlfm",
}


def curves(values: Mapping[str, Sequence[float]]) -> Figure:
    """Each curve over epochs 1, 2, 3, ..., in a panel with a scale of its own."""
    from matplotlib.ticker import MaxNLocator

    figure, panels = _panels(len(values), 2.5)
    for index, (panel, (name, ordinates)) in enumerate(zip(panels, values.items(), strict=True)):
        colour = _COLOURS[index % len(_COLOURS)]
        panel.plot(range(1, len(ordinates) + 1), ordinates, color=colour, linewidth=2, marker="o", markersize=3.5)
        panel.set_title(f"{name}: {ordinates[0]:.3f} to {ordinates[-1]:.3f}", fontsize=10, color=colour)
        panel.set_xlabel("epoch")
        panel.set_xlim(0.5, len(ordinates) + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        panel.yaxis.set_major_locator(MaxNLocator(4))
        panel.grid(axis="y")
    return figure


def grouped_bars(groups: Mapping[str, Mapping[str, float]]) -> Figure:
    """Horizontal bars: label -> series -> share."""
    from matplotlib.ticker import PercentFormatter

    series = list(next(iter(groups.values())))
    figure, (axes,) = _panels(1, 0.9 + 0.24 * (len(series) + 0.5) * len(groups))
    height = 0.8 / len(series)
    largest = max(max(shares.values()) for shares in groups.values()) or 1.0
    for index, name in enumerate(series):
        shares = [group[name] for group in groups.values()]
        places = [row + (index - (len(series) - 1) / 2) * height for row in range(len(groups))]
        bars = axes.barh(places, shares, 0.88 * height, color=_COLOURS[index % len(_COLOURS)], label=name)
        axes.bar_label(bars, [f"{share:.1%}" for share in shares], padding=3, fontsize=8)
    axes.set_xlim(0, 1.12 * largest)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if largest > 0.05 else 1))
    _rows(axes, list(groups))
    axes.grid(axis="x")
    figure.legend(loc="outside upper left", ncols=len(series), frameon=False)
    return figure


def intervals(values: Mapping[str, tuple[float, float, float]], label: str = "") -> Figure:
    """A dot with its interval (low, middle, high) for each name; label: of the axis."""
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = _panels(1, 0.9 + 0.32 * len(values))
    lows, middles, highs = zip(*values.values(), strict=True)
    rows = range(len(values))
    axes.hlines(rows, lows, highs, color=_COLOURS[0], linewidth=3)
    axes.plot(middles, rows, "o", color=_COLOURS[1], markersize=7)
    span = (max(highs) - min(lows)) or 0.1 * abs(max(highs)) or 1.0
    axes.set_xlim(min(lows) - 0.05 * span, max(highs) + 0.2 * span)
    for row, middle, high in zip(rows, middles, highs, strict=True):
        axes.annotate(f"{middle:.4f}", (high, row), (8, 0), textcoords="offset points", va="center", fontsize=9)
    _rows(axes, list(values))
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(6, min_n_ticks=3))
    axes.grid(axis="x")
    return figure


def lines_with_intervals(
    lines: Mapping[str, Mapping[float, tuple[float, float, float]]], abscissa: str = "", ordinate: str = ""
) -> Figure:
    """For each name a line through its points, place -> (low, middle, high), with the intervals as a band around it."""
    figure, (axes,) = _panels(1, 3.2)
    for index, (name, points) in enumerate(lines.items()):
        colour, places = _COLOURS[index % len(_COLOURS)], sorted(points)
        lows, middles, highs = zip(*(points[place] for place in places), strict=True)
        axes.fill_between(places, lows, highs, color=colour, alpha=0.15, linewidth=0)
        axes.plot(places, middles, color=colour, linewidth=2, marker="o", markersize=4, label=_shortened(name))
    places = sorted({place for points in lines.values() for place in points})
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xlabel(abscissa)
    axes.set_ylabel(ordinate)
    axes.set_ylim(bottom=min(0.0, *(low for points in lines.values() for low, _, _ in points.values())))
    axes.grid(axis="y")
    figure.legend(loc="outside upper left", ncols=len(lines), frameon=False)
    return figure


class PanelPoint(NamedTuple):
    """A point of a line: place, height, what it is called, and whether it is marked."""

    abscissa: float
    ordinate: float
    name: str
    is_marked: bool


def panels_of_lines(panels: Mapping[str, Mapping[str, Sequence[PanelPoint]]], ordinate: str = "") -> Figure:
    """A panel for each label, on a logarithmic scale of its own: label -> line -> points.

    Marked points are filled and named, the others hollow. All panels have the same lines and the same height.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = _panels(len(panels), 3.4)
    names = list(next(iter(panels.values())))
    styles: dict[str, tuple[str, Any]] = {
        name: (_COLOURS[n % len(_COLOURS)], ("-", "--", ":")[n // len(_COLOURS) % 3]) for n, name in enumerate(names)
    }
    every = [point.ordinate for lines in panels.values() for points in lines.values() for point in points]
    low, high = min(every), max(every)
    margin = 0.08 * ((high - low) or abs(high) or 1.0)
    for panel, (label, lines) in zip(axes, panels.items(), strict=True):
        for name, points in lines.items():
            colour, dashes = styles[name]
            panel.plot(
                [p.abscissa for p in points], [p.ordinate for p in points], color=colour, linestyle=dashes, linewidth=1.5
            )
            for point in points:
                face = colour if point.is_marked else "white"
                panel.plot(point.abscissa, point.ordinate, "o", color=colour, markerfacecolor=face, markersize=4.5)
                if point.is_marked:
                    place = (point.abscissa, point.ordinate)
                    panel.annotate(point.name, place, (0, 5), textcoords="offset points", ha="center", fontsize=7)
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 3.0), numticks=5))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda number, _: _short(number)))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.tick_params(axis="x", labelsize=8)
        panel.set_xlabel(label, fontsize=9)
        panel.set_ylim(low - margin, high + 1.5 * margin)
        panel.grid(axis="y")
    axes[0].set_ylabel(ordinate)
    handles = [Line2D([], [], color=styles[name][0], linestyle=styles[name][1], label=_shortened(name)) for name in names]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(names), 5), frameon=False)
    return figure


def _short(number: float) -> str:
    """'0.3', '30', '30k', '3M'"""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def signed_bars(values: Mapping[str, float], label: str = "") -> Figure:
    """What each name adds, right of 0 or left of it; label: of the axis."""
    figure, (axes,) = _panels(1, 0.6 + 0.3 * max(len(values), 1))
    amounts = list(values.values())
    bars = axes.barh(range(len(amounts)), amounts, 0.7, color=[_COLOURS[2 if value >= 0 else 1] for value in amounts])
    axes.bar_label(bars, [f"{value:+.4f}" for value in amounts], padding=4, fontsize=9)
    axes.axvline(0.0, color=_GREY, linewidth=1)
    low, high = min([0.0, *amounts]), max([0.0, *amounts])
    span = high - low
    if span == 0:
        low, high, span = -1.0, 1.0, 2.0
    # Room for the numbers beside the bars, on the sides where there are bars.
    axes.set_xlim(low - (0.24 if low < 0 else 0.0) * span, high + (0.24 if high > 0 else 0.0) * span)
    axes.spines["left"].set_visible(False)
    _rows(axes, list(values))
    axes.set_xlabel(label)
    axes.grid(axis="x")
    return figure


def picture_path(text: str | None) -> Path | None:
    """The file that was asked for, which is written as its name ends."""
    if text is None:
        return None
    path = Path(text)
    if path.suffix.lower() not in PICTURE_ENDINGS:
        raise OptionError(f"--picture {text} ends in '{path.suffix}'; expected {', '.join(PICTURE_ENDINGS)}.")
    return path


def write_picture(figure: Figure, caption: str, path: Path) -> None:
    """As SVG, PNG or PDF, by the file's name."""
    from matplotlib import rc_context

    kind = path.suffix.lower().removeprefix(".")
    with new_file(path) as draft:
        if kind == "svg":
            draft.write_text(to_svg(figure, caption), encoding="utf-8", newline="\n")
            return
        metadata = {"Title": caption} if kind == "png" else {"Title": caption, "CreationDate": None}
        with rc_context(_STYLE):
            figure.savefig(draft, format=kind, dpi=150, metadata=metadata)


def to_svg(figure: Figure, caption: str) -> str:
    """The drawing as an <svg> element that can stand alone or within a page."""
    from matplotlib import rc_context

    written = io.StringIO()
    with rc_context(_STYLE):
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = written.getvalue()
    text = text[text.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{escape(caption)}" ', 1)
    # Groups are numbered from 1 in every drawing: on a page with several these ids would clash, and nothing refers to them.
    return re.sub(r'<g id="[\w.]+_\d+"', "<g", text)


def _panels(number: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of `number` panels side by side, `height` inches high. Without pyplot: no global state, no windows."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure((_WIDTH, height), layout="constrained")
        return figure, list(figure.subplots(1, number, squeeze=False)[0])


def _rows(axes: Axes, names: list[str]) -> None:
    """One row for each name, the first on top."""
    axes.set_yticks(range(len(names)), [_shortened(name) for name in names])
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _shortened(name: str, most: int = 48) -> str:
    text = name if len(name) <= most else name[: most - 1] + "…"
    return text.replace("$", r"\$")  # not the beginning of a formula
