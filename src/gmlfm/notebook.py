"""What objects look like in a notebook: HTML without scripts, in which other people's text is text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_NUMBER = ' style="text-align:right"'
_RIGHT, _LEFT, _SUM = "#7a9e3a", "#c8553d", "#1f6f8b"


def html_table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> str:
    """Texts to the left, numbers to the right with four digits."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    table = f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return table + "".join(f"<p>{escape(note)}</p>" for note in notes)


def html_waterfall(caption: str, steps: Sequence[tuple[str, float]], total: float) -> str:
    """A table whose bars begin where the one above ends, and at last the bar of the sum."""
    bounds, level = [], 0.0
    for _, value in steps:
        bounds.append((min(level, level + value), max(level, level + value)))
        level += value
    bounds.append((min(0.0, total), max(0.0, total)))
    low, high = min(0.0, *(bound[0] for bound in bounds)), max(0.0, *(bound[1] for bound in bounds))
    span = (high - low) or 1.0
    rows: list[str] = []
    for (label, value), (start, end) in zip([*steps, ("score", total)], bounds, strict=True):
        colour = _SUM if len(rows) == len(steps) else _RIGHT if value >= 0 else _LEFT
        place = f"margin-left:{100 * (start - low) / span:.1f}%;width:{100 * (end - start) / span:.1f}%"
        bar = f'<div style="{place};min-width:1px;height:0.9em;background:{colour}"></div>'
        number = f"{value:.4f}" if len(rows) == len(steps) else f"{value:+.4f}"
        rows.append(f'<tr><td>{escape(label)}</td><td{_NUMBER}>{number}</td><td style="width:20em">{bar}</td></tr>')
    head = "<tr><th>what</th><th>adds</th><th></th></tr>"
    return f"<table><caption>{escape(caption)}</caption><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"<td{_NUMBER}>{value:.4f}</td>"
    return f"<td{_NUMBER}>{value:,}</td>" if isinstance(value, int) else f"<td>{escape(str(value))}</td>"
