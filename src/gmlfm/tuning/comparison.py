"""Several methods under one budget each: tuned on validation, then tested once with several seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.dataset import Dataset
from gmlfm.data.splits import SPLITS
from gmlfm.errors import DataError, GmlfmError, OptionError, did_you_mean
from gmlfm.evaluation.protocols import check_protocol
from gmlfm.evaluation.significance import bootstrap_interval
from gmlfm.evaluation.significance import compare as compare_queries
from gmlfm.fitting.plan import chosen_device
from gmlfm.models.registry import model_info
from gmlfm.storage import write_text
from gmlfm.training.loop import DivergedError
from gmlfm.training.settings import Settings
from gmlfm.tuning.study import Budget, Search, Tell, Tuned, read_stamp, tune

Queries = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Row:
    """One method's line: means over seeds and queries, and how it stands against the best other."""

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
    at_border: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """Best first. `failures`: methods that could not take part, and why."""

    data: str
    task: str
    split: str
    protocol: str
    metric: str
    budget: str
    seeds: int
    refit: bool
    as_published: bool
    rows: tuple[Row, ...]
    failures: dict[str, str]


@dataclass(frozen=True)
class Plan:
    """What is compared, and how; written to plan.json, so that a folder holds one comparison."""

    models: tuple[str, ...]
    task: str = "topn"
    split: str = "leave-one-out"
    protocol: str = "full"
    seeds: int = 3
    refit: bool = True
    seed: int = 0
    preset: str | None = None

    def check(self) -> None:
        if len(self.models) < 2 or len(set(self.models)) < len(self.models):
            raise OptionError(f"models is {', '.join(self.models)}; name two or more, each once.")
        for name in self.models:
            if self.task not in model_info(name).tasks:
                raise OptionError(f"the model '{name}' cannot do the task '{self.task}'; leave it out.")
        if self.seeds < 1:
            raise OptionError(f"seeds is {self.seeds}; expected 1 or more.")
        if self.split not in SPLITS:
            raise OptionError(f"split is '{self.split}'{did_you_mean(self.split, SPLITS)}")
        check_protocol(self.protocol, self.seed)
        for name in self.models:
            Settings.make(name, self.task, {}, self.preset)


def compare(
    data: Dataset,
    plan: Plan,
    budget: Budget,
    out: Path,
    *,
    threads: int | None = None,
    device: str = "auto",
    tell: Tell | None = None,
    tested: Callable[[str, int], None] | None = None,
) -> Comparison:
    """Tune each model in out/studies, test the best settings with every seed into out/results, and make the table.

    Called again with the same folder it goes on where it stopped; when all is there it only reads.
    """
    plan.check()
    chosen_device(device)
    if threads is not None and threads < 1:
        raise OptionError(f"threads is {threads}; expected 1 or more.")
    _stamp(out, plan, budget, data)
    failures: dict[str, str] = {}
    for model in plan.models:
        search = _search(data, plan, model, out, threads, device)
        try:
            tuned = _chosen(out, model) or _choose(out, tune(search, budget, tell))
            for seed in range(plan.seeds):
                if not _whole(out / "results" / f"{model}-{seed}.parquet"):
                    if tested is not None:
                        tested(model, seed)
                    _test(data, plan, tuned, seed, out, threads, device)
        except OptionError:
            raise
        except GmlfmError as error:
            failures[model] = str(error)
    write_text(out / "failures.json", json.dumps(failures, indent=1) + "\n")
    return read_comparison(data, out)


