"""The validation rows of a prepared folder: a seeded sample, with the candidates that data in memory would have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.encoding import Encoded
from gmlfm.data.histories import History, gathered
from gmlfm.data.prepared import PreparedData, Shard
from gmlfm.data.shard_histories import ShardUsers
from gmlfm.data.splits import TEST, TRAIN, UNUSED, VALIDATION
from gmlfm.errors import DataError
from gmlfm.evaluation.candidates import FEWEST, N_SAMPLED
from gmlfm.evaluation.pools import CandidateSampler, ItemPools, item_pools
from gmlfm.models.base import UserSide
from gmlfm.training.sampling.shards import target_rows

_MOST_TESTED = 20_000
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class HeldOut:
    """users: with the context of their rows and what they did before; items (N, 1 + C): the target, then its candidates, -1
    where it has fewer; labels: of the targets, for a rating; n_rows: of the whole part."""

    users: UserSide
    items: Ints
    labels: npt.NDArray[np.float32]
    n_rows: int


@dataclass(frozen=True)
class _Block:
    """Those of one shard. counts: among how many items each target is ranked."""

    users: Ints
    attributes: AttributeTable
    history: History
    items: Ints
    labels: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int64]


def held_out(data: PreparedData, task: str) -> HeldOut | None:
    """None where the folder has no validation part. For top-n, as Candidates.of_part: the target among the items of its pool
    that can be had and are none of the user's positives, test rows apart; rows with too few are left out."""
    if sum(shard.validation for shard in data.info.interactions) == 0:
        return None
    columns = ["part", "positive" if task == "topn" else "label"]
    total = sum(len(_targets(data.interactions(number, columns), task)) for number in range(data.n_shards))
    if total == 0:
        raise DataError(f"{data.folder} holds no validation rows for the task '{task}'.")
    pools = _validation_pools(data) if task == "topn" else None
    blocks = []
    for number, shard in enumerate(data.shards()):
        rng, rows = np.random.default_rng([2, number]), _targets(shard.columns.with_columns(part=shard.parts), task)
        rows = rows[rng.random(len(rows)) < _MOST_TESTED / total]
        if len(rows):
            blocks.append(_block(data, shard, rows, pools, rng))
    if not blocks:
        raise DataError(f"{data.folder} holds too few validation rows to draw a sample of them; prepare more data.")
    items, counts = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("items", "counts"))
    is_kept = np.ones(len(items), bool)
    if pools is not None and _are_narrow(pools) and (counts >= FEWEST).any():
        is_kept = counts >= FEWEST
    users, labels = (np.concatenate([getattr(block, name) for block in blocks])[is_kept] for name in ("users", "labels"))
    ids, values = (np.concatenate([getattr(block.attributes, name) for block in blocks])[is_kept] for name in ("ids", "values"))
    width = int((items[is_kept] >= 0).sum(axis=1).max())
    history = _joined([block.history for block in blocks], np.flatnonzero(is_kept))
    return HeldOut(UserSide(users, AttributeTable(ids, values), history), items[is_kept, :width], labels, total)


def _joined(histories: list[History], places: npt.NDArray[np.int64]) -> History:
    """One after another, of all users those at some places."""
    items, order = (np.concatenate([getattr(history, name) for history in histories]) for name in ("items", "order"))
    starts = np.concatenate([[0], np.cumsum(np.concatenate([history.lengths for history in histories]))])
    return gathered(items, starts[places], starts[places + 1], order)


def _targets(rows: pl.DataFrame, task: str) -> npt.NDArray[np.int64]:
    """The places of the validation rows that the task predicts."""
    is_target = rows["positive"] if task == "topn" else rows["label"].is_not_null()
    return np.flatnonzero(((rows["part"] == VALIDATION) & is_target).to_numpy())


def _validation_pools(data: PreparedData) -> ItemPools:
    """As part_pools of the validation part, from what the shards say of items."""
    occurrences, bounds = data.occurrences, data.bounds if data.info.split == "global-time" else None
    if not data.info.sells_once:
        return item_pools(occurrences.is_seen)
    if bounds is not None:
        return item_pools(occurrences.is_seen, single_unit=data.single_unit_items, interval=(bounds.start, bounds.end))
    before = occurrences.is_trained
    return item_pools(occurrences.is_seen, single_unit=data.single_unit_items, has_row_before=before)


def _are_narrow(pools: ItemPools) -> bool:
    """Whether there are more pools than one, or items can be had for a time."""
    return pools.interval is not None or bool(pools.pool.max(initial=0))


def _block(
    data: PreparedData, shard: Shard, rows: npt.NDArray[np.int64], pools: ItemPools | None, rng: np.random.Generator
) -> _Block:
    users, targets = shard.users[rows], shard.items[rows]
    attributes = Encoded(data.users, shard.context, data.items).user_side(users, rows)
    local = ShardUsers.of(data, shard)
    history = local.histories(_visible_rows(shard, data.info.split, "rating" if pools is None else "topn")).before(rows)
    if pools is None:
        labels = shard.columns["label"].to_numpy()[rows].astype(np.float32)
        return _Block(users, attributes, history, targets[:, None], labels, np.ones(len(rows), np.int64))
    is_excluded = shard.parts == VALIDATION if data.info.repeats == "keep" else shard.parts != TEST  # as Pairs.excluded
    known = shard.columns["positive"].to_numpy() & is_excluded
    sampler = CandidateSampler(pools, local.local[known], shard.items[known], len(local.numbers))
    times = None
    if pools.interval is not None:
        assert data.bounds is not None
        times = data.bounds.keys(shard.columns["time"])[rows]
    counts = sampler.counts(local.local[rows], targets, times)
    drawn = sampler.draw(local.local[rows], targets, times, N_SAMPLED, rng)
    items = np.concatenate([targets[:, None], drawn], axis=1)
    return _Block(users, attributes, history, items, np.ones(len(rows), np.float32), counts)


def _visible_rows(shard: Shard, split: str, task: str) -> npt.NDArray[np.int64]:
    """As histories.visible_rows of the validation part."""
    parts = (TRAIN, UNUSED, VALIDATION) if split == "global-time" else (TRAIN, UNUSED)
    return target_rows(shard, parts, task)
