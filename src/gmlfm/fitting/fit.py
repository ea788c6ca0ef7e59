"""The order of things: train with validation, or count; then perhaps train again on more rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gmlfm.data.dataset import Dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import OptionError
from gmlfm.fitting.episodic import fit_episodic
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.fitting.plan import FitPlan, chosen_device
from gmlfm.fitting.run import FitReport, FittedRun, Refit, regime
from gmlfm.fitting.shards import ShardPlan
from gmlfm.models.registry import model_info
from gmlfm.retrieval import Scorer
from gmlfm.training.loop import EpochReport, Observer, Resumable
from gmlfm.training.settings import Settings


class Silent:
    """An observer that looks away."""

    def on_step(self, done: int, total: int, loss: float) -> None:
        pass

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        pass


def fit(
    data: Dataset | PreparedData,
    settings: Settings,
    *,
    split: str = "leave-one-out",
    split_options: Mapping[str, Any] | None = None,
    refit: Refit = False,
    folder: Path | None = None,
    resume: bool = False,
    device: str = "auto",
    observer: Observer | None = None,
) -> FittedRun:
    if refit not in (False, True, "all"):
        raise OptionError(f"refit is {refit!r}; expected nothing, true or all.")
    if settings.preset == "paper" and refit:
        raise OptionError("the preset 'paper' trains on all but the test rows already; leave refit out.")
    options, chosen = dict(split_options or {}), chosen_device(device)
    job: FitPlan = (
        ShardPlan(data, settings, split, options, chosen)
        if isinstance(data, PreparedData)
        else MemoryPlan(data, settings, split, options, chosen)
    )
    if settings.training.threads is not None:
        torch.set_num_threads(settings.training.threads)
    if folder is not None:
        job.stamp(folder, resume, refit)
    info, watch = model_info(settings.model), observer or Silent()
    if info.count is not None:
        return job.finish(_counted(job, refit))
    if info.episodic is not None:
        if not isinstance(job, MemoryPlan):
            raise OptionError(f"the model '{settings.model}' learns user by user and cannot read a prepared folder.")
        return job.finish(fit_episodic(job, refit, folder, resume, watch))
    return job.finish(_trained(job, refit, folder, resume, watch))


def _trained(job: FitPlan, refit: Refit, folder: Path | None, resume: bool, observer: Observer) -> FitReport:
    material = job.first()
    trainer = job.train(material, _place(folder, "checkpoints"), resume, observer, validate=True)
    history, best = list(job.history), trainer.best_epoch
    chosen: dict[str, float] = next((one["validation"] for one in history if one["epoch"] == best), {})
    diverged = trainer.diverged
    if refit and not diverged:
        material = job.again(refit)
        place = _place(folder, "checkpoints-refit")
        trainer = job.train(material, place, resume, observer, validate=False, epochs=max(best, 1))
    weights = {name: one.detach().cpu() for name, one in trainer.weights().items()}
    scores = Scorer(trainer.model.cpu(), weights["table"], material.encoded, material.layout.field_of_row(), job.label_scale())
    found = regime(False if diverged else refit)
    return FitReport(material.encoded, scores, weights, found, best, chosen, history, job.label_scale(), diverged)


def _counted(job: FitPlan, refit: Refit) -> FitReport:
    material = job.again(refit) if refit else job.first()
    model = job.settings.count()
    model.fit(material.positives())
    return FitReport(material.encoded, model, model.weights(), regime(refit))


def _place(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name
