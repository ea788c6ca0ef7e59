"""Several methods under one budget each: tuned on validation, then tested once with several seeds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gmlfm.data.dataset import Dataset
from gmlfm.errors import GmlfmError, OptionError
from gmlfm.fitting.plan import chosen_device
from gmlfm.progress import activity
from gmlfm.storage import write_text
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError
from gmlfm.tuning.budget import LEAST_TRIALS, Budget
from gmlfm.tuning.inputs import is_mixed, mixed_warning, what_is_read
from gmlfm.tuning.outlook import ComparisonOutlook
from gmlfm.tuning.plan import Plan, stamp_folder
from gmlfm.tuning.results import Results, file_name
from gmlfm.tuning.rising import final_epochs
from gmlfm.tuning.rows import Comparison, read_comparison
from gmlfm.tuning.search import Search
from gmlfm.tuning.spaces import n_points
from gmlfm.tuning.study import Report, Study, Tuned, tune


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
    note: Callable[[str], None] | None = None,
) -> Comparison:
    """Tune each model in out/studies, test the best settings with every seed into out/results, and make the table.

    budget: trials of each method, or seconds of the whole comparison. Of seconds each method has an equal share for its search
    and its final trainings: these are estimated from its trials and set apart. First each method has one trial, by which `note`
    tells who needs more than a share for `LEAST_TRIALS` trials and the final trainings; they are made all the same. The final
    trainings of a method whose best trial still rose when it ended get more epochs (rising.py), beyond the share.

    Called again with the same folder it goes on where it stopped; when all is there it only reads.
    """
    plan.check()
    chosen_device(device)
    if threads is not None and threads < 1:
        raise OptionError(f"threads is {threads}; expected 1 or more.")
    plan = plan.resolved(data)
    share, results = plan.share(budget), Results(out)
    searches = {model: _search(data, plan, model, out, threads, device) for model in plan.models}
    stamp_folder(out, plan, budget, share, searches)
    failures: dict[str, str] = {}
    needed: dict[str, float] = {}

    def attempt(action: Callable[[str], None], model: str) -> None:
        try:
            action(model)
        except OptionError:
            raise
        except GmlfmError as error:
            failures[model] = str(error)

    outlook = ComparisonOutlook(plan.models, share, plan.seeds, 2.0 if plan.refits else 1.0)
    for model, search in searches.items():
        outlook.most_trials(model, n_points(search.space))

    def searched(model: str, n_trials: int, seconds: float) -> None:
        outlook.searched(model, n_trials, seconds)
        if report is not None:
            report(model, n_trials, seconds)

    def measure(model: str) -> None:
        if results.chosen(model) is None:
            outlook.begin(model, "a first trial")
            seconds = _first_trial(searches[model], share, searched)
            if seconds is not None:
                needed[model] = seconds

    def search_and_test(model: str) -> None:
        outlook.begin(model, "searching")
        tuned = results.chosen(model) or results.choose(tune(searches[model], share, searched))
        outlook.searched(model, tuned.trials + tuned.failed, tuned.seconds)
        for seed in range(plan.seeds):
            outlook.begin(model, f"training with seed {seed} ({seed + 1} of {plan.seeds}) for the test")
            if not results.has(model, seed):
                if tested is not None:
                    tested(model, seed)
                given = final_epochs(tuned, by_seconds=share.seconds is not None)
                _test(data, plan, tuned, seed, results, threads, device, given)
            outlook.tested(model, results.seconds(model, seed))

    mixed = _mixed(data, plan)
    if note is not None and mixed:
        note(mixed)
    with activity(outlook.words):
        if share.seconds is not None:
            for model in plan.models:
                attempt(measure, model)
            message = _too_little(needed, share.seconds, plan)
            if note is not None and message:
                note(message)
        for model in plan.models:
            if model not in failures:
                attempt(search_and_test, model)
            outlook.close(model)
    write_text(out / "failures.json", json.dumps(failures, indent=1) + "\n")
    return read_comparison(data, out)


def _search(data: Dataset, plan: Plan, model: str, out: Path, threads: int | None, device: str) -> Search:
    folder = out / "studies" / file_name(model)
    method = (plan.task, plan.split, plan.preset, plan.seed, threads, device, plan.fixed[model], plan.split_options)
    return Search(data, model, folder, *method)


def _mixed(data: Dataset, plan: Plan) -> str:
    """Before anything is trained: that some methods read histories and others do not; '' where all read alike."""
    readings = {
        model: what_is_read(Settings.make(model, plan.task, plan.fixed[model], plan.preset), data) for model in plan.models
    }
    return mixed_warning([model for model in readings if readings[model].of_history]) if is_mixed(readings.values()) else ""


def _first_trial(search: Search, share: Budget, report: Report | None) -> float | None:
    """Seconds that the method needs at least, by a first trial; None where that failed."""
    study = Study(search)
    if report is not None:
        report(search.model, len(study.ended), study.spent)
    if not study.ended:
        study.run_trial(share)
    return study.needed_seconds(share)


def _too_little(needed: Mapping[str, float], share: float, plan: Plan) -> str:
    """Who does not get by with a share, before the search begins; '' where all do."""
    short = {model: seconds for model, seconds in needed.items() if seconds > share}
    if not short:
        return ""
    listed = ", ".join(f"{model} {seconds:,.0f}" for model, seconds in short.items())
    return (
        f"{LEAST_TRIALS} trials and {plan.seeds} final trainings take more than a method's {share:,.0f} seconds "
        f"(by a first trial: {listed}) and are made all the same; "
        f"about --seconds {max(short.values()) * len(plan.models):,.0f} would do."
    )


def _test(
    data: Dataset,
    plan: Plan,
    tuned: Tuned,
    seed: int,
    results: Results,
    threads: int | None,
    device: str,
    given: int,
) -> None:
    """The only place that looks at the test part. given: `epochs` other than those of the settings, 0 for theirs."""
    started = time.perf_counter()
    machine: dict[str, Any] = {"device": device} | ({} if threads is None else {"threads": threads})
    machine |= {"epochs": given} if given else {}
    recommender = tuned.recommender(seed, **machine)
    try:
        recommender.fit(data, plan.split, split_options=plan.split_options, refit=plan.refits)
    except DivergedError:
        if not recommender.is_fitted:  # otherwise its best epoch stands
            raise
    with activity("testing"):
        evaluation = recommender.evaluate(protocol=plan.protocol)
    report, seconds = recommender.fitted.report, time.perf_counter() - started
    epochs = {"epochs": len(report.curve), "best_epoch": report.best_epoch, "given": given}
    results.add(tuned.model, seed, evaluation.queries, seconds, **epochs)
