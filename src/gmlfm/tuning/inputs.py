"""The two kinds of input by which methods are compared, and what each method reads: the two are never mixed in one table.

paper: who and what alone. A known user is their id and attributes; for `ease` and `item-knn`, the set of their training rows.
history: what the user did before the scored row, too, in the way in which each model can read that.
`popularity`, which reads nothing of a user, is the floor of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from gmlfm.arguments import one_of
from gmlfm.data.attributes import ROLES, FieldCode
from gmlfm.data.dataset import Dataset
from gmlfm.data.histories import is_ordered
from gmlfm.errors import OptionError
from gmlfm.models.base import Layout
from gmlfm.models.registry import ModelInfo, model_info
from gmlfm.models.settings import BEFORE, TRAINING
from gmlfm.training.history_options import AUTO_HISTORY, NO_HISTORY
from gmlfm.training.settings import Settings, applicable

PAPER, HISTORY = "paper", "history"
INPUTS = (PAPER, HISTORY)
Way = Literal["roles", "sequence", "rows", "always", "nothing", "floor"]
# Of any data: by it a model says what it refuses.
SMALLEST = Layout((FieldCode("user", "user", "id", 1, 1), FieldCode("item", "item", "id", 4, 1)))


class Reading(NamedTuple):
    """What a method reads of a user, in words; of_history: whether that is what they did before the row, None for the floor."""

    words: str
    of_history: bool | None


def way_to_read(info: ModelInfo) -> Way:
    """How a model can read what users did before: in roles beside their attributes, as a sequence, as rows that its settings
    choose, always and whole, not at all; the floor reads nothing of a user."""
    if info.cls.reads_sequences:
        return "sequence"
    if "user_rows" in info.declared:
        return "rows"
    if applicable(info)["history"]:
        return "roles"
    if not info.cls.reads_users:
        return "floor"
    return "always" if info.cls.inputs.history and not info.cls.learns_in_epochs else "nothing"


def with_inputs(
    inputs: str | None, fixed: Mapping[str, Mapping[str, Any]], task: str = "topn", preset: str | None = None
) -> dict[str, dict[str, Any]]:
    """By model the fixed settings, with what the inputs fix; who has no place among them is refused by name.

    fixed: what is given, of the kind that each setting has.
    """
    if inputs is None:
        return {model: dict(given) for model, given in fixed.items()}
    one_of(inputs, "inputs", INPUTS)
    if inputs == HISTORY and (task != "topn" or preset is not None):
        why = f"the preset '{preset}' trains as published" if preset is not None else f"the task '{task}' has no order of rows"
        raise OptionError(f"inputs is 'history', but {why} and reads no histories; give inputs = paper, or leave that out.")
    infos = {model: model_info(model) for model in fixed}
    refuse = _refused_of_paper if inputs == PAPER else _refused_of_history
    refused = {model: why for model, info in infos.items() if (why := refuse(info, fixed[model]))}
    if refused:
        them = "them" if len(refused) > 1 else "it"
        raise OptionError(f"inputs is '{inputs}', which has no place for {_listed(refused)}; leave {them} out.")
    return {model: _with_own(inputs, info, dict(fixed[model])) for model, info in infos.items()}


def check_order(inputs: str | None, data: Dataset) -> None:
    if inputs == HISTORY and not is_ordered(data):
        raise OptionError(
            "inputs is 'history', but the data have no times that differ, so nothing is known to come before anything; "
            'name their column with [interactions] time, or set ties = "file" where the rows lie in order.'
        )


def what_is_read(settings: Settings, data: Dataset) -> Reading:
    """Of a user, by a method with these settings on these data."""
    way = way_to_read(settings.info)
    if way == "floor":
        return Reading("nothing of a user", None)
    if way == "sequence":
        return Reading("earlier rows in their order", True)
    if way == "rows" and settings.option("user_rows") == TRAINING:
        return Reading("who and what, a user's training rows as a set", False)
    if way in ("rows", "always"):
        is_weighed = way == "rows" and settings.option("half_life") > 0
        return Reading("earlier rows by recency" if is_weighed else "earlier rows as a set", True)
    roles = decided(settings, data).history.roles if way == "roles" else ()
    return Reading(f"earlier rows as {', '.join(roles)}", True) if roles else Reading("who and what", False)


def decided(settings: Settings, data: Dataset) -> Settings:
    """With what is `auto` decided by the data."""
    return settings.for_data(is_ordered=is_ordered(data), n_candidates=len(data.seen_items))


def is_mixed(readings: Iterable[Reading]) -> bool:
    """Whether some methods read what users did before, and others do not."""
    return {True, False} <= {reading.of_history for reading in readings}


def reading_line(readings: Mapping[str, Reading]) -> str:
    """'Read of a user: fm, mf: who and what; ease: earlier rows as a set.'"""
    by_words: dict[str, list[str]] = {}
    for model, reading in readings.items():
        by_words.setdefault(reading.words, []).append(model)
    parts = [f"{', '.join(models)}: {words}" for words, models in by_words.items()]
    return f"Read of a user: {'; '.join(parts)}."


def _refused_of_paper(info: ModelInfo, given: Mapping[str, Any]) -> str:
    whys = {"sequence": "sequences of earlier rows are all that is read", "always": "earlier rows are always read"}
    return whys.get(way_to_read(info), "")


def _refused_of_history(info: ModelInfo, given: Mapping[str, Any]) -> str:
    way = way_to_read(info)
    if way == "nothing":
        return "what users did before cannot be read"
    if way != "roles":
        return ""
    if "loss" in info.fixed:
        return "the loss belongs to the name, and histories are learned by a softmax; take mf"
    own = {name: value for name, value in given.items() if name in info.declared}
    model: Any = info.build(SMALLEST, {**{name: info.defaults[name] for name in info.declared if name in info.defaults}, **own})
    try:
        model.check_history()
    except OptionError:
        return "these settings leave no inner product of two sides, by which a history is summed"
    return ""


def _listed(refused: Mapping[str, str]) -> str:
    """Those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for model, why in refused.items():
        by_reason.setdefault(why, []).append(model)
    return ", ".join(f"{' and '.join(models)} ({why})" for why, models in by_reason.items())


def _with_own(inputs: str, info: ModelInfo, given: dict[str, Any]) -> dict[str, Any]:
    """What is given with what the inputs fix; a value that contradicts them is refused."""
    way = way_to_read(info)
    rules: list[tuple[str, Any, Callable[[Any], bool]]] = []  # a setting, what is fixed, and whether a given value may stay
    if way == "roles":
        of_history: Callable[[Any], bool] = lambda value: value not in (AUTO_HISTORY, NO_HISTORY)  # noqa: E731
        rules.append(
            ("history", ",".join(ROLES), of_history) if inputs == HISTORY else ("history", NO_HISTORY, _is(NO_HISTORY))
        )
    if way == "rows":
        rows = BEFORE if inputs == HISTORY else TRAINING
        rules.append(("user_rows", rows, _is(rows)))
        if inputs == PAPER and "half_life" in info.declared:
            rules.append(("half_life", 0.0, _is(0.0)))
    for name, value, may_stay in rules:
        if name in given and not may_stay(given[name]):
            raise OptionError(f"{name} is {given[name]} for {info.name}, but inputs is '{inputs}'; leave {name} or inputs out.")
        given.setdefault(name, value)
    return dict(sorted(given.items()))


def _is(value: Any) -> Callable[[Any], bool]:
    return lambda given: bool(given == value)


def mixed_warning(models: Sequence[str]) -> str:
    return f"NOT ALIKE: {', '.join(models)} read what users did before and the others do not; --inputs keeps the two apart."
