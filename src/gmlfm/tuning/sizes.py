"""Quality against size: each model trained at each K, measured on validation, beside its bytes and its seconds.

Nothing is searched, and the test part is never looked at: settings are defaults and what is fixed. Each training is a cell of
its own, written down when it is done, so that a stopped command goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gmlfm.data.dataset import Dataset
from gmlfm.data.splits import AUTO, check_split
from gmlfm.errors import GmlfmError, OptionError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.protocols import protocol_for
from gmlfm.fitting.plan import chosen_device
from gmlfm.models.base import Model
from gmlfm.models.registry import model_info
from gmlfm.progress import activity
from gmlfm.reading import READ_ERRORS, parse_json
from gmlfm.recommender import Recommender
from gmlfm.storage import write_text
from gmlfm.training.settings import Settings
from gmlfm.tuning.fixed import fixed_settings
from gmlfm.tuning.inputs import check_order, is_mixed, mixed_warning, what_is_read, with_inputs
from gmlfm.tuning.plan import write_stamp
from gmlfm.tuning.results import file_name
from gmlfm.tuning.search import resolved_split, split_name

USUAL = (8, 16, 32, 64, 128)
Axis = Literal["table_bytes", "item_bytes", "seconds"]
AXES: tuple[Axis, ...] = ("table_bytes", "item_bytes", "seconds")
_LARGEST, _BYTES = 10_000, 4


@dataclass(frozen=True)
class SizesPlan:
    """Which models at which K, and how they are trained. settings, inputs: as of `Plan`; seeds: trainings of each cell."""

    models: tuple[str, ...]
    sizes: tuple[int, ...] = USUAL
    split: str = AUTO
    seeds: int = 1
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    split_options: Mapping[str, Any] = field(default_factory=dict)
    inputs: str | None = None

    def check(self) -> None:
        if not self.models or len(set(self.models)) < len(self.models):
            raise OptionError(f"models is {', '.join(self.models) or 'empty'}; name one or more, each once.")
        if not self.sizes or len(set(self.sizes)) < len(self.sizes) or not all(1 <= k <= _LARGEST for k in self.sizes):
            raise OptionError(
                f"sizes is {', '.join(map(str, self.sizes)) or 'empty'}; expected numbers from 1 to {_LARGEST:,}, each once."
            )
        without = [model for model in self.models if "k" not in model_info(model).declared]
        if without:
            raise OptionError(
                f"sizes vary k, which {' and '.join(without)} {'has' if len(without) == 1 else 'have'} not; leave it out."
            )
        if self.seeds < 1:
            raise OptionError(f"seeds is {self.seeds}; expected 1 or more.")
        if any(name.rpartition(".")[2] == "k" for name in self.settings):
            raise OptionError("k is what sizes vary and cannot be fixed; leave it out.")
        check_split(self.split)
        for model, given in self.fixed.items():
            for k in self.sizes:
                Settings.make(model, "topn", {**given, "k": k})

    @property
    def fixed(self) -> dict[str, dict[str, Any]]:
        """The fixed settings of each model."""
        return with_inputs(self.inputs, fixed_settings(self.settings, self.models, "topn"))

    def cells(self) -> list[tuple[str, int, int]]:
        """Model, k and seed of each training."""
        return [(model, k, self.seed + n) for model in self.models for k in self.sizes for n in range(self.seeds)]


@dataclass(frozen=True)
class Cell:
    """One training.

    metrics: on validation, by protocol, of which a small catalogue has but `full`; table_bytes: of the table of factors;
    dense_bytes: of all other weights; item_bytes: of all items' side vectors, None where a score is no inner product;
    seconds: of all epochs' steps, without validation and what a process does once; of the whole fit where there are no epochs.
    """

    model: str
    k: int
    seed: int
    metrics: dict[str, dict[str, float]]
    table_bytes: int
    dense_bytes: int
    item_bytes: int | None
    seconds: float
    epochs: int
    best_epoch: int


@dataclass(frozen=True)
class Point:
    """A model at one k: means over seeds. best_on: the axes on which no other point is as good for less."""

    model: str
    k: int
    metrics: dict[str, dict[str, float]]
    table_bytes: int
    dense_bytes: int
    item_bytes: int | None
    seconds: float
    best_on: tuple[Axis, ...] = ()

    @property
    def quality(self) -> float:
        """By which points are compared and drawn."""
        return self.metrics["full"][default_metric("ndcg")]


@dataclass(frozen=True)
class Sizes:
    """By model in the order of the plan, then by k. reads: by model, in words; mixed: a warning where some read histories and
    others do not; failures: by model and k."""

    data: str
    split: str
    inputs: str | None
    seeds: int
    points: tuple[Point, ...]
    cells: tuple[Cell, ...]
    reads: dict[str, str]
    mixed: str
    failures: dict[str, str]


def compare_sizes(
    data: Dataset,
    plan: SizesPlan,
    out: Path,
    *,
    threads: int | None = None,
    device: str = "auto",
    trained: Callable[[str, int, int], None] | None = None,
) -> Sizes:
    """Train and measure what is not yet there, and write sizes.json. trained: hears of each training before it begins."""
    plan.check()
    chosen_device(device)
    if threads is not None and threads < 1:
        raise OptionError(f"threads is {threads}; expected 1 or more.")
    check_order(plan.inputs, data)
    plan = replace(plan, split=resolved_split(data, plan.split, "topn", None))
    settings = {model: Settings.make(model, "topn", given) for model, given in plan.fixed.items()}
    readings = {model: what_is_read(settings[model], data) for model in plan.models}
    _stamp(out, plan, data)
    cells, failures = [], {}
    machine: dict[str, Any] = {"device": device} | ({} if threads is None else {"threads": threads})
    places = plan.cells()
    for number, (model, k, seed) in enumerate(places, 1):
        path = out / "cells" / f"{file_name(model)}-{k}-{seed}.json"
        cell = _read(path)
        if cell is None:
            if trained is not None:
                trained(model, k, seed)
            try:
                with activity(f"{model} with k = {k}, training {number} of {len(places)}"):
                    cell = _train(data, plan, model, k, seed, machine)
            except OptionError:
                raise
            except GmlfmError as error:
                failures[f"{model}, k = {k}"] = str(error)
                continue
            write_text(path, json.dumps(asdict(cell), indent=1) + "\n")
        cells.append(cell)
    mixed = mixed_warning([model for model in readings if readings[model].of_history]) if is_mixed(readings.values()) else ""
    words = {model: reading.words for model, reading in readings.items()}
    points = marked(points_of(cells))
    sizes = Sizes(data.name, plan.split, plan.inputs, plan.seeds, points, tuple(cells), words, mixed, failures)
    write_text(out / "sizes.json", json.dumps(asdict(sizes), indent=1) + "\n")
    return sizes


def points_of(cells: Iterable[Cell]) -> list[Point]:
    """Means over the seeds of each model and k."""
    by_place: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        by_place.setdefault((cell.model, cell.k), []).append(cell)
    points = []
    for (model, k), alike in by_place.items():
        metrics = {
            protocol: {name: float(np.mean([cell.metrics[protocol][name] for cell in alike])) for name in figures}
            for protocol, figures in alike[0].metrics.items()
        }
        first, seconds = alike[0], float(np.mean([cell.seconds for cell in alike]))
        points.append(Point(model, k, metrics, first.table_bytes, first.dense_bytes, first.item_bytes, seconds))
    return points


def marked(points: Sequence[Point]) -> tuple[Point, ...]:
    """With the axes on which each is best (Pareto): no other is at least as good and at most as large, and better in one."""
    best: dict[int, list[Axis]] = {number: [] for number in range(len(points))}
    for axis in AXES:
        costs = [getattr(point, axis) for point in points]
        priced = [number for number, cost in enumerate(costs) if cost is not None]
        for number in priced:
            own, quality = costs[number], points[number].quality
            is_beaten = any(
                costs[other] <= own
                and points[other].quality >= quality
                and (costs[other] < own or points[other].quality > quality)
                for other in priced
            )
            if not is_beaten:
                best[number].append(axis)
    return tuple(replace(point, best_on=tuple(best[number])) for number, point in enumerate(points))


def _train(data: Dataset, plan: SizesPlan, model: str, k: int, seed: int, machine: Mapping[str, Any]) -> Cell:
    recommender = Recommender(model, **{**plan.fixed[model], "k": k, "seed": seed, **machine})
    started = time.perf_counter()
    recommender.fit(data, plan.split, split_options=plan.split_options)
    seconds, run = time.perf_counter() - started, recommender.fitted
    if run.curve:
        seconds = warm_seconds([epoch["seconds"] for epoch in run.curve])
    if not run.validation:
        raise OptionError(f"the split '{plan.split}' holds out no validation rows, on which sizes are compared.")
    names = [default_metric(name) for name in ("ndcg", "hr")]
    metrics = {}
    for protocol in dict.fromkeys(("full", protocol_for(run.data, run.split))):
        figures = recommender.evaluate(protocol=protocol, part="validation").metrics
        metrics[protocol] = {name: figures[name] for name in names}
    table, dense = _weights(run.model)
    width = run.model.item_vector_width
    n_bytes = None if width is None else _BYTES * width * len(run.encoded.item)
    return Cell(model, k, seed, metrics, table, dense, n_bytes, seconds, len(run.curve), run.best_epoch)


def warm_seconds(epochs: Sequence[float]) -> float:
    """Of all epochs. In the first one a process compiles its kernels: it counts as the median of the others at most."""
    first, *others = epochs
    return min(first, float(np.median(others))) + sum(others) if others else first


def _weights(model: Model) -> tuple[int, int]:
    """Bytes of the table and of all other weights; of a model without a table all weights are its table."""
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in model.state_dict().items()}
    total = sum(sizes.values())
    table = sizes.get("table", total)
    return table, total - table


def _stamp(out: Path, plan: SizesPlan, data: Dataset) -> None:
    fixed = {f"{model}.{name}": value for model, settings in plan.fixed.items() for name, value in settings.items()}
    about = {
        "plan": {**asdict(plan), "settings": fixed, "split_options": {}},
        "split": split_name(data, plan.split, plan.split_options),
        "data": data.content_hash,
    }
    write_stamp(out, about)


def _read(path: Path) -> Cell | None:
    """A cell that cannot be read is made again."""
    try:
        return Cell(**parse_json(path.read_text(encoding="utf-8")))
    except READ_ERRORS:
        return None
