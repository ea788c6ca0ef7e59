"""One model's search: Optuna over a journal file, so that it goes on after a kill and several processes may share it."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from gmlfm.data.dataset import Dataset
from gmlfm.data.splits import SPLITS
from gmlfm.errors import DataError, GmlfmError, OptionError, did_you_mean
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.protocols import protocol_for
from gmlfm.fitting.plan import chosen_device
from gmlfm.models.settings import Real, Space
from gmlfm.recommender import Recommender
from gmlfm.storage import write_text
from gmlfm.training.trainer import DivergedError, EpochReport, Resumable
from gmlfm.tuning.spaces import defaults, search_space

Report = Callable[[str, int, float], None]  # what is done, trials so far, seconds so far


@dataclass(frozen=True)
class Budget:
    """So many trials, or so many seconds of trials; one of the two."""

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.trials is None) == (self.seconds is None):
            raise OptionError("a budget is either trials or seconds; give one of them.")
        if (self.trials is not None and self.trials < 1) or (self.seconds is not None and not self.seconds > 0):
            raise OptionError("a budget of trials or seconds must be above 0.")

    def left(self, trials: int, seconds: float) -> bool:
        return trials < self.trials if self.trials is not None else seconds < (self.seconds or 0.0)


@dataclass(frozen=True)
class Tuned:
    """The best settings by validation, and what the search for them took."""

    model: str
    task: str
    preset: str | None
    settings: dict[str, Any]
    validation: dict[str, float]
    trials: int
    failed: int
    seconds: float
    at_border: list[str]

    def recommender(self, seed: int, **more: Any) -> Recommender:
        return Recommender(self.model, self.task, preset=self.preset, **{**self.settings, **more, "seed": seed})


@dataclass(frozen=True)
class Search:
    """Everything but the budget."""

    data: Dataset
    model: str
    folder: Path
    task: str = "topn"
    split: str = "leave-one-out"
    preset: str | None = None
    seed: int = 0
    threads: int | None = None
    device: str = "auto"

    @property
    def metric(self) -> str:
        return default_metric("ndcg") if self.task == "topn" else "rmse"

    @property
    def fixed(self) -> dict[str, Any]:
        return {"seed": self.seed, **({} if self.threads is None else {"threads": self.threads})}


def tune(search: Search, budget: Budget, report: Report | None = None) -> Tuned:
    """Search until the budget of this study, over all its processes and restarts, is spent."""
    study, space = _open(search), search_space(search.model, search.task, search.preset)
    while True:
        ended = _ended_trials(study)
        spent = sum(trial.user_attrs.get("seconds", 0.0) for trial in ended)
        if report is not None:
            report(search.model, len(ended), spent)
        if not budget.left(len(ended), spent) or (not space and ended):
            break
        if len(ended) >= _HOPELESS and all(trial.state == TrialState.FAIL for trial in ended):
            break
        _run_trial(study, search, space, None if budget.seconds is None else budget.seconds - spent)
    return _summary(study, search, space)


def _ended_trials(study: optuna.Study) -> list[FrozenTrial]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state in (TrialState.COMPLETE, TrialState.FAIL)]


_HOPELESS = 3  # failures in a row from the beginning: the method cannot do these data


def _open(search: Search) -> optuna.Study:
    stamp = {
        "model": search.model,
        "task": search.task,
        "preset": search.preset,
        "split": search.split,
        "seed": search.seed,
        "data": search.data.content_hash,
    }
    if search.split not in SPLITS:
        raise OptionError(f"split is '{search.split}'{did_you_mean(search.split, SPLITS)}")
    chosen_device(search.device)
    path = search.folder / "study.json"
    if read_stamp(path) not in (None, stamp):
        raise OptionError(f"{search.folder} holds a study of other data or another task; choose another folder.")
    if not path.exists():
        write_text(path, json.dumps(stamp, indent=1) + "\n")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks parts of its journal as experimental
        direction: Literal["maximize", "minimize"] = "maximize" if search.task == "topn" else "minimize"
        try:
            storage = JournalStorage(JournalFileBackend(str(search.folder / "study.journal")))
            return optuna.create_study(storage=storage, study_name=search.model, direction=direction, load_if_exists=True)
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{search.folder / 'study.journal'} is damaged ({error}); remove the folder and tune again."
            ) from error


def read_stamp(path: Path) -> Any:
    """What a folder says it holds; None for a new one. A folder with other things in it is somebody's own."""
    if not path.exists():
        if path.parent.is_dir() and any(path.parent.iterdir()):
            raise DataError(f"{path.parent} holds other files; choose a new folder.")
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); choose a new folder.") from error


