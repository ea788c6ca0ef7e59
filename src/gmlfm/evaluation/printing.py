"""An evaluation as text and as HTML: the metrics with their standard errors, and of how many rows and users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gmlfm.escaping import terminal_text
from gmlfm.notebook import html_table

if TYPE_CHECKING:
    from gmlfm.evaluation.protocols import Evaluation

_SHORT = 2  # metrics of the one-line form


def one_line(evaluation: Evaluation) -> str:
    errors = evaluation.errors
    metrics = [
        f"{name} {value:.4f}" + (f" ± {errors[name]:.4f}" if name in errors else "")
        for name, value in list(evaluation.metrics.items())[:_SHORT]
    ]
    return f"<Evaluation {', '.join([evaluation.protocol, *metrics, _tested(evaluation)])}>"


def as_text(evaluation: Evaluation) -> str:
    rows = [
        f"{name:<16}{value:>9.4f}" + (f" ± {evaluation.errors[name]:.4f}" if name in evaluation.errors else "")
        for name, value in evaluation.metrics.items()
    ]
    return "\n".join([_caption(evaluation), *rows, *(terminal_text(note) for note in evaluation.notes)])


def as_html(evaluation: Evaluation) -> str:
    groups = evaluation.groups
    rows: list[list[object]] = []
    if groups:
        rows.append(["rows", _n_rows(evaluation), "", *(int(means["rows"]) for means in groups.values())])
    for name, value in evaluation.metrics.items():
        by_group = (means.get(name, "") for means in groups.values())
        rows.append([name, value, evaluation.errors.get(name, ""), *by_group])
    return html_table(_caption(evaluation), ["metric", "mean", "standard error", *groups], rows, evaluation.notes)


def _caption(evaluation: Evaluation) -> str:
    errors = "; standard errors are over users" if evaluation.errors else ""
    return f"{evaluation.protocol}: {_tested(evaluation)}{errors}"


def _tested(evaluation: Evaluation) -> str:
    n_rows, n_users = _n_rows(evaluation), len(np.unique(evaluation.users))
    return f"{n_rows:,} row{'' if n_rows == 1 else 's'} of {n_users:,} user{'' if n_users == 1 else 's'}"


def _n_rows(evaluation: Evaluation) -> int:
    return len(next(iter(evaluation.queries.values()), ()))
