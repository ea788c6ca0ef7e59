"""run.json: what a run is, which generation is current, and the checksums; and the same for a reader, card.md."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from gmlfm.arguments import shown
from gmlfm.errors import DataError
from gmlfm.escaping import markdown_text
from gmlfm.fitting import FittedRun, Refit
from gmlfm.runs.checksums import CHECK, seal_of
from gmlfm.runs.layout import ABOUT, OLD_MODEL
from gmlfm.runs.migration import FORMAT, migrate
from gmlfm.storage import sha256_of

WEIGHTS = "weights.safetensors"
# What run.json must hold, and of which kind.
_KEYS: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: isinstance(value, str),
    "task": lambda value: isinstance(value, str),
    "preset": lambda value: value is None or isinstance(value, str),
    "settings": lambda value: isinstance(value, dict),
    "refit": lambda value: isinstance(value, str),
    "best_epoch": lambda value: _is_count(value),
    "validation": lambda value: isinstance(value, dict) and all(_is_number(figure) for figure in value.values()),
    "validation_protocol": lambda value: isinstance(value, str),
    "limits": lambda value: _is_pair(value),
    "label_scale": lambda value: _is_pair(value),
    "extra_items": lambda value: isinstance(value, list) and all(_is_count(item) for item in value),
    "files": lambda value: isinstance(value, dict) and all(isinstance(checksum, str) for checksum in value.values()),
    "generation": lambda value: isinstance(value, str) and re.fullmatch(r"\d{6,20}|", value) is not None,
    "version": lambda value: isinstance(value, str),
    "replayed": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "interrupted": lambda value: isinstance(value, bool),
    "added_items": lambda value: _is_count(value),
    "updates": lambda value: isinstance(value, list) and all(isinstance(update, dict) for update in value),
}
_MAY_LACK: dict[str, Any] = {"updates": []}  # runs of before there were updates


def read_about(folder: Path) -> dict[str, Any]:
    """run.json, checked, in today's format; its `check` tells one state of the folder from another."""
    path = folder / ABOUT
    try:
        if not path.exists() and (folder / OLD_MODEL / ABOUT).exists():
            path = folder / OLD_MODEL / ABOUT
        written = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{folder} is no run: {path} is missing; make one with gmlfm train.") from error
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{str(path)!r} cannot be read ({reason}).") from error
    about = migrate(written) if isinstance(written, dict) else {}
    if about.get("format") != FORMAT:
        raise DataError(
            f"{folder} has the format {about.get('format')}, this version reads up to {FORMAT}; update gmlfm, or train again."
        )
    is_old = written["format"] != FORMAT
    if not is_old and about.get(CHECK) != seal_of(about):
        raise DataError(f"{path} was changed after it was saved (its checksum differs); restore it, or train again.")
    about = {**_MAY_LACK, **about}
    for name, is_right in _KEYS.items():
        if name not in about:
            raise DataError(f"{path} has no '{name}'; it is damaged, train again.")
        if not is_right(about[name]):
            raise DataError(f"{path} is damaged: its '{name}' is {shown(about[name])}; train again.")
    return {**about, CHECK: _check_of_old(path.parent)} if is_old else about


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_number(number) for number in value)


def _check_of_old(model: Path) -> str:
    """Before there were checksums, the weights and the description tell one run from another."""
    return "".join(sha256_of(model / name) for name in (ABOUT, WEIGHTS) if (model / name).is_file())


def describe(run: FittedRun) -> dict[str, Any]:
    versions = {
        "gmlfm": version("gmlfm"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "polars": pl.__version__,
    }
    return {
        "format": FORMAT,
        **run.settings.to_dict(),
        "class": f"{run.settings.info.cls.__module__}:{run.settings.info.cls.__qualname__}",
        "data": {"name": run.data.name, "hash": run.data.content_hash},
        "split": {"name": run.split.name, "hash": run.split.hash, "options": dict(run.split.options)},
        "refit": run.refit.value,
        "best_epoch": run.best_epoch,
        "validation": run.validation,
        "validation_protocol": run.validation_protocol,
        "limits": list(run.limits),
        "label_scale": list(run.label_scale),
        "extra_items": list(run.extra_items),
        "added_items": run.n_added_items,
        "interrupted": run.report.interrupted,
        "updates": [dict(update) for update in run.updates],
        "versions": {**versions, "numpy": np.__version__},
        "threads": torch.get_num_threads(),
    }


def _update_line(update: Mapping[str, Any]) -> str:
    figures = ", ".join(
        f"{name} {update['before'][name]:.4f} before and {update['after'][name]:.4f} after" for name in update["after"]
    )
    return f"- updated with {update['n_rows']:,} new rows" + (f": {figures}, of held-out new rows" if figures else "")


def card_of(about: dict[str, Any]) -> str:
    """The run for a reader."""
    data, split = markdown_text(about["data"]["name"]), markdown_text(about["split"]["name"])
    lines = [f"# {markdown_text(about['model'])} on {data}", ""]
    if about["preset"] == "paper" and about["task"] == "topn":
        lines += ["**Trained as published: the epoch was chosen on the TEST part. For comparison with the paper only.**", ""]
    lines += [
        f"- task {about['task']}, {Refit(about['refit']).label}, best epoch {about['best_epoch']}"
        + (", training was interrupted" if about["interrupted"] else ""),
        *(_update_line(update) for update in about["updates"]),
        f"- data {data}, hash {about['data']['hash']}",
        f"- split {split}, hash {about['split']['hash']}",
        *(
            f"- validation ({about['validation_protocol'] or 'labels'}) {name}: {value:.4f}"
            for name, value in about["validation"].items()
        ),
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {name} | {markdown_text(str(value))} |" for name, value in about["settings"].items()),
        "",
        "Versions: "
        + ", ".join(f"{name} {value}" for name, value in about["versions"].items())
        + f"; {about['threads']} threads.",
    ]
    return "\n".join(lines) + "\n"
