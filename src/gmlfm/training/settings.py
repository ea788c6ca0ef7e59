"""All settings of a run in one flat list of names: the model's own, the training's and the batches'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gmlfm.arguments import one_of
from gmlfm.data.attributes import ROLES
from gmlfm.errors import OptionError, did_you_mean
from gmlfm.models.base import TASKS, Layout, Model
from gmlfm.models.registry import ModelInfo, model_info
from gmlfm.models.settings import Choice, Declared, Space, convert_all, declared_settings
from gmlfm.training.history_options import AUTO_HISTORY, NO_HISTORY, HistoryOptions
from gmlfm.training.objectives import GROUPED, OBJECTIVES, losses_of
from gmlfm.training.options import TrainingOptions
from gmlfm.training.rows import ROW_OPTIMISERS
from gmlfm.training.sampling.batches import ALL_NEGATIVES, BatchOptions

PRESETS: dict[str, dict[str, Any]] = {
    # As published: one batch size, Adam, negatives drawn once, no cold-start steps.
    "paper": {"batch_size": 256, "lr": 1e-3, "n_negatives": 2, "fresh": False, "cold_start_rate": 0.0, "loss": "squared"},
}
# What people say, and what older versions wrote.
ALIASES = {"negatives": "n_negatives", "hide": "cold_start_rate", "tasks_a_batch": "tasks_per_batch"}
_OLD_VALUES = {("engine", "reference"): "eager"}
# How a model that reads histories trains unless it is said otherwise.
_WITH_HISTORY: dict[str, Any] = {
    "loss": "softmax",
    "lr": 5e-3,
    "schedule": "cosine",
    "epochs": 20,
    "v_scale": 0.05,
}
_ALL_UP_TO, _SHARED_NEGATIVES = 4096, 512  # candidates of which a softmax takes all, and how many it takes of more
NEGATIVES_OF_A_ROW = 64  # in a softmax, where rows cannot share them
_TRAINING, _BATCHES = declared_settings(TrainingOptions), declared_settings(BatchOptions)
_HISTORY = declared_settings(HistoryOptions)
_IMPLICIT_NEGATIVES = 2  # a positive, as the paper has them
_ALWAYS, _IN_EPOCHS = ("seed", "threads"), ("epochs", "patience", "lr")


@dataclass(frozen=True)
class Settings:
    """info: the model under the name that it was asked for by; options: its own settings, as far as they were given; given:
    all that were, by name."""

    info: ModelInfo
    task: str
    options: Mapping[str, Any]
    training: TrainingOptions
    batches: BatchOptions
    preset: str | None = None
    history: HistoryOptions = HistoryOptions()  # noqa: RUF009 - frozen
    given: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def make(
        cls, model: str | type[Model] | Model | ModelInfo, task: str, given: Mapping[str, Any], preset: str | None = None
    ) -> Settings:
        """Settings by name, checked: the model's defaults, the preset's, then what is given. Texts are taken as the kind each
        setting has."""
        info = model if isinstance(model, ModelInfo) else model_info(model)
        one_of(task, "task", TASKS)
        if task not in info.tasks:
            raise OptionError(f"the model '{info.name}' cannot do the task '{task}'; it does {', '.join(info.tasks)}.")
        if preset is not None:
            one_of(preset, "preset", PRESETS)
        of_instance = model.settings if isinstance(model, Model) else {}
        values = {**of_instance, **{ALIASES.get(name, name): value for name, value in given.items()}}
        values |= {name: new for (name, old), new in _OLD_VALUES.items() if values.get(name) == old}
        if isinstance(values.get("history"), list | tuple):
            values["history"] = ",".join(str(role) for role in values["history"]) or NO_HISTORY
        defaults = dict(info.defaults)
        if _reads_history(info) and values.get("history", NO_HISTORY) not in (AUTO_HISTORY, NO_HISTORY):
            defaults |= {name: value for name, value in _WITH_HISTORY.items() if name != "v_scale" or name in info.declared}
        if task != "topn" and defaults.get("loss") in grouped_losses(info):
            defaults.pop("loss")  # a label of its own has nothing to be compared with
        if task == "implicit":
            defaults.pop("n_negatives", None)  # instances are the same for all models
        # A preset says how to train; a model that does not learn in epochs follows it in its rows and its choice alone.
        of_preset = PRESETS[preset] if preset and info.cls.learns_in_epochs else {}
        merged = {**defaults, **of_preset, **values}
        readers = {"model": info.declared, **applicable(info)}
        for name in merged:
            if not any(name in reader for reader in readers.values()):
                names = {key for reader in readers.values() for key in reader}
                known_names = sorted(names | (set(ALIASES) if readers["batches"] else set()))
                if name in of_preset and name not in values:
                    raise OptionError(f"the preset '{preset}' sets {name}, which the model '{info.name}' does not have.")
                raise OptionError(f"unknown setting '{name}' for the model '{info.name}'{did_you_mean(name, known_names)}")
        chosen = {
            part: convert_all(reader, {name: value for name, value in merged.items() if name in reader})
            for part, reader in readers.items()
        }
        usual = BatchOptions(n_negatives=_IMPLICIT_NEGATIVES) if task == "implicit" else BatchOptions()
        training, batches = replace(TrainingOptions(), **chosen["training"]), replace(usual, **chosen["batches"])
        history = replace(HistoryOptions(), **chosen["history"])
        settings = cls(info, task, chosen["model"], training, batches, preset, history, values)
        settings._check()
        return settings

    def for_data(self, *, is_ordered: bool, n_candidates: int, changes_with_time: bool = False) -> Settings:
        """With what is `auto` decided by the data: whether it is known what came before a row, among how many items a target
        stands, and whether these are other ones from row to row."""
        if self.info.cls.reads_sequences:
            if not is_ordered:
                raise OptionError(
                    f"the model '{self.model}' reads users' events in order, but the data have no times; name their column "
                    'with [interactions] time, or set ties = "file" where the rows lie in order.'
                )
            return replace(self, batches=self._softmax_batches(n_candidates, changes_with_time))
        needs_order = self.info.cls.needs_order(self.options)
        if needs_order and not is_ordered:
            raise OptionError(
                f"{needs_order}, but the data have no times that differ, so nothing is known to come before anything; "
                'name their column with [interactions] time, or set ties = "file" where the rows lie in order.'
            )
        if not _reads_history(self.info):
            return self
        history = self.history_for(is_ordered=is_ordered)
        if history == NO_HISTORY:
            return self.without_history()
        if not is_ordered:
            raise OptionError(
                f"history is '{history}', but the data have no times that differ, so nothing is known to come before anything; "
                'name their column with [interactions] time, or set ties = "file" where the rows lie in order.'
            )
        settings = Settings.make(self.info, self.task, {**self.given, "history": history}, self.preset)
        batches = settings._softmax_batches(n_candidates, changes_with_time)
        options = replace(settings.history, user_id=bool(settings.history.user_id))
        return replace(settings, batches=batches, history=options)

    def history_for(self, *, is_ordered: bool) -> str:
        """The roles that `history` stands for, or none; auto is all of them for top-n where it is known what came before a
        row, but under a preset."""
        if self.history.history != AUTO_HISTORY:
            return self.history.history
        is_on = self.task == "topn" and is_ordered and self.preset is None
        return ",".join(ROLES) if is_on else NO_HISTORY

    def _softmax_batches(self, n_candidates: int, changes_with_time: bool) -> BatchOptions:
        """With as many negatives as a softmax wants, unless they are given."""
        shares = self.shares_negatives and not changes_with_time
        if self.batches.n_negatives == ALL_NEGATIVES and not shares:
            why = "but not everything can be had at the time of every row" if changes_with_time else "and has the loss softmax"
            raise OptionError(f"negatives = all is for rows that share their negatives, {why}; give a number of negatives.")
        if "n_negatives" in self.given or self.task != "topn" or self.training.loss != "softmax":
            return self.batches
        shared = ALL_NEGATIVES if n_candidates <= _ALL_UP_TO else _SHARED_NEGATIVES
        return replace(self.batches, n_negatives=shared if shares else min(NEGATIVES_OF_A_ROW, n_candidates))

    def option(self, name: str) -> Any:
        """A setting of the model's own, as given or by default."""
        return self.options.get(name, self.info.declared[name].default)

    @property
    def may_read_history(self) -> bool:
        """Whether the model can, so that it matters what the data say of what came before what."""
        return self.info.cls.reads_sequences or self.has_history_settings

    @property
    def has_history_settings(self) -> bool:
        return _reads_history(self.info)

    @property
    def has_user_ids(self) -> bool:
        """Whether a user has a row of their own, of settings whose history is decided."""
        return self.history.user_id is not False and not self.info.cls.reads_sequences

    @property
    def shares_negatives(self) -> bool:
        """Whether all rows of a step may be compared with the same items."""
        has_own_loss = self.training.loss in losses_of(self.info.cls)
        return self.training.loss == "softmax" and self.info.cls.shares_negatives and not has_own_loss

    def without_history(self) -> Settings:
        """With `auto` decided to no history."""
        if self.batches.n_negatives == ALL_NEGATIVES and not self.info.cls.reads_sequences:
            raise OptionError("negatives = all is for models that read a history, and here none is read; give a number.")
        return replace(self, history=replace(self.history, history=NO_HISTORY))

    @property
    def model(self) -> str:
        return self.info.name

    @property
    def as_published(self) -> bool:
        """Whether the published procedure is followed, which has no validation part and chooses on test."""
        return self.preset == "paper" and self.task == "topn"

    def _check(self) -> None:
        losses, optimiser = {**OBJECTIVES, **losses_of(self.info.cls)}, self.training.optimiser
        if self.training.loss not in losses:
            raise OptionError(f"loss is '{self.training.loss}'{did_you_mean(self.training.loss, losses)}")
        if optimiser not in ROW_OPTIMISERS:
            raise OptionError(f"optimiser is '{optimiser}'{did_you_mean(optimiser, ROW_OPTIMISERS)}")
        n_negatives = abs(self.batches.n_negatives) if self.task == "topn" else 0
        self.training.check_task(self.task, n_negatives, grouped_losses(self.info))
        reads_history = self.info.cls.reads_sequences or self.history.roles or self.history.history == AUTO_HISTORY
        if self.batches.n_negatives == ALL_NEGATIVES and not reads_history:
            raise OptionError(
                "negatives = all is the softmax of models with a history; give a number of negatives, or a history."
            )
        if self.task == "topn" and self.batches.n_negatives == 0:
            raise OptionError("top-n needs something to rank a positive above; set negatives to 1 or more.")

    def build(self, layout: Layout | None = None) -> Model:
        """The model itself, its dense parameters drawn from the seed."""
        torch.manual_seed(self.training.seed)
        return self.info.build(layout, self.options)

    def to_dict(self) -> dict[str, Any]:
        readers = applicable(self.info)
        training = {name: getattr(self.training, name) for name in sorted(readers["training"])}
        batches = {name: getattr(self.batches, name) for name in sorted(readers["batches"]) if name != "seed"}
        history = {name: getattr(self.history, name) for name in sorted(readers["history"])}
        return {
            "model": self.model,
            "task": self.task,
            "preset": self.preset,
            "settings": {**self.options, **training, **batches, **history},
        }


