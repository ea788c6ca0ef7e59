"""Validation rows of a prepared folder are ranked among the candidates that data in memory would have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gmlfm import Schema
from gmlfm.data.histories import Histories, visible_rows
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.data.splits import TEST, VALIDATION
from gmlfm.errors import DataError
from gmlfm.evaluation.candidates import Candidates
from gmlfm.fitting import held_out as module
from gmlfm.fitting.held_out import HeldOut, held_out
from tests.fitting.catalogues import write_catalogue

CASES = [
    ("unsold", "leave-one-out"),
    ("unsold", "random"),
    ("sold-once", "leave-one-out"),
    ("sold-once", "global-time"),
    ("sold-once-listed", "global-time"),
    ("sold-once-listed", "random"),
    ("sold-once-with-exempt", "global-time"),
    ("repeats", "leave-one-out"),
    ("rated", "global-time"),
]


def prepared_from(folder: Path, shape: str, split: str, n_users: int = 100) -> PreparedData:
    write_catalogue(folder, shape, n_users)
    schema = Schema.from_toml(folder / "dataset.toml")
    return prepare(schema, folder, folder / "p", split=split, rows_per_bucket=300)


def sampled(prepared: PreparedData) -> HeldOut:
    sample = held_out(prepared, "topn")
    assert sample is not None
    return sample


@pytest.mark.parametrize(("shape", "split"), CASES)
def test_candidates_are_those_of_memory(tmp_path: Path, shape: str, split: str) -> None:
    prepared = prepared_from(tmp_path, shape, split)
    sample = sampled(prepared)
    data, parts, _ = restore(prepared)
    expected = Candidates.of_part(data, parts, "validation")
    np.testing.assert_array_equal(sample.users.numbers, expected.users)
    np.testing.assert_array_equal(sample.items[:, 0], expected.targets)
    assert sample.n_rows == len(parts.validation)
    counts = expected.sampler.counts(expected.users, expected.targets, expected.times)
    n_drawn = (sample.items >= 0).sum(axis=1)
    np.testing.assert_array_equal(n_drawn, np.minimum(counts, 100))
    pools, hidden = expected.pools, _known(prepared)
    for row, (user, items) in enumerate(zip(sample.users.numbers.tolist(), sample.items, strict=True)):
        drawn = items[1 : n_drawn[row]]
        assert len(set(drawn.tolist())) == len(drawn)
        assert (pools.pool[drawn] == pools.pool[items[0]]).all()
        assert hidden[user].isdisjoint(drawn.tolist())
        if expected.times is not None:
            assert pools.can_be_had(drawn, expected.times[row : row + 1]).all()


@pytest.mark.parametrize(("shape", "split"), [*CASES, ("no-time", "random"), ("context", "leave-one-out")])
def test_histories_are_those_of_memory(tmp_path: Path, shape: str, split: str) -> None:
    prepared = prepared_from(tmp_path, shape, split)
    sample = sampled(prepared)
    data, parts, _ = restore(prepared)
    expected = Histories.of(data, visible_rows(parts, "validation")).before(Candidates.of_part(data, parts, "validation").rows)
    history = sample.users.history
    assert history is not None
    assert len(expected.items) > len(sample.items)
    np.testing.assert_array_equal(history.starts, expected.starts)
    np.testing.assert_array_equal(history.items, expected.items)
    np.testing.assert_array_equal(history.ages, expected.ages)


def _known(prepared: PreparedData) -> dict[int, set[int]]:
    """The positives of each user outside the test part; where repeats are kept, those of the validation part."""
    known: dict[int, set[int]] = {}
    for shard in prepared.shards():
        is_hidden = shard.parts == VALIDATION if prepared.info.repeats == "keep" else shard.parts != TEST
        rows = np.flatnonzero(shard.columns["positive"].to_numpy() & is_hidden)
        for user, item in zip(shard.users[rows].tolist(), shard.items[rows].tolist(), strict=True):
            known.setdefault(user, set()).add(item)
    return known


def test_items_of_test_rows_are_among_the_candidates(tmp_path: Path) -> None:
    """Leaving them out would tell which items the future holds."""
    prepared = prepared_from(tmp_path, "all-sold", "leave-one-out", n_users=60)
    tested: dict[int, set[int]] = {}
    for shard in prepared.shards():
        for row in np.flatnonzero(shard.parts == TEST):
            tested.setdefault(int(shard.users[row]), set()).add(int(shard.items[row]))
    sample = sampled(prepared)
    n_drawn = sum(
        bool(tested.get(user, set()) & set(items[1:].tolist()))
        for user, items in zip(sample.users.numbers.tolist(), sample.items, strict=True)
    )
    assert n_drawn > 0.3 * len(sample.items)  # 99 of some 140 are drawn


def test_rows_that_all_have_few_candidates_are_all_kept(tmp_path: Path) -> None:
    prepared = prepared_from(tmp_path, "sold-once", "global-time", n_users=30)  # 36 things sold in the validation part
    sample = sampled(prepared)
    assert len(sample.items) == sample.n_rows
    assert sample.items.shape[1] < 100


def test_more_rows_than_are_tested_are_thinned_by_a_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepared_from(tmp_path, "unsold", "random")
    n_all = len(sampled(prepared).items)
    monkeypatch.setattr(module, "_MOST_TESTED", n_all // 3)
    thinned = [sampled(prepared) for _ in range(2)]
    np.testing.assert_array_equal(thinned[0].items, thinned[1].items)
    assert n_all / 5 < len(thinned[0].items) < n_all / 2
    assert thinned[0].n_rows == n_all


def test_ratings_have_their_labels_and_no_candidates(tmp_path: Path) -> None:
    prepared = prepared_from(tmp_path, "rated", "global-time")
    sample = held_out(prepared, "rating")
    assert sample is not None
    assert sample.items.shape[1] == 1
    labels = [shard.columns["label"].to_numpy()[shard.parts == VALIDATION] for shard in prepared.shards()]
    np.testing.assert_array_equal(sample.labels, np.concatenate(labels).astype(np.float32))


def test_a_folder_without_a_validation_part_has_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert held_out(prepared_from(tmp_path / "a", "all-sold", "none"), "topn") is None
    monkeypatch.setattr(module, "_MOST_TESTED", 0)
    with pytest.raises(DataError, match="too few validation rows"):
        held_out(prepared_from(tmp_path / "b", "all-sold", "random"), "topn")
