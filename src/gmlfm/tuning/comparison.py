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
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.protocols import check_protocol
from gmlfm.evaluation.significance import bootstrap_interval
from gmlfm.evaluation.significance import compare as compare_queries
from gmlfm.fitting.plan import chosen_device
from gmlfm.models.registry import model_info
from gmlfm.storage import write_text
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError
from gmlfm.tuning.study import Budget, Report, Search, Tuned, read_stamp, tune

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
    report: Report | None = None,
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
            tuned = _chosen(out, model) or _choose(out, tune(search, budget, report))
            for seed in range(plan.seeds):
                if not _is_readable(_result(out, model, seed)):
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
        stamp = json.loads((out / "plan.json").read_text(encoding="utf-8"))
        failures = json.loads((out / "failures.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{out} holds no finished comparison ({error}).") from error
    plan = Plan(**{**stamp["plan"], "models": tuple(stamp["plan"]["models"])})
    tested = [model for model in plan.models if model not in failures]
    if not tested:
        raise DataError(f"no method came to an end: {'; '.join(f'{name}: {why}' for name, why in failures.items())}")
    queries = {model: [_read(_result(out, model, seed)) for seed in range(plan.seeds)] for model in tested}
    is_topn, ndcg = plan.task == "topn", default_metric("ndcg")
    rows = [_row(model, queries, _tested(out, model), ndcg if is_topn else "squared_error") for model in tested]
    rows.sort(key=lambda row: -row.means[ndcg] if is_topn else row.means["rmse"])
    return Comparison(
        data.name,
        plan.task,
        plan.split,
        plan.protocol if is_topn else "labels",
        ndcg if is_topn else "rmse",
        stamp["budget"],
        plan.seeds,
        plan.refit and plan.preset is None,
        plan.preset == "paper" and is_topn,
        tuple(rows),
        failures,
    )


def _file_name(model: str) -> str:
    """Of a model named module:Class, too: some file systems allow no colon."""
    return model.replace(":", ".")


def _choice(out: Path, model: str) -> Path:
    return out / "results" / f"{_file_name(model)}.json"


def _result(out: Path, model: str, seed: int) -> Path:
    return out / "results" / f"{_file_name(model)}-{seed}.parquet"


def _choose(out: Path, tuned: Tuned) -> Tuned:
    """What was chosen is written down before it is tested: the table shows what was tested, whatever a study does later."""
    write_text(_choice(out, tuned.model), json.dumps(asdict(tuned), indent=1) + "\n")
    return tuned


def _chosen(out: Path, model: str) -> Tuned | None:
    path = _choice(out, model)
    if not path.exists():
        return None
    try:
        return Tuned(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); remove it and run the comparison again.") from error


def _tested(out: Path, model: str) -> Tuned:
    tuned = _chosen(out, model)
    if tuned is None:
        raise DataError(f"{_choice(out, model)} is missing; run the comparison again.")
    return tuned


def _is_readable(path: Path) -> bool:
    """A result that cannot be read is made again."""
    try:
        return pl.read_parquet(path).height > 0
    except (OSError, pl.exceptions.PolarsError):
        return False


def _search(data: Dataset, plan: Plan, model: str, out: Path, threads: int | None, device: str) -> Search:
    folder = out / "studies" / _file_name(model)
    return Search(data, model, folder, plan.task, plan.split, plan.preset, plan.seed, threads, device)


def _stamp(out: Path, plan: Plan, budget: Budget, data: Dataset) -> None:
    amount = f"{budget.trials} trials" if budget.trials is not None else f"{budget.seconds:g} seconds"
    about = {"plan": {**asdict(plan), "models": list(plan.models)}, "budget": f"{amount} a method", "data": data.content_hash}
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
    evaluation = recommender.evaluate(protocol=plan.protocol)
    target = _result(out, tuned.model, seed)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(".draft")
    pl.DataFrame(evaluation.queries).write_parquet(draft)
    draft.replace(target)


def _read(path: Path) -> Queries:
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path} is missing or damaged ({str(error).splitlines()[0]}); run the comparison again.") from error
    return {name: frame[name].to_numpy() for name in frame.columns}


def _row(model: str, queries: dict[str, list[Queries]], tuned: Tuned, metric: str) -> Row:
    values = _mean_of_seeds(queries[model], metric)
    low, high = bootstrap_interval(values)
    others = {name: _mean_of_seeds(by_seed, metric) for name, by_seed in queries.items() if name != model}
    sign = -1.0 if metric == "squared_error" else 1.0
    against = max(others, key=lambda name: sign * others[name].mean(), default="")
    versus = compare_queries(values, others[against]) if against else None
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
        tuned.seconds,
        tuple(tuned.at_border),
        tuned.settings,
    )


def _mean_of_seeds(by_seed: Sequence[Queries], metric: str) -> npt.NDArray[np.float64]:
    """Each query's value, averaged over the seeds: queries are paired, seeds are not."""
    return np.asarray(np.mean([queries[metric] for queries in by_seed], axis=0))
