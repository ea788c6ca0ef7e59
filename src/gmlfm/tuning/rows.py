"""A comparison's rows, from what is stored of its methods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset
from gmlfm.errors import DataError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.significance import bootstrap_interval, compare
from gmlfm.training.settings import Settings
from gmlfm.tuning.inputs import what_is_read
from gmlfm.tuning.plan import Plan
from gmlfm.tuning.results import Final, Queries, Results
from gmlfm.tuning.study import Tuned


@dataclass(frozen=True)
class Row:
    """One method's line: means over seeds and queries, and how it stands against the best other.

    seconds: of its trials and of the final trainings and tests, which took final_seconds. fixed: settings not searched.
    reads: of a user, in words, and whether that is what they did before (None of the floor). epochs: of the best trial; rises:
    why it still rose then, '' where it did not; given_epochs: what the final trainings got therefore, 0 for no more;
    rising_seeds: final trainings at a constant rate whose best epoch was their last.
    """

    model: str
    means: dict[str, float]
    low: float
    high: float
    seed_spread: float
    against: str
    difference: float
    p_value: float
    validation: float
    trials: int
    failed: int
    seconds: float
    final_seconds: float
    at_border: tuple[str, ...]
    settings: dict[str, Any]
    fixed: dict[str, Any]
    reads: str = ""
    reads_history: bool | None = None
    epochs: int = 0
    rises: str = ""
    given_epochs: int = 0
    rising_seeds: int = 0

    @property
    def search_seconds(self) -> float:
        return self.seconds - self.final_seconds


@dataclass(frozen=True)
class Comparison:
    """Best first. share: the seconds of each method, None under a budget of trials. `failures`: methods that could not take
    part, and why."""

    data: str
    task: str
    split: str
    protocol: str
    metric: str
    budget: str
    share: float | None
    seeds: int
    refit: bool
    as_published: bool
    rows: tuple[Row, ...]
    failures: dict[str, str]
    inputs: str | None = None


def read_comparison(data: Dataset, out: Path) -> Comparison:
    """The table from what is stored alone."""
    try:
        stamp = json.loads((out / "plan.json").read_text(encoding="utf-8"))
        failures = json.loads((out / "failures.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{out} holds no finished comparison ({error}).") from error
    plan, results = Plan(**{**stamp["plan"], "models": tuple(stamp["plan"]["models"])}), Results(out)
    tested = [model for model in plan.models if model not in failures]
    if not tested:
        raise DataError(f"no method came to an end: {'; '.join(f'{name}: {why}' for name, why in failures.items())}")
    queries = {model: [results.queries(model, seed) for seed in range(plan.seeds)] for model in tested}
    is_topn, ndcg = plan.task == "topn", default_metric("ndcg")
    final_seconds = {model: sum(results.seconds(model, seed) for seed in range(plan.seeds)) for model in tested}
    metric = ndcg if is_topn else "squared_error"
    rows = []
    for model in tested:
        tuned, finals = results.tested(model), [results.final(model, seed) for seed in range(plan.seeds)]
        row = _row(queries, tuned, final_seconds[model], metric)
        rows.append(replace(row, **_reading(tuned, data), **_rising(tuned, finals)))
    rows.sort(key=lambda row: -row.means[ndcg] if is_topn else row.means["rmse"])
    return Comparison(
        data.name,
        plan.task,
        plan.split,
        plan.protocol if is_topn else "labels",
        ndcg if is_topn else "rmse",
        stamp["budget"],
        stamp["share"],
        plan.seeds,
        plan.refits,
        plan.preset == "paper" and is_topn,
        tuple(rows),
        failures,
        plan.inputs,
    )


def _settings(tuned: Tuned) -> Settings:
    return Settings.make(tuned.model, tuned.task, {**tuned.fixed, **tuned.settings}, tuned.preset)


def _reading(tuned: Tuned, data: Dataset) -> dict[str, Any]:
    reading = what_is_read(_settings(tuned), data)
    return {"reads": reading.words, "reads_history": reading.of_history}


def _rising(tuned: Tuned, finals: Sequence[Final]) -> dict[str, Any]:
    constant = _settings(tuned).training.schedule == "constant"
    n_rising = sum(constant and 0 < final.epochs == final.best_epoch for final in finals)
    given = max(final.given for final in finals)
    return {"epochs": tuned.epochs, "rises": tuned.rises, "given_epochs": given, "rising_seeds": n_rising}


def _row(queries: dict[str, list[Queries]], tuned: Tuned, final_seconds: float, metric: str) -> Row:
    model = tuned.model
    values = _mean_of_seeds(queries[model], metric)
    low, high = bootstrap_interval(values)
    others = {name: _mean_of_seeds(by_seed, metric) for name, by_seed in queries.items() if name != model}
    sign = -1.0 if metric == "squared_error" else 1.0
    against = max(others, key=lambda name: sign * others[name].mean(), default="")
    versus = compare(values, others[against]) if against else None
    seeds = [of_seed[metric].mean() for of_seed in queries[model]]
    means = {name: float(np.mean([of_seed[name].mean() for of_seed in queries[model]])) for name in queries[model][0]}
    difference = versus.difference if versus else 0.0
    if metric == "squared_error":
        low, high = low**0.5, high**0.5
        difference = float(values.mean() ** 0.5 - others[against].mean() ** 0.5) if against else 0.0
        seeds = [mean**0.5 for mean in seeds]
        means = {"rmse": means["squared_error"] ** 0.5, "mae": means["absolute_error"]}
    return Row(
        model,
        means,
        low,
        high,
        float(np.std(seeds)),
        against,
        difference,
        versus.t_test if versus else 1.0,
        tuned.validation.get(default_metric("ndcg"), tuned.validation.get("rmse", float("nan"))),
        tuned.trials,
        tuned.failed,
        tuned.seconds + final_seconds,
        final_seconds,
        tuple(tuned.at_border),
        tuned.settings,
        tuned.fixed,
    )


def _mean_of_seeds(by_seed: Sequence[Queries], metric: str) -> npt.NDArray[np.float64]:
    """Each query's value, averaged over the seeds: queries are paired, seeds are not."""
    return np.asarray(np.mean([queries[metric] for queries in by_seed], axis=0))
