"""Writing and reading a run folder: a generation is written whole beside the one before, and run.json then names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gmlfm.data.encoding import Encoder
from gmlfm.data.storing import load_saved_dataset, load_split, save_dataset, save_split
from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.fitting import FittedRun, Refit
from gmlfm.fitting.plan import CURVE, curve_text, read_curve
from gmlfm.models.base import FitReport, Layout, Model
from gmlfm.models.registry import ModelInfo, model_info, named_model
from gmlfm.runs.checksums import CHECK, checksums, seal_of, sealed, verify
from gmlfm.runs.description import WEIGHTS, card_of, describe, read_about
from gmlfm.runs.layout import ABOUT, GENERATIONS, OLD_MODEL, clear_rests, holds_a_run, new_generation, remove_generation
from gmlfm.runs.reading import held_for_reading
from gmlfm.storage import WRITE_ERRORS, new_file, write_problem
from gmlfm.training.history_options import NO_HISTORY
from gmlfm.training.sampling.instances import redraw_instances
from gmlfm.training.settings import Settings, applicable

_READS = 20  # so often a reader begins again, where the generation is gone before it can be held
_PATIENCE = 10.0  # seconds in which readers of a generation that must go come to their end
_CARD, _OLD_CURVE = "card.md", "history.jsonl"


def save_run(
    run: FittedRun,
    folder: Path,
    *,
    version: str = "",
    replayed: int = -1,
    also: Mapping[Path, str] | None = None,
    after: Mapping[Path, str] | None = None,
    is_urgent: bool = False,
) -> dict[str, Any]:
    """Write a generation and make it the current one; returns its run.json. What was there stays whole until then.

    version: of the run that this one is but for forgotten users, a new one without it; replayed: the number of the last event
    that it has in it; also: texts to be written with it, all or none, before it counts; after: the same, in place as
    soon as it counts; is_urgent: the generation before goes although somebody
    may still read it. The caller holds the writers' lock.
    """
    _clear_before(folder)
    generation = None
    with ExitStack() as drafts:
        try:
            generation = new_generation(folder)
            _write_generation(run, generation)
            files = checksums(generation)
            place = {"generation": generation.name, "version": version or seal_of(files), "replayed": replayed, "files": files}
            about = sealed(describe(run) | place)
            # Everything that needs room is written before the first file gets its name, the last one in `texts`.
            texts = {**(after or {}), folder / ABOUT: json.dumps(about, indent=1), **(also or {})}
            for path, text in texts.items():
                drafts.enter_context(new_file(path)).write_text(text, encoding="utf-8", newline="\n")
            drafts.close()
        except BaseException as error:
            if generation is not None and not _names(folder, generation.name):
                remove_generation(generation)
            if isinstance(error, WRITE_ERRORS):
                raise DataError(
                    f"{folder} could not be written ({write_problem(error)}); what was there before is unchanged."
                ) from error
            raise
    clear_rests(folder, generation.name, _PATIENCE if is_urgent else 0.0)
    return about


def _clear_before(folder: Path) -> None:
    """What a death left; of a damaged run nothing is taken away before a new one stands in its place."""
    with suppress(DataError):
        if folder.is_dir():
            clear_rests(folder, read_about(folder)["generation"] if holds_a_run(folder) else "")


def _names(folder: Path, generation: str) -> bool:
    """Whether run.json says that this generation is the current one."""
    try:
        return bool(read_about(folder)["generation"] == generation)
    except DataError:
        return False


def _write_generation(run: FittedRun, folder: Path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in run.model.state_dict().items()}, folder / WEIGHTS)
    run.encoder.save(folder / "encoder")
    save_dataset(run.data, folder / "data")
    save_split(run.split, folder / "data")
    (folder / CURVE).write_text(curve_text(run.curve), encoding="utf-8")
    (folder / _CARD).write_text(card_of(describe(run)), encoding="utf-8")


def model_folder(folder: Path) -> Path:
    """Where the current generation lies: its weights, card, curve, encoder and data."""
    return _generation_folder(folder, read_about(folder))


def load_run(folder: Path, model: str | type[Model] | None = None) -> tuple[FittedRun, dict[str, Any]]:
    """A saved run on this machine, and its run.json. model: the class of a run whose model is not registered.

    A generation that a writer replaces while it is read is left for the new one.
    """
    for attempt in range(_READS):
        about = read_about(folder)
        try:
            with held_for_reading(_generation_folder(folder, about)):
                return _load_generation(folder, about, model), about
        except DataError:
            if attempt == _READS - 1 or read_about(folder)[CHECK] == about[CHECK]:
                raise
    raise AssertionError("the last attempt returns or raises")


def _load_generation(folder: Path, about: dict[str, Any], model: str | type[Model] | None) -> FittedRun:
    info = _model_of(folder, about, model)
    generation = _generation_folder(folder, about)
    try:
        verify(generation, about["files"])
        run = _run_without_weights(about, info, generation)
        _load_weights(run, folder, generation / WEIGHTS)
    except GmlfmError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # whatever the files of a run without checksums hold
        reason = " ".join(str(error).split())
        raise DataError(f"{folder} is damaged ({type(error).__name__}: {reason:.200}); train again.") from error
    return run


def _generation_folder(folder: Path, about: dict[str, Any]) -> Path:
    return folder / GENERATIONS / about["generation"] if about["generation"] else folder / OLD_MODEL


def _run_without_weights(about: dict[str, Any], info: ModelInfo, model_folder: Path) -> FittedRun:
    settings_given = {name: value for name, value in about["settings"].items() if value is not None}
    if applicable(info)["history"]:
        settings_given = {"history": NO_HISTORY, **settings_given}  # runs of before there were any have none
    settings = replace(Settings.make(info, about["task"], settings_given), preset=about["preset"])
    data, split = load_saved_dataset(model_folder / "data"), load_split(model_folder / "data")
    if max(about["extra_items"], default=-1) >= len(data.items):
        raise ValueError(f"item {max(about['extra_items'])} of {len(data.items)}")
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
        report=FitReport(
            about["best_epoch"],
            about["validation"],
            about["validation_protocol"],
            curve,
            interrupted=about["interrupted"],
        ),
        limits=(float(about["limits"][0]), float(about["limits"][1])),
        label_scale=(float(about["label_scale"][0]), float(about["label_scale"][1])),
        instances=redraw_instances(data, split) if settings.task == "implicit" else None,
        extra_items=tuple(about["extra_items"]),
        n_added_items=int(about["added_items"]),
        updates=tuple(about["updates"]),
    )


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


def _load_weights(run: FittedRun, folder: Path, path: Path) -> None:
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
