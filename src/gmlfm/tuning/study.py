"""One model's search: Optuna over a journal file, so that it goes on after a kill and several processes may share it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState

from gmlfm.errors import DataError, OptionError
from gmlfm.models.settings import Real
from gmlfm.progress import activity
from gmlfm.recommender import Recommender
from gmlfm.storage import write_text
from gmlfm.tuning.budget import Budget, Cost
from gmlfm.tuning.journal import Journal
from gmlfm.tuning.outlook import SearchOutlook
from gmlfm.tuning.rising import rises
from gmlfm.tuning.search import Search
from gmlfm.tuning.spaces import as_point, n_points, untried_point
from gmlfm.tuning.trial import run_trial

Report = Callable[[str, int, float], None]  # what is done, trials so far, seconds so far
_HOPELESS = 3  # failures in a row from the beginning: the method cannot do these data
_LONGEST_SHOWN = 60  # characters of a path in a message
_COST, _VALIDATION, _ERROR, _REPEATED = "cost", "validation", "error", "repeated"


@dataclass(frozen=True)
class Tuned:
    """The best settings by validation, what was fixed beside them, and what the search for them took.

    epochs: that the best trial had, of most_epochs by its settings; rises: why it still rose at its end, '' where it did not.
    """

    model: str
    task: str
    preset: str | None
    settings: dict[str, Any]
    fixed: dict[str, Any]
    validation: dict[str, float]
    trials: int
    failed: int
    seconds: float
    at_border: list[str]
    epochs: int = 0
    most_epochs: int = 0
    rises: str = ""

    def recommender(self, seed: int, **more: Any) -> Recommender:
        settings = {**self.fixed, **self.settings, **more, "seed": seed}
        return Recommender(self.model, self.task, preset=self.preset, **settings)


def tune(search: Search, budget: Budget, report: Report | None = None) -> Tuned:
    """Search until the budget of this study, over all its processes and restarts, is spent or all of its space is tried.

    The seconds are those of trials that came to an end; a trial that was killed does not count.
    """
    study, outlook = Study(search), SearchOutlook(search.model, search.metric, budget)
    with activity(outlook.words):
        while True:
            outlook.note(len(study.ended), study.spent, study.best_value)
            if report is not None:
                report(search.model, len(study.ended), study.spent)
            if not study.goes_on(budget):
                return study.summary()
            study.run_trial(budget)


class Study:
    """A search's folder, opened."""

    def __init__(self, search: Search) -> None:
        search.check()
        self.search, self._study = search, _open(search)

    @property
    def ended(self) -> list[FrozenTrial]:
        """The trials that are over; a proposal that was tried before is none."""
        trials = self._study.get_trials(deepcopy=False)
        ended = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.FAIL)]
        return [trial for trial in ended if _REPEATED not in trial.user_attrs]

    @property
    def costs(self) -> list[Cost]:
        return [_cost_of(trial) for trial in self.ended]

    @property
    def best(self) -> FrozenTrial | None:
        is_complete = any(trial.state == TrialState.COMPLETE for trial in self.ended)
        return self._study.best_trial if is_complete else None

    @property
    def best_value(self) -> float | None:
        """The validation figure of the best trial."""
        best = self.best
        return None if best is None else best.value

    @property
    def spent(self) -> float:
        return sum(cost.spent for cost in self.costs)

    def goes_on(self, budget: Budget) -> bool:
        ended = self.ended
        if len({as_point(trial.params) for trial in ended}) >= n_points(self.search.space):
            return False
        if len(ended) >= _HOPELESS and all(trial.state == TrialState.FAIL for trial in ended):
            return False
        return budget.allows(self.costs, self._best_cost())

    def run_trial(self, budget: Budget) -> None:
        costs = self.costs
        seconds = None if budget.is_least(len(costs)) else budget.seconds_left(costs, self._best_cost())
        finals = None if any(cost.test_seconds for cost in costs) else budget.finals
        trial, chosen = self._propose()
        try:
            result = run_trial(self.search, chosen, seconds, finals)
        except OptionError:
            # Wrong use is reported at once, and the study stays as it was.
            self._study.tell(trial, state=TrialState.PRUNED)
            raise
        trial.set_user_attr(_COST, asdict(result.cost))
        if result.validation:
            trial.set_user_attr(_VALIDATION, result.validation)
            self._study.tell(trial, result.validation[self.search.metric])
        else:
            trial.set_user_attr(_ERROR, result.error)
            self._study.tell(trial, state=TrialState.FAIL)

    def needed_seconds(self, budget: Budget) -> float | None:
        """For the least trials and the final trainings, by the trials so far; None where none came to an end."""
        best = self._best_cost()
        return None if best is None else budget.needed(self.costs, best, n_points(self.search.space))

    def summary(self) -> Tuned:
        trials, best, search = self.ended, self.best, self.search
        if best is None:
            reasons = [str(trial.user_attrs.get(_ERROR, "")) for trial in trials]
            raise DataError(
                f"no trial of '{search.model}' came to an end{': ' + reasons[-1] if reasons else '; raise the budget.'}"
            )
        n_failed = sum(trial.state == TrialState.FAIL for trial in trials)
        cost, training = _cost_of(best), search.settings_of(best.params).training
        return Tuned(
            search.model,
            search.task,
            search.preset,
            dict(best.params),
            search.fixed,
            dict(best.user_attrs[_VALIDATION]),
            len(trials) - n_failed,
            n_failed,
            self.spent,
            [name for name, choices in search.space.items() if choices.is_at_border(best.params[name])],
            cost.epochs,
            training.epochs if cost.epochs else 0,
            rises(cost, training, search.space),
        )

    def _best_cost(self) -> Cost | None:
        best = self.best
        return None if best is None else _cost_of(best)

    def _propose(self) -> tuple[optuna.Trial, dict[str, Any]]:
        study, space, seed = self._study, self.search.space, self.search.seed
        number = len(study.get_trials(deepcopy=False))
        # Named by the trial, not by the process: a study that was stopped proposes what it would have proposed.
        study.sampler = optuna.samplers.TPESampler(seed=seed * 100_003 + number, n_startup_trials=8)
        ended = self.ended
        if not ended and space:
            study.enqueue_trial(self.search.defaults)
        trial, chosen = self._ask()
        tried = {as_point(ended_trial.params) for ended_trial in ended}
        other = untried_point(space, tried, (seed, number)) if as_point(chosen) in tried else None
        if other is None:
            return trial, chosen
        trial.set_user_attr(_REPEATED, True)
        study.tell(trial, state=TrialState.FAIL)
        study.enqueue_trial(other)
        return self._ask()

    def _ask(self) -> tuple[optuna.Trial, dict[str, Any]]:
        trial, chosen = self._study.ask(), {}
        for name, choices in self.search.space.items():
            if isinstance(choices, Real):
                chosen[name] = trial.suggest_float(name, choices.low, choices.high, log=choices.log)
            else:
                chosen[name] = trial.suggest_categorical(name, choices.values)
        return trial, chosen