def _run_trial(study: optuna.Study, search: Search, space: dict[str, Space], seconds: float | None) -> None:
    number = len(study.get_trials(deepcopy=False))
    # Named by the trial, not by the process: a study that was stopped proposes what it would have proposed.
    study.sampler = optuna.samplers.TPESampler(seed=search.seed * 100_003 + number, n_startup_trials=8)
    is_begun = any(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))
    if not is_begun and space:
        study.enqueue_trial(defaults(search.model, search.task, space))
    trial = study.ask()
    chosen = {name: _suggested(trial, name, choices) for name, choices in space.items()}
    started = time.perf_counter()
    clock = _Clock(seconds)
    try:
        recommender = Recommender(
            search.model, search.task, preset=search.preset, device=search.device, **{**chosen, **search.fixed}
        )
        try:
            metrics = _validated(recommender.fit(search.data, search.split, observer=clock), search)
        except DivergedError:
            if not clock.best:
                raise
            metrics = clock.best
        except _OutOfTimeError:
            if not clock.best:
                raise DataError("the budget ended before the first epoch did") from None
            metrics = clock.best
    except OptionError:
        # Wrong use fails every trial alike: it is reported at once, and the study stays as it was.
        study.tell(trial, state=TrialState.PRUNED)
        raise
    except GmlfmError as error:
        trial.set_user_attr("seconds", time.perf_counter() - started)
        trial.set_user_attr("error", str(error))
        study.tell(trial, state=TrialState.FAIL)
        return
    trial.set_user_attr("seconds", time.perf_counter() - started)
    trial.set_user_attr("validation", metrics)
    study.tell(trial, metrics[search.metric])


def _suggested(trial: optuna.Trial, name: str, space: Space) -> Any:
    if isinstance(space, Real):
        return trial.suggest_float(name, space.low, space.high, log=space.log)
    return trial.suggest_categorical(name, space.values)


def _validated(recommender: Recommender, search: Search) -> dict[str, float]:
    run = recommender.fitted
    if len(run.split.validation) == 0:
        raise OptionError(f"the split '{search.split}' holds out no validation rows, so nothing can be chosen on them.")
    if run.validation:
        return _choosing(run.validation)
    return _choosing(recommender.evaluate(protocol=protocol_for(search.data), part="validation").metrics)


def _choosing(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics by which settings are chosen and shown."""
    names = (default_metric("hr"), default_metric("ndcg"), "rmse", "mae")
    return {name: metrics[name] for name in names if name in metrics}


def _summary(study: optuna.Study, search: Search, space: dict[str, Space]) -> Tuned:
    trials = _ended_trials(study)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        reasons = [str(trial.user_attrs.get("error", "")) for trial in trials]
        raise DataError(
            f"no trial of '{search.model}' came to an end{': ' + reasons[-1] if reasons else '; raise the budget.'}"
        )
    best: FrozenTrial = study.best_trial
    return Tuned(
        search.model,
        search.task,
        search.preset,
        dict(best.params),
        dict(best.user_attrs["validation"]),
        len(complete),
        len(trials) - len(complete),
        sum(trial.user_attrs.get("seconds", 0.0) for trial in trials),
        [name for name, choices in space.items() if choices.is_at_border(best.params[name])],
    )


class _OutOfTimeError(Exception):
    """The study's seconds are over in the middle of a trial."""


class _Clock:
    """Keeps the best epoch's validation, and stops a trial when the budget is spent: what it had reached counts."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.perf_counter() + seconds
        self.best: dict[str, float] = {}

    def on_step(self, done: int, total: int, loss: float) -> None:
        if self._end is not None and time.perf_counter() > self._end:
            raise _OutOfTimeError

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        if report.best:
            self.best = _choosing(report.validation)
