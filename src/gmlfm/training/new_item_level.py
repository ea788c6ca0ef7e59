"""How high unknown items stand as a whole: so high that they take the places which new items took among training's choices."""

from __future__ import annotations

import torch
from torch import Tensor

from gmlfm.training.sampling.new_items import NewItems

_PLACES = 10
_HALVINGS = 40


def new_item_level(teacher: Tensor, student: Tensor, is_owned: Tensor, n_items: int, new_items: NewItems) -> float:
    """The mean score of unknown items with which they have `new_items.of_choices` of the first ten places.

    teacher, student: scores (U, I) of users with known items, drawn from n_items of them, with their ids in sight and with
    them hidden; is_owned: which of these a user has already. The student's scores, moved as a whole, stand for as many new
    items as are to be expected beside the known ones. No loss has a part in it, so that it holds for all of them.
    """
    share, density = new_items.of_choices, new_items.of_candidates
    n_known = teacher.shape[1]
    n_new = max(1, min(n_known, round(n_known * density / (1 - density))))
    n_places = max(1, round(_PLACES * n_known / n_items))
    share = min(share, 0.5 * n_new / n_places)  # a handful of new items is not shown to everybody
    # What the user has, by whose attributes their tastes were learned, stands for no new item either.
    known, unknown = (scores.masked_fill(is_owned, float("-inf")) for scores in (teacher, student - student.mean()))
    best_known = known.topk(min(n_places, n_known), dim=1).values
    best_new = unknown[:, :n_new].topk(min(n_places, n_new), dim=1).values
    width = float(student.max() - student.min())
    low, high = float(teacher.min()) - width, float(teacher.max()) + width
    for _ in range(_HALVINGS):
        level = (low + high) / 2
        both = torch.cat([best_known, best_new + level], dim=1)
        is_new = both.topk(min(n_places, both.shape[1]), dim=1).indices >= best_known.shape[1]
        if float(is_new.float().mean()) < share:
            low = level
        else:
            high = level
    return (low + high) / 2
