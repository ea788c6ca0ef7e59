"""The split `cold-start`: warm and cold users by warm and cold items."""

from __future__ import annotations

import numpy as np

from gmlfm.data.split_parts import TEST, TRAIN, UNUSED, VALIDATION, Assignment, SplitView, check_shares, places_of_user
from gmlfm.errors import DataError, OptionError

COLD_GROUPS = ("W-W", "W-C", "C-W", "C-C")


def cold_start(
    view: SplitView,
    ratings: int = 20,
    adapt: int = 15,
    interactions: int | None = None,
    warm_time: float = 0.8,
    warm_items: int = 10,
    test_share: float = 0.2,
    validation_share: float = 0.1,
) -> Assignment:
    """The four groups of the paper's cold-start figure, after the MAMO paper.

    Selected are the first `ratings` rows of users with `ratings` or more. A user is cold when the first of
    them is later than the time by which `warm_time` of all rows were made; an item is warm with more than `warm_items` of
    the selected rows.
    Tested users: `test_share` of the warm ones and all cold ones less `validation_share`, which serve validation. Of
    theirs the first `adapt` rows (or only `interactions` of these) are trained on and the rest are scored; of all other
    users every selected row is trained on.
    """
    interactions = adapt if interactions is None else interactions
    if not 0 < adapt < ratings or not 0 <= interactions <= adapt:
        raise OptionError(
            f"cold-start got ratings={ratings}, adapt={adapt}, interactions={interactions}; "
            "expected 0 < adapt < ratings and 0 <= interactions <= adapt."
        )
    check_shares(test_share=test_share, validation_share=validation_share)
    if not 0 < warm_time < 1:
        raise OptionError(f"warm_time is {warm_time}; expected a share above 0 and below 1.")
    times = view.times("cold-start")
    from_first, from_last = places_of_user(view.users)
    selected = (from_first + from_last + 1 >= ratings) & (from_first < ratings)
    if not selected.any():
        raise DataError(f"the split 'cold-start' needs users with {ratings} rows or more; there are none.")
    moment = np.quantile(times, warm_time, method="inverted_cdf")
    cold_user = np.zeros(len(view.data.users), bool)
    cold_user[view.users[selected & (from_first == 0) & (times > moment)]] = True
    cold_item = np.bincount(view.items[selected], minlength=len(view.data.items)) <= warm_items
    role = np.zeros(len(view.data.users), np.int8)
    ids = view.data.users.ids
    for is_cold, share in ((False, test_share), (True, 1.0 - validation_share)):
        members = np.unique(view.users[selected & (cold_user[view.users] == is_cold)])
        members = members[ids[members].arg_sort().to_numpy()]
        shuffled = view.rng.permutation(members)
        n_validation = round(len(members) * validation_share)
        role[shuffled[:n_validation]] = VALIDATION
        role[shuffled[n_validation : n_validation + round(len(members) * share)]] = TEST
    row_role = role[view.users]
    parts = np.where(
        row_role == TRAIN, TRAIN, np.where(from_first < interactions, TRAIN, np.where(from_first < adapt, UNUSED, row_role))
    )
    groups = (2 * cold_user[view.users] + cold_item[view.items]).astype(np.int8)
    assignment = Assignment(np.where(selected, parts, UNUSED).astype(np.int8), groups, COLD_GROUPS)
    users, items = np.unique(view.users[selected]), np.unique(view.items[selected])
    n_cold, n_cold_items = int(cold_user[users].sum()), int(cold_item[items].sum())
    assignment.notes.append(
        f"{len(users) - n_cold:,} warm and {n_cold:,} cold users, "
        f"{len(items) - n_cold_items:,} warm and {n_cold_items:,} cold items."
    )
    n_short = len(np.unique(view.users)) - len(users)
    if n_short:
        assignment.notes.append(f"{n_short:,} users have fewer than {ratings} rows and take no part.")
    return assignment
