"""A page with pictures, in one file without scripts: headings, texts, tables and inline drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from gmlfm.cli import pictures
from gmlfm.storage import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .8rem;border-bottom:1px solid #ddd;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}figure{margin:1.5rem 0}figcaption{color:#555}
pre{background:#f4f4f4;padding:.8rem;overflow-x:auto}svg{max-width:100%;height:auto}"""


class Report:
    """Sections in the order in which they are added."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._sections = [f"<h1>{escape(title)}</h1>"]

    def text(self, text: str) -> None:
        self._sections.append(f"<p>{escape(text)}</p>")

    def heading(self, text: str) -> None:
        self._sections.append(f"<h2>{escape(text)}</h2>")

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
        body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
        self._sections.append(f"<table><tr>{head}</tr>{body}</table>")

    def commands(self, lines: Sequence[str]) -> None:
        """To be copied into a terminal."""
        self._sections.append("<pre>" + "\n".join(escape(line) for line in lines) + "</pre>")

    def lines(self, caption: str, curves: Mapping[str, Sequence[float]]) -> None:
        """Each curve over 1, 2, 3, ..., on a scale of its own."""
        self._figure(caption, pictures.curves(curves))

    def bars(self, caption: str, groups: Mapping[str, Mapping[str, float]]) -> None:
        """Groups of bars: label -> series -> share."""
        self._figure(caption, pictures.grouped_bars(groups))

    def ranges(self, caption: str, values: Mapping[str, tuple[float, float, float]], label: str = "") -> str:
        """A dot with its interval for each name; label: of the axis. Returns the drawing alone, too."""
        return self._figure(caption, pictures.intervals(values, label))

    def waterfall(self, caption: str, values: Mapping[str, float]) -> str:
        """What each name adds, right of 0 or left of it; returns the drawing alone, too."""
        return self._figure(caption, pictures.signed_bars(values))

    def write(self, path: Path) -> None:
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(self._title)}</title>'
        write_text(path, f"{head}<style>{_STYLE}</style><body>" + "\n".join(self._sections) + "</body></html>\n")

    def _figure(self, caption: str, figure: Figure) -> str:
        drawing = pictures.to_svg(figure, caption)
        self._sections.append(f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>")
        return drawing


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'<td class="n">{value:.4f}</td>'
    return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f"<td>{escape(str(value))}</td>"
