"""Run folders: safetensors, JSON and Parquet, versioned, never a pickle. RUN/model is written whole or not at all."""

from __future__ import annotations

import json
import platform
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

from gmlfm.data.dataset import Dataset
from gmlfm.data.encoding import Encoded, Encoder
from gmlfm.data.splits import Split
from gmlfm.data.stock import read_log
from gmlfm.data.storing import load_saved_dataset, load_split, save_dataset, save_split
from gmlfm.errors import DataError
from gmlfm.fitting import FittedRun
from gmlfm.fitting.episodic import rated, with_labels
from gmlfm.fitting.run import learned_rows
from gmlfm.models.base import Layout
from gmlfm.models.registry import model_info
from gmlfm.retrieval import Ranker, Scorer
from gmlfm.storage import new_folder
from gmlfm.training.loop import load_weights
from gmlfm.training.sampling.negatives import implicit_instances
from gmlfm.training.settings import Settings

FORMAT = 2
_KEYS = {
    "model",
    "task",
    "preset",
    "settings",
    "regime",
    "best_epoch",
    "validation",
    "validation_protocol",
    "limits",
    "label_scale",
    "extra_items",
}
_FILES = ("run.json", "card.md", "weights.safetensors", "encoder", "data", "history.jsonl", "stock.jsonl")
STOCK = Path("model") / "stock.jsonl"


def save_run(fitted: FittedRun, folder: Path, metrics: dict[str, Any] | None = None) -> None:
    """Write RUN/model. What was there stays whole until the new one is."""
    try:
        with new_folder(folder / "model", holds=_FILES) as new:
            save_file({name: one.contiguous() for name, one in fitted.weights.items()}, new / "weights.safetensors")
            fitted.encoder.save(new / "encoder")
            save_dataset(fitted.data, new / "data")
            save_split(fitted.split, new / "data")
            history = "".join(json.dumps(one) + "\n" for one in fitted.history)
            (new / "history.jsonl").write_text(history, encoding="utf-8")
            fitted.stock.write(new / "stock.jsonl")
            about = _about(fitted, metrics or {})
            (new / "run.json").write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
            (new / "card.md").write_text(_card(about), encoding="utf-8")
    except SafetensorError as error:
        raise DataError(f"{folder} could not be written ({error}); what was there before is unchanged.") from error


def load_run(folder: Path) -> tuple[FittedRun, dict[str, Any]]:
    """A saved run on this machine, and its run.json."""
    model_folder = folder / "model"
    try:
        about = json.loads((model_folder / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{folder} is no run: {model_folder / 'run.json'} is missing; make one with gmlfm train.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{model_folder / 'run.json'} cannot be understood ({error}).") from error
    found = about.get("format") if isinstance(about, dict) else None
    if found != FORMAT:
        raise DataError(f"{folder} has the format {found}, this version reads {FORMAT}; update gmlfm, or train again.")
    missing = sorted(_KEYS - set(about))
    if missing:
        raise DataError(f"{model_folder / 'run.json'} has no '{missing[0]}'; it is damaged, train again.")
    given = {name: value for name, value in about["settings"].items() if value is not None}
    settings = replace(Settings.make(about["model"], about["task"], given), preset=about["preset"])
    data, split = load_saved_dataset(model_folder / "data"), load_split(model_folder / "data")
    encoder = Encoder.load(model_folder / "encoder")
    encoded = encoder.encode(data)
    try:
        weights = load_file(model_folder / "weights.safetensors")
    except (OSError, SafetensorError) as error:
        raise DataError(f"{model_folder / 'weights.safetensors'} is missing or damaged ({error}).") from error
    try:
        scores = (
            _episodic(settings, weights, Layout(encoder.fields), encoded, data, split, about["regime"])
            if model_info(settings.model).episodic is not None
            else _scores(settings, weights, Layout(encoder.fields), encoded, tuple(about["label_scale"]))
        )
    except (RuntimeError, KeyError, ValueError) as error:
        raise DataError(f"{folder}: the weights do not fit the model ({str(error).splitlines()[0]}).") from error
    instances = (
        implicit_instances(data, settings.batches.n_negatives or 2, int(split.options["seed"]))
        if settings.task == "implicit"
        else None
    )
    fitted = FittedRun(
        settings=settings,
        data=data,
        split=split,
        encoder=encoder,
        encoded=encoded,
        scores=scores,
        weights=weights,
        regime=about["regime"],
        best_epoch=about["best_epoch"],
        validation=about["validation"],
        validation_protocol=about["validation_protocol"],
        limits=(about["limits"][0], about["limits"][1]),
        instances=instances,
        label_scale=tuple(about["label_scale"]),
        extra_items=tuple(about["extra_items"]),
    )
    for kind, ids in read_log(folder / STOCK):
        numbers = encoder.item_numbers(ids)
        fitted.stock.mark(numbers[numbers >= 0], ids, sold=kind == "sold")
    return fitted, about


def _scores(
    settings: Settings, weights: dict[str, Tensor], layout: Layout, encoded: Encoded, label_scale: tuple[float, float]
) -> Ranker:
    if model_info(settings.model).count is not None:
        counted = settings.count()
        counted.load(weights)
        return counted
    model = settings.build(layout)
    table = torch.empty_like(weights["table"])
    if tuple(table.shape) != (layout.n_rows, model.row_width):
        raise ValueError(f"their shape is {tuple(table.shape)}, expected {(layout.n_rows, model.row_width)}")
    load_weights(model, table, weights)
    return Scorer(model, table, encoded, layout.field_of_row(), label_scale)


def _episodic(
    settings: Settings,
    weights: dict[str, Tensor],
    layout: Layout,
    encoded: Encoded,
    data: Dataset,
    split: Split,
    found_regime: str,
) -> Ranker:
    model = settings.episodic(layout)
    model.read(encoded, rated(data, with_labels(data, learned_rows(split, found_regime))))
    model.load(weights)
    return model


def _about(fitted: FittedRun, metrics: dict[str, Any]) -> dict[str, Any]:
    versions = {
        "gmlfm": version("gmlfm"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "polars": pl.__version__,
    }
    return {
        "format": FORMAT,
        **fitted.settings.to_dict(),
        "data": {"name": fitted.data.name, "hash": fitted.data.content_hash},
        "split": {"name": fitted.split.name, "hash": fitted.split.hash, "options": dict(fitted.split.options)},
        "regime": fitted.regime,
        "best_epoch": fitted.best_epoch,
        "validation": fitted.validation,
        "validation_protocol": fitted.validation_protocol,
        "limits": list(fitted.limits),
        "label_scale": list(fitted.label_scale),
        "extra_items": list(fitted.extra_items),
        "metrics": metrics,
        "versions": {**versions, "numpy": np.__version__},
        "threads": torch.get_num_threads(),
    }


def _card(about: dict[str, Any]) -> str:
    """The run for a reader."""
    lines = [f"# {about['model']} on {about['data']['name']}", ""]
    if about["preset"] == "paper" and about["task"] == "topn":
        lines += ["**Trained as published: the epoch was chosen on the TEST part. For comparison with the paper only.**", ""]
    lines += [
        f"- task {about['task']}, {about['regime']}, best epoch {about['best_epoch']}",
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
