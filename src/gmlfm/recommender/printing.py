"""A Recommender as text and as HTML: what it was fitted on, how, and what validation said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gmlfm.data.attributes import PARTS
from gmlfm.escaping import terminal_text
from gmlfm.notebook import html_table
from gmlfm.training.settings import Settings

if TYPE_CHECKING:
    from gmlfm.fitting import FittedRun
    from gmlfm.recommender.core import Recommender


def as_text(recommender: Recommender) -> str:
    rows = facts(recommender)
    width = max(len(name) for name in rows) + 2
    lines = [f"  {name:<{width}}{terminal_text(value)}" for name, value in rows.items()]
    return "\n".join([_title(recommender), *lines])


def as_html(recommender: Recommender) -> str:
    return html_table(_title(recommender), ["", ""], list(facts(recommender).items()))


def facts(recommender: Recommender) -> dict[str, str]:
    """What there is to know of it, in words."""
    about = {"settings": _chosen(recommender.settings) or "the defaults"}
    if recommender.is_fitted:
        return {**about, **_of_run(recommender.fitted)}
    return {**about, "fitted": "not yet; call fit(data), or Recommender.load(folder)"}


def _chosen(settings: Settings) -> str:
    """The settings that are not the defaults of the model, or of the model with the history that it reads."""
    usual = Settings.make(settings.info, settings.task, {})
    if settings.history.roles:
        usual = replace(
            Settings.make(settings.info, settings.task, {"history": settings.history.history}), history=usual.history
        )
    defaults = usual.to_dict()["settings"]
    shown = {"preset": settings.preset} if settings.preset else {}
    shown |= {name: value for name, value in settings.to_dict()["settings"].items() if defaults.get(name, ...) != value}
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def _of_run(run: FittedRun) -> dict[str, str]:
    data, split = run.data, run.split
    metrics = ", ".join(f"{name} {value:.4f}" for name, value in run.validation.items())
    fields = [f"{part}.{field.name}" for part in PARTS for field in data.schema.fields_of(part)]
    sizes = " / ".join(f"{len(rows):,}" for rows in (split.train, split.validation, split.test))
    about = {
        "fitted on": f"'{data.name}': {len(data.users):,} users, {len(data.items):,} items, {data.n_interactions:,} rows",
        "fields": ", ".join(fields) or "ids alone",
        "split": f"{split.name}: {sizes} rows, {run.refit.label}",
    }
    if run.curve:
        about["best epoch"] = f"{run.best_epoch} of {len(run.curve)}"
    if metrics:
        about["validation"] = f"{metrics} ({run.validation_protocol or 'labels'})"
    return about


def _title(recommender: Recommender) -> str:
    return f"Recommender '{terminal_text(recommender.settings.model)}' for {recommender.settings.task}"
