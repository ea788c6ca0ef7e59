"""All settings of a run in one flat list of names: the model's own, the training's and the batches'."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.models.base import ClosedFormModel, GradientModel, Layout
from gmlfm.models.mamo import Mamo
from gmlfm.models.registry import ModelInfo, model_info
from gmlfm.training.loop import TrainingOptions
from gmlfm.training.objectives import GROUPED
from gmlfm.training.sampling.batches import BatchOptions

TASKS = ("topn", "rating", "implicit")
PRESETS: dict[str, dict[str, Any]] = {
    # As published: one batch size, Adam, negatives drawn once, no hiding of ids.
    "paper": {"batch_size": 256, "lr": 1e-3, "n_negatives": 2, "fresh": False, "cold_start_rate": 0.0, "loss": "squared"},
}
_ALIASES = {"negatives": "n_negatives", "hide": "cold_start_rate", "tasks_a_batch": "tasks_per_batch"}


@dataclass(frozen=True)
class Settings:
    model: str
    task: str
    options: Mapping[str, Any]
    training: TrainingOptions
    batches: BatchOptions
    preset: str | None = None

    @classmethod
    def make(cls, model: str, task: str, given: Mapping[str, Any], preset: str | None = None) -> Settings:
        """Settings by name, checked: the preset's, then what is given. Texts are taken as the kind each setting has."""
        info = model_info(model)
        if task not in TASKS:
            raise OptionError(f"task is '{task}'{did_you_mean(task, TASKS)}")
        if task not in info.tasks:
            raise OptionError(f"the model '{model}' cannot do the task '{task}'; it does {', '.join(info.tasks)}.")
        if preset is not None and preset not in PRESETS:
            raise OptionError(f"preset is '{preset}'{did_you_mean(preset, PRESETS)}")
        chosen = {_ALIASES.get(name, name): value for name, value in given.items()}
        own = dict(info.options)
        if task != "topn" and own.get("loss") in GROUPED:
            own.pop("loss")  # a label of its own has nothing to be compared with
        wanted = {**own, **(PRESETS[preset] if preset else {}), **chosen}
        training_names, batch_names = _applicable(info)
        model_names = set(info.option_names())
        split: dict[str, dict[str, Any]] = {"model": {}, "training": {}, "batches": {}}
        for name, value in wanted.items():
            known = sorted(training_names | batch_names | model_names | (set(_ALIASES) if batch_names else set()))
            if name not in known:
                raise OptionError(f"unknown setting '{name}' for the model '{model}'{did_you_mean(name, known)}")
            if name in model_names:
                split["model"][name] = _as_kind(name, value, _annotation(info, name))
            if name in training_names:
                split["training"][name] = _as_kind(name, value, _of(TrainingOptions, name))
            if name in batch_names:
                split["batches"][name] = _as_kind(name, value, _of(BatchOptions, name))
        settings = cls(
            model,
            task,
            split["model"],
            replace(TrainingOptions(), **split["training"]),
            replace(BatchOptions(), **split["batches"]),
            preset,
        )
        settings._check()
        return settings

    def _check(self) -> None:
        n_negatives = self.batches.n_negatives if self.task == "topn" else 0
        self.training.check(self.task, n_negatives)
        if self.batches.batch_size is not None and self.batches.batch_size < 1:
            raise OptionError(f"batch_size is {self.batches.batch_size}; expected 1 or more, or auto.")
        if self.batches.n_negatives < 0:
            raise OptionError(f"negatives is {self.batches.n_negatives}; expected 0 or more.")
        if not 0 <= self.batches.cold_start_rate < 1:
            raise OptionError(f"cold_start_rate is {self.batches.cold_start_rate}; expected a share of at least 0 and below 1.")
        if self.task == "topn" and self.batches.n_negatives == 0:
            raise OptionError("top-n needs something to rank a positive above; set negatives to 1 or more.")

    def build(self, layout: Layout | None = None) -> GradientModel:
        """The model itself, its dense parameters drawn from the seed."""
        import torch

        info = model_info(self.model)
        assert info.make is not None
        torch.manual_seed(self.training.seed)
        return info.make(**self.options, **({"layout": layout} if info.needs_layout else {}))

    def episodic(self, layout: Layout) -> Mamo:
        """The same for a model whose tasks are users."""
        info = model_info(self.model)
        assert info.episodic is not None
        return info.episodic(layout=layout, **self.options)

    def count(self) -> ClosedFormModel:
        """The same for a model without gradients."""
        info = model_info(self.model)
        assert info.count is not None
        return info.count(**self.options)

    def to_dict(self) -> dict[str, Any]:
        of_training, of_batches = _applicable(model_info(self.model))
        training = {name: getattr(self.training, name) for name in sorted(of_training)}
        batches = {name: getattr(self.batches, name) for name in sorted(of_batches - {"seed"})}
        return {
            "model": self.model,
            "task": self.task,
            "preset": self.preset,
            "settings": {**self.options, **training, **batches},
        }


def _applicable(info: ModelInfo) -> tuple[set[str], set[str]]:
    """The names of training and batch settings that have an effect on a model of this kind."""
    if info.count is not None:
        return {"seed", "threads"}, set()
    if info.episodic is not None:
        return {"seed", "threads", "epochs", "patience", "lr"}, set()
    return {one.name for one in fields(TrainingOptions)}, {one.name for one in fields(BatchOptions)}


def _annotation(info: ModelInfo, name: str) -> str:
    return str(inspect.signature(info.factory).parameters[name].annotation)


def _of(options: type, name: str) -> str:
    return str(next(one.type for one in fields(options) if one.name == name))


def _as_kind(name: str, value: Any, annotation: str) -> Any:
    """A text as the kind that the annotation names; anything else must be of that kind already."""
    kinds = {"int": int, "float": float, "bool": bool}
    kind = next((one for one in kinds if annotation.startswith(one)), "str")
    if kind == "bool":
        words = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
        if isinstance(value, bool):
            return value
        if str(value).lower() in words:
            return words[str(value).lower()]
        raise OptionError(f"{name} is {value!r}; expected true or false.")
    if kind == "str":
        return str(value)
    if "None" in annotation and (value is None or value == "auto"):
        return None
    try:
        converted = kinds[kind](value)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name} is {value!r}; expected {'a whole number' if kind == 'int' else 'a number'}.") from error
    if isinstance(value, (bool, float)) and kind == "int" and (isinstance(value, bool) or converted != value):
        raise OptionError(f"{name} is {value!r}; expected a whole number.")
    return converted
