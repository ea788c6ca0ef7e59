"""What one study searches: the data, the model, what is fixed and what is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gmlfm.data.dataset import Dataset
from gmlfm.data.histories import is_ordered
from gmlfm.data.splits import AUTO, check_split, default_split, make_split
from gmlfm.errors import OptionError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.fitting.plan import chosen_device
from gmlfm.models.settings import Choice, Space
from gmlfm.recommender import Recommender
from gmlfm.training.settings import Settings
from gmlfm.tuning.fixed import fixed_settings
from gmlfm.tuning.inputs import SMALLEST, decided
from gmlfm.tuning.rising import searched_epochs
from gmlfm.tuning.spaces import defaults, search_space, space_as_json


@dataclass(frozen=True)
class Search:
    """Everything but the budget. settings: what is fixed, by KEY or MODEL.KEY."""

    data: Dataset
    model: str
    folder: Path
    task: str = "topn"
    split: str = AUTO
    preset: str | None = None
    seed: int = 0
    threads: int | None = None
    device: str = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)
    split_options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        check_split(self.split)
        chosen_device(self.device)
        Settings.make(self.model, self.task, {}, self.preset)

    @property
    def metric(self) -> str:
        return default_metric("ndcg") if self.task == "topn" else "rmse"

    @cached_property
    def fixed(self) -> dict[str, Any]:
        return fixed_settings(self.settings, (self.model,), self.task, self.preset)[self.model]

    @cached_property
    def space(self) -> dict[str, Space]:
        """What is tried: the model's search space without what is fixed and what the model refuses beside that."""
        space = search_space(self.model, self.task, self.preset, with_history=bool(self.history))
        if not is_ordered(self.data):  # there is nothing that could be more recent
            space.pop("half_life", None)
        epochs = searched_epochs(self._decided.training) if self.preset is None else None
        if epochs is not None:
            space["epochs"] = epochs
        space = {name: choices for name, choices in space.items() if name not in self.fixed}
        own = self._decided.info.declared
        if self.fixed.keys().isdisjoint(own):
            return space
        for name, choices in list(space.items()):
            if name in own and isinstance(choices, Choice):
                taken = tuple(value for value in choices.values if self._takes(name, value))
                if len(taken) > 1:
                    space[name] = Choice(taken)
                else:
                    del space[name]
        return space

    def _takes(self, name: str, value: Any) -> bool:
        """Whether the model takes a setting beside what is fixed: a metric has no more rows than there are factors."""
        try:
            Settings.make(self.model, self.task, {**self.fixed, name: value}, self.preset).build(SMALLEST)
        except OptionError:
            return False
        return True

    @property
    def history(self) -> str:
        """The roles in which the model reads what users did before, as its setting writes them; '' for none."""
        return ",".join(self._decided.history.roles)

    @cached_property
    def _decided(self) -> Settings:
        return decided(self.settings_of({}), self.data)

    def settings_of(self, chosen: Mapping[str, Any]) -> Settings:
        """Of a trial, with what is fixed; with its history decided."""
        settings = Settings.make(self.model, self.task, {**self.fixed, **chosen}, self.preset)
        roles = ",".join(decided(settings, self.data).history.roles)
        return Settings.make(self.model, self.task, {**settings.given, "history": roles}, self.preset) if roles else settings

    @property
    def defaults(self) -> dict[str, Any]:
        """The first trial."""
        return defaults(self.model, self.task, self.space, with_history=bool(self.history))

    @property
    def stamp(self) -> dict[str, Any]:
        """What all trials of a study have in common: figures of another one are not to be mixed with them."""
        return {
            "model": self.model,
            "task": self.task,
            "preset": self.preset,
            "split": split_name(self.data, resolved_split(self.data, self.split, self.task, self.preset), self.split_options),
            "seed": self.seed,
            "data": self.data.content_hash,
            "fixed settings": self.fixed,
            "search space": space_as_json(self.space),
        }

    def recommender(self, chosen: Mapping[str, Any]) -> Recommender:
        """Of a trial's settings, with what is fixed."""
        threads = {} if self.threads is None else {"threads": self.threads}
        settings = {**self.fixed, **chosen, **threads, "seed": self.seed}
        return Recommender(self.model, self.task, preset=self.preset, device=self.device, **settings)


def resolved_split(data: Dataset, split: str, task: str, preset: str | None) -> str:
    """The split that `auto` stands for on these data."""
    if split != AUTO:
        return split
    return "leave-one-out" if preset else default_split(data, task)[0]  # type: ignore[arg-type]


def split_name(data: Dataset, split: str, options: Mapping[str, Any]) -> str:
    """Tells one split from another; of one that was brought from files, by its rows and lists."""
    return f"{split} {make_split(data, split, **options).hash}" if options else split
