r"""What the items of a history add to a score that is a sum over pairs: term by term, and which of them adds most.

An item j of the history adds to the score of item i

.. math:: \sum_{role} w_{role,j} \sum_{a \in j} x_a \Big( w_a + \sum_{b \in i} \mathrm{pair}(a, b) \, x_b \Big)

where a goes by its row in the role, and by its own where that counts, too;
for a model that decomposes the inner sums are one inner product of j's vector and i's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.data.attributes import PADDING, AttributeTable
from gmlfm.data.histories import History
from gmlfm.models.base import HistorySpec, Ints, UserSide
from gmlfm.models.history import EarlierItems, earlier_items
from gmlfm.models.terms import EarlierTerms

if TYPE_CHECKING:
    from gmlfm.models.pairwise import PairwiseModel
    from gmlfm.models.scoring import RowScorer

_ATTRIBUTES_PER_BLOCK = 8_192
_NUMBERS_PER_BLOCK = 8_000_000  # of the vectors of earlier items held at a time


def taken(table: AttributeTable, numbers: npt.NDArray[np.integer[Any]]) -> AttributeTable:
    """The attributes of some entities."""
    return AttributeTable(table.ids[numbers], table.values[numbers])


def earlier_terms(
    model: PairwiseModel, spec: HistorySpec, items: AttributeTable, history: History, scored: Tensor, spread: float
) -> EarlierTerms:
    """Of the history of one user. scored: the transformed rows of the attributes of the item that is scored, (J, width);
    spread: of the training labels."""
    earlier = earlier_items(history, spec)
    places, roles = np.nonzero(earlier.weights)
    table = model.counting_table(taken(items, earlier.items[places]))
    owners, columns = np.nonzero(table.ids != PADDING)
    shifts = np.array([spec.shift(role) for role in range(len(spec.roles))], np.int64)
    roles_of = roles[owners]
    ids = table.ids[owners, columns] + shifts[roles_of]
    weights = earlier.weights[places, roles][owners]
    x = weights * table.values[owners, columns]
    linear, weight = np.zeros(len(ids)), np.zeros((len(ids), len(scored)))
    distance = None
    with torch.no_grad():
        for number, role in enumerate(spec.roles):
            in_role = np.flatnonzero(roles_of == number)
            for start in range(0, len(in_role), _ATTRIBUTES_PER_BLOCK):
                block = in_role[start : start + _ATTRIBUTES_PER_BLOCK]
                rows = model.scorer.rows_of(torch.from_numpy(ids[block]).to(scored.device))
                linear[block] = model.linear(rows).cpu().numpy()
                of_weight, of_distance = model.earlier_pair_parts(rows, scored, role)
                if spec.with_own:
                    own = model.scorer.rows_of(torch.from_numpy(ids[block] - shifts[number]).to(scored.device))
                    by_role = of_weight if of_distance is None else of_weight * of_distance
                    of_weight, of_distance = by_role + model.own_pair_values(own, scored, role), None
                weight[block] = of_weight.cpu().numpy()
                if of_distance is not None:
                    distance = np.zeros_like(weight) if distance is None else distance
                    distance[block] = of_distance.cpu().numpy()
    return EarlierTerms(
        earlier.items[places][owners],
        [spec.roles[role] for role in roles_of],
        weights,
        ids,
        x,
        spread * linear * x,
        spread * weight,
        distance,
    )


def strongest_earlier(scorer: RowScorer, spec: HistorySpec, items: AttributeTable, users: UserSide, targets: Ints) -> Ints:
    """For each user and target the number of the earlier item that adds most, its linear term counted; -1 where none adds
    anything. targets: (N, G), -1 for none."""
    result = np.full(targets.shape, -1, np.int32)
    distinct = np.unique(targets[targets >= 0])
    if users.history is None or not len(users.history.items) or not len(distinct):
        return result
    earlier = earlier_items(users.history, spec)
    with torch.no_grad():
        target_vectors = scorer.item_vectors(taken(items, distinct))
        for start, stop in _blocks(earlier.starts, _NUMBERS_PER_BLOCK // (1 + target_vectors.shape[1])):
            bounds = earlier.starts[start : stop + 1] - earlier.starts[start]
            if bounds[-1] == 0:
                continue
            vectors = _added_vectors(scorer, items, earlier, start, stop)
            for user, (begin, end) in enumerate(pairwise(bounds), start=start):
                chosen = np.flatnonzero(targets[user] >= 0)
                if begin == end or not len(chosen):
                    continue
                places = torch.from_numpy(np.searchsorted(distinct, targets[user, chosen])).to(vectors.device)
                added = torch.addmm(vectors[begin:end, :1], vectors[begin:end, 1:], target_vectors[places].T)
                value, place = (part.cpu().numpy() for part in added.max(0))
                result[user, chosen] = np.where(value > 0, earlier.items[earlier.starts[user] + place], -1)
    return result


def _added_vectors(scorer: RowScorer, items: AttributeTable, earlier: EarlierItems, start: int, stop: int) -> Tensor:
    """What each distinct earlier item of some users adds, all roles together: (M, 1 + D)."""
    block = slice(earlier.starts[start], earlier.starts[stop])
    distinct, places = np.unique(earlier.items[block], return_inverse=True)
    table, by_role = taken(items, distinct), []
    for role in range(earlier.weights.shape[1]):
        vectors = scorer.role_vectors(table, role)
        weights = torch.from_numpy(earlier.weights[block, role]).to(vectors.device)
        by_role.append(vectors[torch.from_numpy(places).to(vectors.device)].mul_(weights.unsqueeze(1)))
    return torch.stack(by_role).sum(0)


def _blocks(starts: npt.NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """From and to which user, so that their items are no more than `most` together, or one user's."""
    start = 0
    while start < len(starts) - 1:
        stop = max(start + 1, int(np.searchsorted(starts, starts[start] + most, side="right")) - 1)
        yield start, stop
        start = stop
