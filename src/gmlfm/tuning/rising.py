"""Whether a method still rises where its training ends, and what its final trainings are given then.

At a constant rate the validation curve tells: a best epoch that is the last one reached means that more epochs may do better,
as training that is past its best ends by `patience`. Under a cosine schedule the rate falls to 0 at the last of `epochs`, so
that the last epoch is near the best however many there are, and the curve tells nothing. There `epochs` is searched, and a
method rises where its best trial has the largest and was trained to its end, or where the end of the seconds cut its best trial
short, before its rate had fallen. With `epochs` fixed under a cosine schedule only the latter can be told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gmlfm.models.settings import Choice, Space
from gmlfm.training.options import TrainingOptions
from gmlfm.tuning.budget import Cost

if TYPE_CHECKING:
    from gmlfm.tuning.study import Tuned

MORE = 1.5  # times the epochs of the best trial: half as many again
CUT_SHORT, LAST_EPOCH, MOST_EPOCHS = "cut short", "best at its last", "most of the search"


def searched_epochs(training: TrainingOptions) -> Choice | None:
    """What a search tries where the schedule is a cosine, whose end has to be chosen; None where patience ends training."""
    n_epochs = training.epochs
    if training.schedule != "cosine" or n_epochs < 2:
        return None
    return Choice((n_epochs // 2, n_epochs, 2 * n_epochs))


def rises(cost: Cost, training: TrainingOptions, space: Mapping[str, Space]) -> str:
    """Why a trial still rose at its end, '' where it did not. training: with its settings; space: of the search."""
    if cost.epochs == 0:
        return ""
    if training.schedule == "cosine":
        if cost.is_cut_short:
            return CUT_SHORT
        choices = space.get("epochs")
        most: Any = max(choices.values) if isinstance(choices, Choice) else math.inf
        return MOST_EPOCHS if training.epochs == cost.epochs >= most else ""
    if cost.best_epoch < cost.epochs:
        return ""
    if cost.is_cut_short:
        return CUT_SHORT
    return LAST_EPOCH if cost.epochs >= training.epochs else ""  # what diverged had epochs left


def final_epochs(tuned: Tuned, *, by_seconds: bool) -> int:
    """The `epochs` of the final trainings where they differ from the best trial's settings; 0 where they do not.

    Under a budget of seconds, a method that still rises gets half as many epochs again as its best trial had, and so about
    half as many seconds again for each final training; of a trial that was cut short, at most those of its settings.
    """
    if not tuned.rises or not by_seconds or tuned.preset is not None:
        return 0
    more = math.ceil(MORE * tuned.epochs)
    return min(more, tuned.most_epochs) if tuned.rises == CUT_SHORT else more
