"""The task `implicit`: positives and sampled negatives as instances with labels of their own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.data.splits import TEST, TRAIN, VALIDATION, Split, random_parts
from gmlfm.training.sampling.negatives import Items, NegativeSampler


@dataclass(frozen=True)
class Instances:
    """The task `implicit`: positives (+1) and sampled negatives (-1) as instances, split after they were drawn.

    `rows` names the interaction each came from; a negative takes its positive's context.
    """

    users: npt.NDArray[np.int32]
    items: Items
    labels: npt.NDArray[np.float32]
    rows: Rows
    split: Split


def implicit_instances(
    data: Dataset, negatives: int = 2, seed: int = 0, validation: float = 0.2, test: float = 0.1
) -> Instances:
    """Negatives are none of the user's positives; then all instances are split at random, 70/20/10."""
    positives = data.positive_rows
    users, items = data.user_numbers[positives], data.item_numbers[positives]
    sampler = NegativeSampler(users, items, len(data.users), data.seen_items, data.users.ids)
    drawn = sampler.draw(users, negatives, np.random.default_rng([seed, 3]))
    all_items = np.concatenate([items[:, None], drawn], axis=1).ravel()
    labels = np.tile(np.array([1.0] + [-1.0] * negatives, np.float32), len(positives))
    part = random_parts(len(all_items), validation, test, np.random.default_rng([seed, 4]))
    drawn_hash = hashlib.sha256(all_items.astype("<i4").tobytes()).hexdigest()[:16]
    split = Split(
        "random",
        train=np.flatnonzero(part == TRAIN),
        validation=np.flatnonzero(part == VALIDATION),
        test=np.flatnonzero(part == TEST),
        unused=np.empty(0, np.int64),
        options={"seed": seed, "task": "implicit", "negatives": negatives, "instances": drawn_hash},
        data_hash=data.content_hash,
    )
    return Instances(np.repeat(users, 1 + negatives), all_items, labels, np.repeat(positives, 1 + negatives), split)
