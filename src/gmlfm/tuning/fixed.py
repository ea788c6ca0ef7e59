"""Settings that are given and not searched: KEY=VALUE for every model that has KEY, MODEL.KEY=VALUE for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gmlfm.errors import OptionError, did_you_mean
from gmlfm.models.registry import ModelInfo, model_info
from gmlfm.training.settings import ALIASES, Settings, applicable

_OWN_OPTIONS = ("seed", "threads", "device", "task", "preset", "split", "model")


def fixed_settings(
    given: Mapping[str, Any], models: Sequence[str], task: str, preset: str | None = None
) -> dict[str, dict[str, Any]]:
    """By model, the settings that are fixed, checked and of their kind; what names a model goes before what does not.

    A setting that no model has is refused, and so is one for all where it belongs to a model's name (the loss of bpr-mf).
    """
    fixed: dict[str, dict[str, Any]] = {model: {} for model in models}
    infos = {model: model_info(model) for model in models}
    for text, value in sorted(given.items(), key=lambda pair: "." in pair[0]):
        model, _, name = text.rpartition(".")
        key = ALIASES.get(name, name)
        if key in _OWN_OPTIONS:
            raise OptionError(f"{key} is no setting that --set fixes but an option of its own; use --{key} {value}.")
        if model and model not in infos:
            raise OptionError(f"'{text}' names the model '{model}', which is not among these{did_you_mean(model, models)}")
        chosen = [model] if model else [other for other in models if key in _names(infos[other])]
        if not chosen:
            known = sorted({known for info in infos.values() for known in _names(info)})
            raise OptionError(f"none of {', '.join(models)} has a setting '{key}'{did_you_mean(key, known)}")
        for owner in chosen:
            if not model and len(models) > 1 and key in infos[owner].fixed and f"{owner}.{key}" not in given:
                raise OptionError(
                    f"{key} belongs to the name '{owner}' and cannot be {value} there; leave {owner} out, or name the models: "
                    f"{next((other for other in chosen if key not in infos[other].fixed), 'MODEL')}.{key}={value}."
                )
            fixed[owner][key] = value
    return {model: _converted(model, values, task, preset) for model, values in fixed.items()}


def _names(info: ModelInfo) -> set[str]:
    readers = applicable(info)
    return {*info.declared, *readers["training"], *readers["batches"], *readers["history"]}


def _converted(model: str, values: Mapping[str, Any], task: str, preset: str | None) -> dict[str, Any]:
    if not values:
        return {}
    try:
        written = Settings.make(model, task, values, preset).to_dict()["settings"]
    except OptionError as error:
        raise OptionError(f"the model '{model}' cannot take {_listed(values)}: {error}") from error
    return {name: written[name] for name in sorted(values)}


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