def read_comparison(data: Dataset, out: Path) -> Comparison:
    """The table from what is stored alone."""
    try:
        held = json.loads((out / "plan.json").read_text(encoding="utf-8"))
        failures = json.loads((out / "failures.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{out} holds no finished comparison ({error}).") from error
    plan = Plan(**{**held["plan"], "models": tuple(held["plan"]["models"])})
    found = [model for model in plan.models if model not in failures]
    if not found:
        raise DataError(f"no method came to an end: {'; '.join(f'{name}: {why}' for name, why in failures.items())}")
    queries = {model: [_read(out / "results" / f"{model}-{seed}.parquet") for seed in range(plan.seeds)] for model in found}
    metric = "ndcg@10" if plan.task == "topn" else "squared_error"
    lines = [_row(model, queries, _tested(out, model), metric) for model in found]
    lines.sort(key=lambda one: -one.means["ndcg@10"] if plan.task == "topn" else one.means["rmse"])
    return Comparison(
        data.name,
        plan.task,
        plan.split,
        plan.protocol if plan.task == "topn" else "labels",
        "ndcg@10" if plan.task == "topn" else "rmse",
        held["budget"],
        plan.seeds,
        plan.refit and plan.preset is None,
        plan.preset == "paper" and plan.task == "topn",
        tuple(lines),
        failures,
    )


def _choose(out: Path, tuned: Tuned) -> Tuned:
    """What was chosen is written down before it is tested: the table shows what was tested, whatever a study does later."""
    write_text(out / "results" / f"{tuned.model}.json", json.dumps(asdict(tuned), indent=1) + "\n")
    return tuned


def _chosen(out: Path, model: str) -> Tuned | None:
    path = out / "results" / f"{model}.json"
    if not path.exists():
        return None
    try:
        return Tuned(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it and run the comparison again.") from error


def _tested(out: Path, model: str) -> Tuned:
    found = _chosen(out, model)
    if found is None:
        raise DataError(f"{out / 'results' / f'{model}.json'} is missing; run the comparison again.")
    return found


def _whole(path: Path) -> bool:
    """A result that cannot be read is made again."""
    try:
        return pl.read_parquet(path).height > 0
    except (OSError, pl.exceptions.PolarsError):
        return False


def _search(data: Dataset, plan: Plan, model: str, out: Path, threads: int | None, device: str) -> Search:
    folder = out / "studies" / model
    return Search(data, model, folder, plan.task, plan.split, plan.preset, plan.seed, threads, device)


def _stamp(out: Path, plan: Plan, budget: Budget, data: Dataset) -> None:
    told = f"{budget.trials} trials" if budget.trials is not None else f"{budget.seconds:g} seconds"
    about = {"plan": {**asdict(plan), "models": list(plan.models)}, "budget": f"{told} a method", "data": data.content_hash}
    path = out / "plan.json"
    if read_stamp(path) not in (None, about):
        raise OptionError(f"{out} holds another comparison (see plan.json there); choose a new folder.")
    write_text(path, json.dumps(about, indent=1) + "\n")


def _test(data: Dataset, plan: Plan, tuned: Tuned, seed: int, out: Path, threads: int | None, device: str) -> None:
    """The only place that looks at the test part."""
    fixed: dict[str, Any] = {"device": device} | ({} if threads is None else {"threads": threads})
    refit = plan.refit and plan.preset is None
    recommender = tuned.recommender(seed, **fixed)
    try:
        recommender.fit(data, plan.split, refit=refit)
    except DivergedError:
        if not recommender.is_fitted:  # otherwise its best epoch stands
            raise
    found = recommender.evaluate(protocol=plan.protocol)
    target = out / "results" / f"{tuned.model}-{seed}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(".draft")
    pl.DataFrame(found.queries).write_parquet(draft)
    draft.replace(target)


def _read(path: Path) -> Queries:
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path} is missing or damaged ({str(error).splitlines()[0]}); run the comparison again.") from error
    return {name: frame[name].to_numpy() for name in frame.columns}


def _row(model: str, queries: dict[str, list[Queries]], tuned: Tuned, metric: str) -> Row:
    own = _mean_of_seeds(queries[model], metric)
    low, high = bootstrap_interval(own)
    others = {name: _mean_of_seeds(found, metric) for name, found in queries.items() if name != model}
    sign = -1.0 if metric == "squared_error" else 1.0
    against = max(others, key=lambda name: sign * others[name].mean(), default="")
    versus = compare_queries(own, others[against]) if against else None
    seeds = [one[metric].mean() for one in queries[model]]
    means = {name: float(np.mean([one[name].mean() for one in queries[model]])) for name in queries[model][0]}
    difference = versus.difference if versus else 0.0
    if metric == "squared_error":
        low, high = low**0.5, high**0.5
        difference = float(own.mean() ** 0.5 - others[against].mean() ** 0.5) if against else 0.0
        seeds = [one**0.5 for one in seeds]
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
        tuned.validation.get("ndcg@10", tuned.validation.get("rmse", float("nan"))),
        tuned.trials,
        tuned.failed,
        tuned.seconds,
        tuple(tuned.at_border),
        tuned.settings,
    )


def _mean_of_seeds(found: Sequence[Queries], metric: str) -> npt.NDArray[np.float64]:
    """Each query's value, averaged over the seeds: queries are paired, seeds are not."""
    return np.asarray(np.mean([one[metric] for one in found], axis=0))
