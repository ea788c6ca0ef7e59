"""What a comparison is: its methods, its test, what is fixed; and the file by which a folder holds one comparison alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gmlfm.data.dataset import Dataset
from gmlfm.data.splits import AUTO, check_split
from gmlfm.errors import OptionError
from gmlfm.evaluation.protocols import check_protocol
from gmlfm.models.registry import model_info
from gmlfm.storage import write_text
from gmlfm.training.settings import Settings
from gmlfm.tuning.budget import Budget, Finals
from gmlfm.tuning.fixed import fixed_settings
from gmlfm.tuning.inputs import check_order, with_inputs
from gmlfm.tuning.search import Search, resolved_split, split_name
from gmlfm.tuning.spaces import space_as_json
from gmlfm.tuning.study import read_stamp


@dataclass(frozen=True)
class Plan:
    """What is compared, and how; written to plan.json, so that a folder holds one comparison.

    settings: what is fixed, by KEY for every model that has it, or by MODEL.KEY. inputs: paper, history, or each method's own
    (inputs.py).
    """

    models: tuple[str, ...]
    task: str = "topn"
    split: str = AUTO
    protocol: str = "full"
    seeds: int = 3
    refit: bool = True
    seed: int = 0
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    split_options: Mapping[str, Any] = field(default_factory=dict)
    inputs: str | None = None

    def resolved(self, data: Dataset) -> Plan:
        """With the split that `auto` stands for on these data."""
        check_order(self.inputs, data)
        return replace(self, split=resolved_split(data, self.split, self.task, self.preset))

    def check(self) -> None:
        if len(self.models) < 2 or len(set(self.models)) < len(self.models):
            raise OptionError(f"models is {', '.join(self.models)}; name two or more, each once.")
        for name in self.models:
            if self.task not in model_info(name).tasks:
                raise OptionError(f"the model '{name}' cannot do the task '{self.task}'; leave it out.")
        if self.seeds < 1:
            raise OptionError(f"seeds is {self.seeds}; expected 1 or more.")
        check_split(self.split)
        check_protocol(self.protocol, self.seed)
        for name in self.models:
            Settings.make(name, self.task, {}, self.preset)
        _ = self.fixed

    @property
    def fixed(self) -> dict[str, dict[str, Any]]:
        """The fixed settings of each model."""
        given = fixed_settings(self.settings, self.models, self.task, self.preset)
        return with_inputs(self.inputs, given, self.task, self.preset)

    @property
    def refits(self) -> bool:
        """The preset trains on the validation rows from the start."""
        return self.refit and self.preset is None

    def share(self, budget: Budget) -> Budget:
        """What each method gets: so many trials, or an equal part of the seconds for its search and its final trainings."""
        if budget.seconds is None:
            return budget
        return Budget(seconds=budget.seconds / len(self.models), finals=Finals(self.seeds, self.refits, self.protocol))


def stamp_folder(out: Path, plan: Plan, budget: Budget, share: Budget, searches: Mapping[str, Search]) -> None:
    """Also of what is searched: a comparison does not go on with other spaces than it began with."""
    fixed = {f"{model}.{name}": value for model, settings in plan.fixed.items() for name, value in settings.items()}
    data = next(iter(searches.values())).data
    about = {
        "plan": {**asdict(plan), "models": list(plan.models), "settings": fixed, "split_options": {}},
        "split": split_name(data, plan.split, plan.split_options),
        "budget": f"{budget.trials} trials a method"
        if budget.trials is not None
        else f"{budget.seconds:g} seconds in all, {share.seconds:.4g} a method for its search and its final trainings",
        "share": share.seconds,
        "data": data.content_hash,
        "spaces": {model: space_as_json(search.space) for model, search in searches.items()},
    }
    write_stamp(out, about)


def write_stamp(out: Path, about: dict[str, Any]) -> None:
    """Into plan.json of a new folder; a folder that holds something else is refused, with what differs. about: `plan`, by its
    fields, and what else belongs to it."""
    about = json.loads(json.dumps(about))
    path = out / "plan.json"
    earlier = _with_inputs(read_stamp(path))
    if earlier not in (None, about):
        raise OptionError(f"{out} holds another comparison ({_difference(earlier, about)}); choose a new folder.")
    write_text(path, json.dumps(about, indent=1) + "\n")


def _with_inputs(stamp: Any) -> Any:
    """A comparison that was begun before there were inputs had each method's own."""
    if isinstance(stamp, dict) and isinstance(stamp.get("plan"), dict):
        stamp["plan"].setdefault("inputs", None)
    return stamp


def _difference(earlier: Any, about: dict[str, Any]) -> str:
    """The first thing in which two stamps differ, in words."""
    names = {"settings": "the fixed settings", "spaces": "the search spaces", "data": "the data"}
    for held, here in ((earlier.get("plan", {}), about["plan"]), (earlier, about)) if isinstance(earlier, dict) else ():
        for name in sorted(here, key=lambda name: name != "inputs"):  # which fix settings and spaces
            if name != "plan" and held.get(name) != here[name]:
                if name in ("data", "spaces") or name not in held:
                    return f"{names.get(name, name)} differ"
                return f"{names.get(name, name)}: {_shown(held[name])} there, {_shown(here[name])} here"
    return "see plan.json there"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={setting}" for name, setting in value.items()) or "none"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
