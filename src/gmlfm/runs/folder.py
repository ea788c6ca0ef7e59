"""Writing and reading a run folder. RUN/model is written whole or not at all."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gmlfm.data.encoding import Encoder
from gmlfm.data.storing import load_saved_dataset, load_split, save_dataset, save_split
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting import FittedRun, Refit
from gmlfm.fitting.plan import CURVE, curve_text, read_curve
from gmlfm.models.base import FitReport, Layout, Model
from gmlfm.models.registry import ModelInfo, model_info, named_model
from gmlfm.runs.migration import FORMAT, migrate
from gmlfm.storage import new_folder
from gmlfm.training.sampling.instances import redraw_instances
from gmlfm.training.settings import Settings

MODEL_FOLDER = "model"
_KEYS = {
    "model",
    "task",
    "preset",
    "settings",
    "refit",
    "best_epoch",
    "validation",
    "validation_protocol",
    "limits",
    "label_scale",
    "extra_items",
}
_WEIGHTS, _ABOUT, _CARD, _OLD_CURVE = "weights.safetensors", "run.json", "card.md", "history.jsonl"


def save_run(run: FittedRun, folder: Path, texts: Mapping[str, str]) -> None:
    """Write RUN/model. What was there stays whole until the new one is. texts: more files of the caller's, by name."""
    files = (_ABOUT, _CARD, _WEIGHTS, "encoder", "data", CURVE, _OLD_CURVE, *texts)
    try:
        with new_folder(folder / MODEL_FOLDER, holds=files) as new:
            save_file({name: tensor.contiguous() for name, tensor in run.model.state_dict().items()}, new / _WEIGHTS)
            run.encoder.save(new / "encoder")
            save_dataset(run.data, new / "data")
            save_split(run.split, new / "data")
            about = _about(run)
            written = {
                CURVE: curve_text(run.curve),
                _ABOUT: json.dumps(about, indent=1, ensure_ascii=False),
                _CARD: _card(about),
            }
            for name, text in {**written, **texts}.items():
                (new / name).write_text(text, encoding="utf-8")
    except SafetensorError as error:
        raise DataError(f"{folder} could not be written ({error}); what was there before is unchanged.") from error


def load_run(folder: Path, model: str | type[Model] | None = None) -> tuple[FittedRun, dict[str, Any]]:
    """A saved run on this machine, and its run.json. model: the class of a run whose model is not registered."""
    about = _read_about(folder)
    info = _model_of(folder, about, model)
    try:
        run = _run_without_weights(about, info, folder / MODEL_FOLDER)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder} is damaged ({type(error).__name__}: {error}); train again.") from error
    _load_weights(run, folder)
    return run, about


def _run_without_weights(about: dict[str, Any], info: ModelInfo, model_folder: Path) -> FittedRun:
    settings_given = {name: value for name, value in about["settings"].items() if value is not None}
    settings = replace(Settings.make(info, about["task"], settings_given), preset=about["preset"])
    data, split = load_saved_dataset(model_folder / "data"), load_split(model_folder / "data")
    encoder = Encoder.load(model_folder / "encoder")
    curve = read_curve(model_folder / CURVE) or read_curve(model_folder / _OLD_CURVE)
    return FittedRun(
        settings=settings,
        data=data,
        split=split,
        encoder=encoder,
        encoded=encoder.encode(data),
        model=settings.build(Layout(encoder.fields)),
        refit=Refit(about["refit"]),
        report=FitReport(about["best_epoch"], about["validation"], about["validation_protocol"], curve),
        limits=(float(about["limits"][0]), float(about["limits"][1])),
        label_scale=(float(about["label_scale"][0]), float(about["label_scale"][1])),
        instances=redraw_instances(data, split) if settings.task == "implicit" else None,
        extra_items=tuple(about["extra_items"]),
    )


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / MODEL_FOLDER / _ABOUT
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{folder} is no run: {path} is missing; make one with gmlfm train.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be understood ({error}).") from error
    about = migrate(about) if isinstance(about, dict) else {}
    if about.get("format") != FORMAT:
        raise DataError(
            f"{folder} has the format {about.get('format')}, this version reads up to {FORMAT}; update gmlfm, or train again."
        )
    missing = sorted(_KEYS - set(about))
    if missing:
        raise DataError(f"{path} has no '{missing[0]}'; it is damaged, train again.")
    return about


def _model_of(folder: Path, about: dict[str, Any], model: str | type[Model] | None) -> ModelInfo:
    """The registered model of that name, or the class that the caller gives: a run folder never decides what is imported."""
    name = str(about["model"])
    registered = None if ":" in name else _registered(name)
    path = name if ":" in name else str(about.get("class", ""))
    class_name = registered.cls.__qualname__ if registered else path.partition(":")[2]
    if model is not None:
        info = model_info(model)
        # Where nothing tells the class, the caller's word is all there is.
        if class_name and class_name != info.cls.__qualname__:
            raise OptionError(f"{folder} holds a run of '{name}', not of '{info.name}'.")
        return replace(info, name=name)
    if registered is not None:
        return registered
    class_name = class_name or "MyModel"
    raise OptionError(
        f"{folder} holds a run of '{name}', which is no model of gmlfm's own; give its class: "
        f"Recommender.load('{folder}', model={class_name}), or --model {path or 'my_module:' + class_name}."
    )


def _registered(name: str) -> ModelInfo | None:
    try:
        return named_model(name)
    except OptionError:
        return None


def _load_weights(run: FittedRun, folder: Path) -> None:
    path = folder / MODEL_FOLDER / _WEIGHTS
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is missing or damaged ({error}).") from error
    try:
        _check_table(weights, run.encoder.n_rows)
        run.model.load_state_dict(weights)
        run.model.attach(run.inputs)
    except (RuntimeError, KeyError, ValueError) as error:
        raise DataError(f"{folder}: the weights do not fit the model ({str(error).splitlines()[0]}).") from error


def _check_table(weights: dict[str, Tensor], n_rows: int) -> None:
    table = weights.get("table")
    if table is not None and len(table) != n_rows:
        raise ValueError(f"their table has {len(table):,} rows, expected {n_rows:,}")


def _about(run: FittedRun) -> dict[str, Any]:
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
        "versions": {**versions, "numpy": np.__version__},
        "threads": torch.get_num_threads(),
    }


def _card(about: dict[str, Any]) -> str:
    """The run for a reader."""
    lines = [f"# {about['model']} on {about['data']['name']}", ""]
    if about["preset"] == "paper" and about["task"] == "topn":
        lines += ["**Trained as published: the epoch was chosen on the TEST part. For comparison with the paper only.**", ""]
    lines += [
        f"- task {about['task']}, {Refit(about['refit']).label}, best epoch {about['best_epoch']}",
        f"- data {about['data']['name']}, hash {about['data']['hash']}",
        f"- split {about['split']['name']}, hash {about['split']['hash']}",
        *(
            f"- validation ({about['validation_protocol'] or 'labels'}) {name}: {value:.4f}"
            for name, value in about["validation"].items()
        ),
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in about["settings"].items()),
        "",
        "Versions: "
        + ", ".join(f"{name} {value}" for name, value in about["versions"].items())
        + f"; {about['threads']} threads.",
    ]
    return "\n".join(lines) + "\n"
