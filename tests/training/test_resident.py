"""Batches drawn on a device, here on the CPU, keep the rules of RankingBatches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm import load_dataset
from gmlfm.data.batches import BatchOptions, IdRows, RankingBatches
from gmlfm.data.dataset import Dataset
from gmlfm.data.encoding import Encoder
from gmlfm.data.negatives import TrainingNegatives, training_sampler
from gmlfm.data.splits import make_split
from gmlfm.training.resident import ResidentBatches


def batches_of(data: Dataset, options: BatchOptions, **sampling: Any) -> RankingBatches:
    split = make_split(data, "leave-one-out", seed=0)
    rows = split.train
    encoder = Encoder.fit(data, rows)
    encoded = encoder.encode(data)
    users, items = data.user_numbers[rows], data.item_numbers[rows]
    negatives = TrainingNegatives(
        training_sampler(data, split, **sampling), users, options.n_negatives, options.seed, options.fresh
    )
    return RankingBatches(users, items, rows, encoded, IdRows.of(encoder, items, encoded.item), negatives, options)


@pytest.mark.parametrize("weighting", ["uniform", "popularity"])
def test_the_same_rules_on_the_device(small_market: Path, weighting: str) -> None:
    options = BatchOptions(batch_size=300, n_negatives=3, hide=0.0)
    host = batches_of(load_dataset(small_market), options, weighting=weighting)
    resident = ResidentBatches(host, torch.device("cpu"))
    (found,) = resident.epoch(0)
    here = next(host.epoch(0))
    assert found.labels.shape == (len(host.users), 4)
    assert resident.groups_a_step == host.groups_a_step == 75

    # Every positive once, with its own user and context.
    def positives(asking: Any, answering: Any) -> list[tuple[int, ...]]:
        return sorted((*map(int, one), *map(int, other)) for one, other in zip(asking, answering, strict=True))

    everything = [one for one in host.epoch(0)]
    asking = np.concatenate([one.asking_ids for one in everything])
    answering = np.concatenate([one.answering_ids[:, 0] for one in everything])
    assert positives(found.asking_ids.numpy(), found.answering_ids[:, 0].numpy()) == positives(asking, answering)
    assert found.asking_x.shape[1] == here.asking_x.shape[1]
    # Negatives are items that the user has not in training; what has no positive stands at the decoy.
    drawn = found.answering_ids[:, 1:, 0].numpy()
    own = {(int(user), int(item)) for user, item in zip(asking[:, 0], answering[:, 0], strict=True)}
    pairs = {(int(user), int(item)) for user, items in zip(found.asking_ids[:, 0], drawn, strict=True) for item in items}
    assert not own & pairs
    trained = set(answering[:, 0].tolist())
    assert set(drawn.ravel().tolist()) <= trained | {host.ids.decoy}
    assert (drawn == host.ids.decoy).any()


def test_draws_differ_by_epoch_and_come_again(small_market: Path) -> None:
    host = batches_of(load_dataset(small_market), BatchOptions(n_negatives=2, hide=0.3))
    resident = ResidentBatches(host, torch.device("cpu"))
    first, again, later = (next(iter(resident.epoch(number))) for number in (0, 0, 1))
    assert torch.equal(first.answering_ids, again.answering_ids)
    assert not torch.equal(first.answering_ids, later.answering_ids)
    hidden = float((first.asking_ids[:, 0] == host.ids.unknown_user).float().mean())
    assert 0.2 < hidden < 0.4
    hidden_items = first.answering_ids[..., 0] == host.ids.unknown_item
    known = first.answering_ids[..., 0] != host.ids.decoy
    assert 0.2 < float(hidden_items.sum() / known.sum()) < 0.4


def test_fixed_negatives_stay_beside_their_positive(small_market: Path) -> None:
    host = batches_of(load_dataset(small_market), replace(BatchOptions(n_negatives=2, hide=0.0), fresh=False))
    resident = ResidentBatches(host, torch.device("cpu"))

    def rows(number: int) -> list[tuple[int, ...]]:
        (batch,) = resident.epoch(number)
        return sorted(
            (*map(int, one), *map(int, two.ravel())) for one, two in zip(batch.asking_ids, batch.answering_ids, strict=True)
        )

    assert rows(0) == rows(1)