def applicable(info: ModelInfo) -> dict[str, dict[str, Declared]]:
    """The settings of training and batches that have an effect on a model: what it reads and how it learns decides."""
    if info.cls.inputs.labels or not info.cls.learns_in_epochs:
        names = _ALWAYS + (_IN_EPOCHS if info.cls.learns_in_epochs else ())
        return {"training": {name: _TRAINING[name] for name in names}, "batches": {}, "history": {}}
    return {"training": _TRAINING, "batches": _BATCHES, "history": _HISTORY if _reads_history(info) else {}}


def _reads_history(info: ModelInfo) -> bool:
    """Whether what users did before can be among a model's inputs in training."""
    return bool(getattr(info.cls, "takes_history", False))


def search_space(info: ModelInfo, task: str, *, with_history: bool = False) -> dict[str, Space]:
    """What tuning may choose from: what training and batches offer, then the model's own. with_history: of a model that reads
    one, whose loss and negatives are settled, while there is the history to search."""
    readers = applicable(info)
    space: dict[str, Space] = {}
    usual: dict[str, Space] = {}  # with what a history has by default among the choices
    for name in ("lr", "weight_decay", "cold_start_rate", "batch_size", "loss", "n_negatives"):
        declared = readers["training"].get(name) or readers["batches"].get(name)
        if declared is not None and declared.setting.search is not None:
            space[name] = declared.setting.search
    if task != "topn":
        space.pop("n_negatives", None)
        space.pop("loss", None)
        if task == "implicit" and readers["batches"]:
            space["loss"] = Choice(("squared", "logistic"))
    own_losses = tuple(name for name in losses_of(info.cls) if task == "topn" or name not in grouped_losses(info))
    if "loss" in space and isinstance(space["loss"], Choice):
        space["loss"] = Choice((*space["loss"].values, *own_losses))
    if with_history:
        searched = {name: declared.setting.search for name, declared in readers["history"].items()}
        space |= {name: choices for name, choices in searched.items() if choices is not None}
        own = {name: choices for name, choices in info.space.items() if isinstance(choices, Choice) and name in _WITH_HISTORY}
        usual = {name: Choice(tuple(sorted({*choices.values, _WITH_HISTORY[name]}))) for name, choices in own.items()}
    for name in (*info.fixed, *(("loss", "n_negatives") if with_history else ())):
        space.pop(name, None)
    return {**space, **info.space, **usual}


