"""A page with pictures, in one file without scripts: lines, bars and tables as inline SVG and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from gmlfm.storage import write_text

_COLOURS = ("#1f6f8b", "#c8553d", "#7a9e3a", "#8d6a9f")
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #ddd;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}figure{margin:1.5rem 0}figcaption{color:#555}svg{max-width:100%}"""


class Report:
    """Sections in the order in which they are added."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]

    def text(self, text: str) -> None:
        self._parts.append(f"<p>{escape(text)}</p>")

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        head = "".join(f"<th>{escape(one)}</th>" for one in headings)
        body = "".join("<tr>" + "".join(_cell(one) for one in row) + "</tr>" for row in rows)
        self._parts.append(f"<table><tr>{head}</tr>{body}</table>")

    def lines(self, caption: str, curves: Mapping[str, Sequence[float]]) -> None:
        """Each curve over 1, 2, 3, ..., on its own scale between its least and its most."""
        width, height, left = 640, 240, 10
        parts = []
        for at, (name, values) in enumerate(curves.items()):
            low, high = min(values), max(values)
            span = (high - low) or 1.0
            step = (width - 2 * left) / max(len(values) - 1, 1)
            points = " ".join(
                f"{left + n * step:.1f},{height - 20 - (value - low) / span * (height - 50):.1f}"
                for n, value in enumerate(values)
            )
            colour = _COLOURS[at % len(_COLOURS)]
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2.5" points="{points}"/>')
            told = f"{name}: {values[0]:.3f} to {values[-1]:.3f}"
            parts.append(f'<text x="{left + at * 210}" y="14" fill="{colour}" font-size="14">{escape(told)}</text>')
        self._figure(caption, width, height, "".join(parts))

    def bars(self, caption: str, groups: Mapping[str, Mapping[str, float]]) -> None:
        """Groups of bars: label -> series -> share."""
        row, left, width = 18, 150, 640
        series = list(next(iter(groups.values())))
        most = max(max(one.values()) for one in groups.values()) or 1.0
        parts, y = [], 24.0
        for at, name in enumerate(series):
            parts.append(f'<text x="{left + at * 150}" y="14" fill="{_COLOURS[at % 4]}" font-size="14">{escape(name)}</text>')
        for label, values in groups.items():
            middle = f'x="{left - 8}" y="{y + row * len(series) / 2 + 4:.0f}"'
            parts.append(f'<text {middle} text-anchor="end" font-size="13">{escape(label)}</text>')
            for at, name in enumerate(series):
                length = values[name] / most * (width - left - 70)
                parts.append(
                    f'<rect x="{left}" y="{y:.0f}" width="{max(length, 1):.1f}" height="{row - 4}" fill="{_COLOURS[at % 4]}"/>'
                )
                parts.append(
                    f'<text x="{left + length + 6:.1f}" y="{y + row - 7:.0f}" font-size="11">{values[name]:.1%}</text>'
                )
                y += row
            y += 6
        self._figure(caption, width, int(y) + 6, "".join(parts))

    def ranges(self, caption: str, values: Mapping[str, tuple[float, float, float]]) -> str:
        """A dot with its interval for each name; returns the drawing alone, too."""
        row, left, width = 26, 130, 640
        low, high = min(one[0] for one in values.values()), max(one[2] for one in values.values())
        scale = (width - left - 90) / ((high - low) or 1.0)
        parts = []
        for at, (name, (start, middle, end)) in enumerate(values.items()):
            y = 18 + at * row
            x1, x, x2 = (left + (one - low) * scale for one in (start, middle, end))
            parts.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end" font-size="13">{escape(name)}</text>')
            parts.append(f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y}" y2="{y}" stroke="{_COLOURS[0]}" stroke-width="3"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{_COLOURS[1]}"/>')
            parts.append(f'<text x="{x2 + 10:.1f}" y="{y + 4}" font-size="12">{middle:.4f}</text>')
        return self._figure(caption, width, 24 + row * len(values), "".join(parts))

    def waterfall(self, caption: str, values: Mapping[str, float]) -> str:
        """What each name adds, right of the middle or left of it; returns the drawing alone, too."""
        row, left, width = 24, 300, 760
        middle, reach = left + (width - left) / 2, (width - left) / 2 - 60
        most = max((abs(one) for one in values.values()), default=1.0) or 1.0
        parts = []
        for at, (name, value) in enumerate(values.items()):
            y, length = 8 + at * row, abs(value) / most * reach
            x = middle if value >= 0 else middle - length
            parts.append(f'<text x="{left - 10}" y="{y + 13}" text-anchor="end" font-size="13">{escape(name)}</text>')
            colour = _COLOURS[2] if value >= 0 else _COLOURS[1]
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(length, 1):.1f}" height="{row - 6}" fill="{colour}"/>')
            end, anchor = (middle + length + 6, "start") if value >= 0 else (middle - length - 6, "end")
            parts.append(f'<text x="{end:.1f}" y="{y + 13}" text-anchor="{anchor}" font-size="12">{value:+.4f}</text>')
        parts.append(f'<line x1="{middle}" x2="{middle}" y1="4" y2="{8 + row * len(values)}" stroke="#888"/>')
        return self._figure(caption, width, 16 + row * len(values), "".join(parts))

    def write(self, path: Path) -> None:
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(self._title)}</title>'
        write_text(path, f"{head}<style>{_STYLE}</style><body>" + "\n".join(self._parts) + "</body></html>\n")

    def _figure(self, caption: str, width: int, height: int, inside: str) -> str:
        size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        drawing = f'<svg {size} role="img" aria-label="{escape(caption)}" font-family="sans-serif">{inside}</svg>'
        self._parts.append(f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>")
        return drawing + "\n"


def _cell(one: object) -> str:
    if isinstance(one, float):
        return f'<td class="n">{one:.4f}</td>'
    return f'<td class="n">{one:,}</td>' if isinstance(one, int) else f"<td>{escape(str(one))}</td>"
