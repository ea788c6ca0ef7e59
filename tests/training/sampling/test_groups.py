"""Groups as attribute arrays, and what stands in them for items without a positive."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Encoder
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.encoding import Encoded
from gmlfm.training.sampling.groups import Batch, IdRows, make_batch


@pytest.fixture(scope="module")
def encoded_items() -> tuple[Dataset, Encoder, Encoded]:
    """Items i0 to i3 are chosen, i4 alone is of the kind 'only new', i5 of a kind that chosen ones have."""
    rows = pl.DataFrame({"u": [f"u{n % 6}" for n in range(24)], "i": [f"i{n % 4}" for n in range(24)]})
    items = pl.DataFrame({"i": [f"i{n}" for n in range(6)], "kind": ["a", "a", "b", "b", "only new", "b"]})
    schema = {"interactions": {"user": "u", "item": "i"}, "items": {"id": "i", "fields": {"kind": "category"}}}
    data = Dataset.from_tables(rows, None, items, schema=schema)
    encoder = Encoder.fit(data, np.arange(data.n_interactions))
    return data, encoder, encoder.encode(data)


def test_a_value_that_no_positive_carries_is_not_learned_from_negatives(
    encoded_items: tuple[Dataset, Encoder, Encoded],
) -> None:
    """Otherwise it would learn that it is never chosen, only because what carries it is new."""
    data, encoder, encoded = encoded_items
    id_rows = IdRows.from_counts(encoder.fields, np.bincount(data.item_numbers, minlength=6), encoded.item)
    drawn = np.array([[0, 4, 5, 1]], np.int32)
    labels = np.array([[1.0, -1.0, -1.0, -1.0]], np.float32)
    user_side = AttributeTable(encoded.user.ids[:1], encoded.user.values[:1])
    batch = make_batch(user_side, encoded.item, drawn, labels, None, id_rows)
    assert batch.item_x[0].tolist() == [[1, 1], [1, 0], [1, 1], [1, 1]]
    assert batch.item_ids[0, :, 0].tolist() == [
        encoded.item.ids[0, 0],
        id_rows.negative_only_row,
        id_rows.negative_only_row,
        encoded.item.ids[1, 0],
    ]


def test_an_item_with_a_label_of_its_own_keeps_its_row_and_the_catalogue_is_left_alone(
    encoded_items: tuple[Dataset, Encoder, Encoded],
) -> None:
    data, encoder, encoded = encoded_items
    before = encoded.item.ids.copy(), encoded.item.values.copy()
    id_rows = IdRows.from_counts(encoder.fields, np.bincount(data.item_numbers, minlength=6), encoded.item)
    user_side = AttributeTable(encoded.user.ids[:2], encoded.user.values[:2])
    items, labels = np.array([[4], [4]], np.int32), np.array([[0.5], [-1.0]], np.float32)
    batch = make_batch(user_side, encoded.item, items, labels, None, id_rows)
    assert batch.item_ids[:, 0, 0].tolist() == [encoded.item.ids[4, 0], id_rows.negative_only_row]
    np.testing.assert_array_equal(encoded.item.ids, before[0])
    np.testing.assert_array_equal(encoded.item.values, before[1])


def test_what_training_knows_of_ids(encoded_items: tuple[Dataset, Encoder, Encoded]) -> None:
    _, encoder, encoded = encoded_items
    id_rows = IdRows.from_counts(encoder.fields, np.array([3, 1, 1, 0, 0, 0]), encoded.item)
    fields = {(field.part, field.kind): field for field in encoder.fields}
    assert id_rows.unknown_user == fields["user", "id"].unknown_row
    assert (id_rows.unknown_item, id_rows.negative_only_row) == (
        fields["item", "id"].unknown_row,
        fields["item", "id"].missing_row,
    )
    assert id_rows.trained_items.tolist() == [True, True, True, False, False, False]
    assert set(np.flatnonzero(id_rows.trained_rows)) == set(encoded.item.ids[:3].ravel())


def test_as_published_an_item_without_a_positive_is_trained_by_its_own_row(
    encoded_items: tuple[Dataset, Encoder, Encoded],
) -> None:
    data, _, _ = encoded_items
    encoder = Encoder.fit(data, np.arange(data.n_interactions), all_ids=True)
    encoded = encoder.encode(data)
    counts = np.bincount(data.item_numbers, minlength=6)
    id_rows = IdRows.from_counts(encoder.fields, counts, encoded.item, as_published=True)
    user_side = AttributeTable(encoded.user.ids[:1], encoded.user.values[:1])
    labels = np.array([[1.0, -1.0, -1.0]], np.float32)
    batch = make_batch(user_side, encoded.item, np.array([[0, 4, 5]], np.int32), labels, None, id_rows)
    np.testing.assert_array_equal(batch.item_ids[0], encoded.item.ids[[0, 4, 5]])
    np.testing.assert_array_equal(batch.item_x[0], encoded.item.values[[0, 4, 5]])


@pytest.mark.parametrize("has_weights", [True, False])
def test_the_steps_of_a_batch_are_its_groups_in_order(has_weights: bool) -> None:
    labels = np.arange(14, dtype=np.float32).reshape(7, 2)
    ids = np.arange(14, dtype=np.int32).reshape(7, 2)
    weights = np.arange(7, dtype=np.float32) if has_weights else None
    batch = Batch(ids, labels, ids[:, :, None], labels[:, :, None], labels, weights)
    steps = list(batch.steps(3))
    assert [len(step) for step in steps] == [3, 3, 1]
    for name in ("user_ids", "user_x", "item_ids", "item_x", "labels", *(("weights",) if has_weights else ())):
        np.testing.assert_array_equal(np.concatenate([getattr(step, name) for step in steps]), getattr(batch, name))
    assert has_weights or all(step.weights is None for step in steps)