def grouped_losses(info: ModelInfo) -> set[str]:
    """The losses that compare a positive with its negatives, a model's own among them."""
    return GROUPED | {name for name, loss in losses_of(info.cls).items() if getattr(loss, "compares_groups", False)}


def settings_table(model: str | type[Model] | Model | None = None, task: str = "topn") -> list[dict[str, Any]]:
    """Every setting of a model for a task, or without a model what all trained models share: one line each."""
    info = None if model is None else model_info(model)
    defaults: dict[str, Any] = {}
    if info is not None:
        task = task if task in info.tasks else info.tasks[0]
        defaults = Settings.make(info, task, {}).to_dict()["settings"]
    common = {"training": _TRAINING, "batches": _BATCHES, "history": _HISTORY}
    readers = common if info is None else {"model": info.declared, **applicable(info)}
    space = {} if info is None else search_space(info, task)
    if info is not None and _reads_history(info) and task == "topn":
        space |= search_space(info, task, with_history=True)
    with_history = _with_history(info, task)
    rows: dict[str, dict[str, Any]] = {}
    for part, reader in readers.items():
        for name, declared in reader.items():
            default = defaults.get(name, declared.default if declared.has_default else None)
            row = {
                "name": name,
                "kind": declared.kind.__name__,
                "default": "auto" if default is None else default,
                "range": _range(declared, info, task),
                "meaning": declared.setting.meaning + _otherwise(with_history, name, default),
                "searched": (name in space) if info else declared.setting.search is not None,
                "of": part,
            }
            rows.setdefault(name, row)
    return list(rows.values())


