"""RUN/report.html: what a training came to, on one page: curves, metrics, settings, and what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gmlfm.cli.output import note
from gmlfm.cli.report import Report
from gmlfm.progress import activity

if TYPE_CHECKING:
    from gmlfm.fitting import FittedRun

REPORT = "report.html"
_PROTOCOLS = {
    "full": "each row's item is ranked among all candidates",
    "sampled": "each row's item is ranked among 99 others",
}


def leave_report(run: FittedRun, folder: Path, commands: list[str], console: Console) -> Path | None:
    """Write the page beside the saved run; commands: what may come next. None, and a note, where that failed: a training is not
    lost for a picture."""
    path = folder / REPORT
    try:
        with activity("drawing the report"):
            run_report(run, commands).write(path)
    except Exception as error:
        note(console, f"the run is saved, but its report was not written ({type(error).__name__}: {error}).")
        return None
    return path


def next_commands(run: FittedRun, folder: str, model: str) -> list[str]:
    """What can be done with a run, the next thing first. model: as it was named; a class of the user's own is named again."""
    where = shlex.quote(folder) + (f" --model {model}" if ":" in model else "")
    is_tested = len(run.split.test) > 0 and run.refit.value != "all"
    commands = [f"gmlfm evaluate {where}"] if is_tested else []
    if len(run.data.users):
        user = run.data.users.ids[int(run.data.seen_users[0])]
        commands.append(f"gmlfm recommend {where} --user {shlex.quote(user)}")
    if run.model.inputs.attributes and len(run.split.validation) and run.refit.value == "none":
        commands.append(f"gmlfm attributes {where}")
    return commands


def run_report(run: FittedRun, commands: list[str]) -> Report:
    data, split, settings = run.data, run.split, run.settings
    page = Report(f"{settings.model} on {data.name}")
    sizes = f"{len(data.users):,} users, {len(data.items):,} items, {data.n_interactions:,} interactions"
    page.text(f"{sizes}; task {settings.task}; data {data.content_hash}.")
    parts = ", ".join(f"{len(rows):,} {name}" for name, rows in _parts(run) if len(rows))
    page.text(f"Split {split.name} ({split.hash}): {parts} rows; {run.refit.label}; seed {settings.training.seed}.")
    for text in (run.report.diverged, *split.notes):
        if text:
            page.text(text)
    page.heading("How good is it?")
    if run.validation:
        page.text(_measured_on(run))
        page.table(["metric", "value"], list(run.validation.items()))
    else:
        page.text("The split has no validation rows, so nothing was measured in training.")
    if run.curve:
        _add_curves(page, run)
    page.heading("Settings")
    declared = settings.info.declared.items()
    defaults = {name: settings.info.defaults.get(name, setting.default) for name, setting in declared if setting.has_default}
    chosen = {**defaults, **settings.to_dict()["settings"]}
    page.table(["setting", "value"], [(name, _shown(value)) for name, value in chosen.items()])
    page.heading("Next")
    page.commands(commands)
    return page


def _measured_on(run: FittedRun) -> str:
    if run.settings.as_published:
        return "On the TEST part, where the epoch was chosen, as published: for comparison with the published figures only."
    protocol = run.validation_protocol.split(",")[0]
    how = f": {_PROTOCOLS[protocol]}" if protocol in _PROTOCOLS else ""
    return f"On validation ({run.validation_protocol or 'labels'}{how}); the test part was not looked at."


def _add_curves(page: Report, run: FittedRun) -> None:
    curve = run.curve
    metrics = [name for name in curve[0]["validation"] if all(name in epoch["validation"] for epoch in curve)]
    drawn = {"loss": [epoch["loss"] for epoch in curve]}
    drawn |= {name: [epoch["validation"][name] for epoch in curve] for name in metrics[:2]}
    page.lines("Training loss and validation by epoch, each on its own scale", drawn)
    page.text(f"{len(curve)} epochs; the weights are those of epoch {run.best_epoch}.")
    rows = [
        (epoch["epoch"], epoch["loss"], *(epoch["validation"][name] for name in metrics), round(epoch["instances_per_second"]))
        for epoch in curve
    ]
    page.table(["epoch", "loss", *metrics, "instances a second"], rows)


def _parts(run: FittedRun) -> list[tuple[str, Any]]:
    return [("training", run.split.train), ("validation", run.split.validation), ("test", run.split.test)]


def _shown(value: Any) -> str:
    return "auto" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