def _cost_of(trial: FrozenTrial) -> Cost:
    return Cost(**trial.user_attrs[_COST]) if _COST in trial.user_attrs else Cost(0.0)


def _open(search: Search) -> optuna.Study:
    path, stamp = search.folder / "study.json", json.loads(json.dumps(search.stamp))
    earlier = read_stamp(path)
    if earlier not in (None, stamp):
        raise OptionError(f"{search.folder} holds a study with {_differences(earlier, stamp)}; choose another folder.")
    if earlier is None:
        write_text(path, json.dumps(stamp, indent=1) + "\n")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks parts of its journal as experimental
        direction: Literal["maximize", "minimize"] = "maximize" if search.task == "topn" else "minimize"
        try:
            storage = JournalStorage(Journal(search.folder / "study.journal"))
            return optuna.create_study(storage=storage, study_name=search.model, direction=direction, load_if_exists=True)
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{search.folder / 'study.journal'} is damaged ({error}); remove the folder and tune again."
            ) from error


def _differences(earlier: Any, stamp: dict[str, Any]) -> str:
    """In words, in what a folder's stamp is another: 'other data', 'another seed and another search space'."""
    held = earlier if isinstance(earlier, dict) else {}
    names = [name for name, value in stamp.items() if name not in held or held[name] != value]
    shown = [f"other {name}" if name in ("data", "fixed settings") else f"another {name}" for name in names]
    return " and ".join(shown) or "more in its study.json than is known here"


def read_stamp(path: Path) -> Any:
    """What a folder says it holds; None for a new one. A folder with other things in it is somebody's own."""
    try:
        is_new, is_foreign = not path.exists(), path.parent.is_dir() and any(path.parent.iterdir())
    except OSError as error:
        where = str(path.parent)
        shown = where if len(where) <= _LONGEST_SHOWN else f"{where[:_LONGEST_SHOWN]}..."
        raise DataError(f"the folder '{shown}' cannot be used ({error.strerror}); choose another one.") from error
    if is_new and is_foreign:
        raise DataError(f"{path.parent} holds other files; choose a new folder.")
    if is_new:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}); choose a new folder.") from error