def _with_history(info: ModelInfo | None, task: str) -> dict[str, Any]:
    """The defaults of a model that can read a history, or of any, where it does."""
    if info is None:
        return _WITH_HISTORY
    if not _reads_history(info):
        return {}
    return dict(Settings.make(info, task, {"history": ",".join(ROLES)}).to_dict()["settings"])


def _otherwise(with_history: Mapping[str, Any], name: str, default: Any) -> str:
    """What is said of a default that is another one where a history is read."""
    is_same = name == "history" or with_history.get(name, default) == default
    return "" if is_same else f"; with a history {with_history[name]}"


def _range(declared: Declared, info: ModelInfo | None, task: str) -> str:
    """What is allowed, in words: of losses and optimisers what is registered, else what the declaration says."""
    if declared.name == "loss":
        refused = (
            (grouped_losses(info) if info else GROUPED) | ({"logistic"} if task == "rating" else set())
            if task != "topn"
            else set()
        )
        losses = {**OBJECTIVES, **(losses_of(info.cls) if info else {})}
        return ", ".join(name for name in losses if name not in refused)
    if declared.name == "optimiser":
        return ", ".join(ROW_OPTIMISERS)
    expected = declared.setting.check("?") if declared.setting.check else None  # what a check says of a text it refuses
    return declared.range or expected or ""
