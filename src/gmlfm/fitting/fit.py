"""The order of things: fit with a choice on validation, then perhaps once more on more rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gmlfm.arguments import mapping
from gmlfm.data.dataset import Dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.data.splits import AUTO
from gmlfm.errors import OptionError
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.fitting.plan import FitPlan, Stage, chosen_device
from gmlfm.fitting.run import FittedRun, Refit
from gmlfm.fitting.shards import ShardPlan
from gmlfm.models.base import FitInputs, FitReport, Model
from gmlfm.models.registry import authors_mistakes
from gmlfm.progress import activity
from gmlfm.training.best import BestWeights
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError, NullObserver, Observer


def fit(
    data: Dataset | PreparedData,
    settings: Settings,
    *,
    split: str = AUTO,
    split_options: Mapping[str, Any] | None = None,
    refit: bool | str | Refit = False,
    folder: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    observer: Observer | None = None,
) -> FittedRun:
    refit = Refit.parse(refit)
    if settings.preset == "paper" and refit is not Refit.NONE:
        raise OptionError("the preset 'paper' trains on all but the test rows already; leave refit out.")
    with activity("splitting"):
        plan = make_plan(data, settings, split, split_options, device)
    if settings.training.threads is not None:
        torch.set_num_threads(settings.training.threads)
    if folder is not None:
        plan.stamp(folder, resume, refit)
    return _fit(plan, refit, Stage(plan, folder, resume, observer or NullObserver()))


def make_plan(
    data: Dataset | PreparedData,
    settings: Settings,
    split: str,
    split_options: Mapping[str, Any] | None = None,
    device: str = "auto",
) -> FitPlan:
    options = {} if split_options is None else dict(mapping(split_options, "split_options", "{'seed': 1}"))
    device = chosen_device(device)
    if isinstance(data, PreparedData):
        return ShardPlan(data, settings, split, options, device)
    return MemoryPlan(data, settings, split, options, device)


def _fit(plan: FitPlan, refit: Refit, stage: Stage) -> FittedRun:
    """A model that makes no choice on validation is fitted on the rows of the refit at once.

    Where the refit diverges or is interrupted, the model of the selection is what remains, and the report says so.
    """
    settings, report, selected = plan.settings, FitReport(), BestWeights()
    if refit is Refit.NONE or settings.info.cls.learns_in_epochs:
        with activity("encoding"):
            inputs = plan.selection_inputs()
        model = settings.build(inputs.layout)
        with authors_mistakes(settings.info.cls), activity(f"fitting {settings.model}"):
            report = model.fit(inputs, stage)
            if not settings.info.cls.learns_in_epochs:
                report = _validated(plan, model, inputs, report)
        if refit is Refit.NONE or report.diverged or report.interrupted:
            return plan.finish(model, inputs, Refit.NONE, report)
        selected.keep(model.state_dict())  # not the model: a large table beside the one in training may be too much
    message, interrupted = "", False
    try:
        with activity("encoding for the refit"):
            inputs = plan.refit_inputs(refit)
        model = settings.build(inputs.layout)
        with authors_mistakes(settings.info.cls), activity(f"fitting {settings.model}, {refit.label}"):
            again = model.fit(inputs, replace(stage, epochs=max(report.best_epoch, 1)))
            diverged, interrupted = again.diverged, again.interrupted
    except (DivergedError, KeyboardInterrupt) as error:
        if not selected:
            raise
        diverged, interrupted = str(error), isinstance(error, KeyboardInterrupt)
    if not diverged and not interrupted:
        return plan.finish(model, inputs, refit, report)
    inputs = plan.selection_inputs()
    model = settings.build(inputs.layout)
    model.attach(inputs)
    model.load_state_dict(selected.tensors())
    if not interrupted:
        message = f"the {refit.label} diverged, so the model without it is kept, of epoch {report.best_epoch}: {diverged}"
    return plan.finish(model, inputs, Refit.NONE, replace(report, diverged=message, interrupted=interrupted))


def _validated(plan: FitPlan, model: Model, inputs: FitInputs, report: FitReport) -> FitReport:
    """A model that is fitted at once is measured by what chooses the others' epochs, so that their figures compare."""
    validate = plan.validator(inputs)
    if validate is None:
        return report
    return replace(report, validation=dict(validate(model)), protocol=plan.validation_protocol)
