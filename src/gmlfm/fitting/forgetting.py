"""A fitted run without some of its users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gmlfm.data.forgetting import data_without, encoder_without, names
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting.run import FittedRun


def without_users(run: FittedRun, ids: Iterable[str]) -> FittedRun:
    for user in ids:
        run = without_user(run, user)
    return run


def without_user(run: FittedRun, user: str) -> FittedRun:
    """The run without any trace of a user: id, attributes, values that nobody else has, history and the rows that learned
    from them. Weights that others share stay as they were trained."""
    if run.instances is not None:
        raise OptionError("a run of the task 'implicit' draws its instances from all users again; train it anew without them.")
    number = int(run.encoder.user_numbers([user])[0])
    if number < 0:
        raise DataError(f"the user '{user}' is unknown already.")
    data, is_kept = data_without(run.data, [number])
    new_place = np.cumsum(is_kept) - 1
    old = run.split
    train, validation, test, unused = (
        new_place[rows[is_kept[rows]]] for rows in (old.train, old.validation, old.test, old.unused)
    )
    split = replace(
        old,
        train=train,
        validation=validation,
        test=test,
        unused=unused,
        validation_groups=None if old.validation_groups is None else old.validation_groups[is_kept[old.validation]],
        test_groups=None if old.test_groups is None else old.test_groups[is_kept[old.test]],
        validation_candidates=_of_kept(old.validation_candidates, is_kept[old.validation]),
        test_candidates=_of_kept(old.test_candidates, is_kept[old.test]),
        notes=tuple(note for note in old.notes if not names(note, run.encoder.user_ids[number])),
        data_hash=data.content_hash,
    )
    encoder, rows = encoder_without(run.encoder, number, run.data, data)
    # What only this user had can still be recommended to others.
    orphans = np.setdiff1d(run.data.seen_items, data.seen_items)
    changed = replace(
        run,
        data=data,
        split=split,
        encoder=encoder,
        encoded=encoder.encode(data),
        extra_items=(*run.extra_items, *(int(item) for item in orphans)),
    )
    return replace(changed, model=run.model.without_user(number, rows, changed.inputs))


def _of_kept(lists: npt.NDArray[np.int32] | None, is_kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32] | None:
    return None if lists is None else lists[is_kept]
