"""Labels: which instances a part has, and the scale that they are learned in."""

from __future__ import annotations

import numpy as np
import pytest

from gmlfm.errors import DataError
from gmlfm.fitting.labels import centre_and_spread, labelled
from gmlfm.training.sampling.instances import implicit_instances
from tests.contracts.checkerboard import checkerboard


def test_labels_of_rated_rows_and_of_instances() -> None:
    data = checkerboard()
    rows = np.array([3, 1, 17])
    users, items, labels, interactions = labelled(data, None, rows)
    np.testing.assert_array_equal(users, data.user_numbers[rows])
    np.testing.assert_array_equal(items, data.item_numbers[rows])
    np.testing.assert_array_equal(labels, data.interactions["label"].to_numpy()[rows])
    assert labels.dtype == np.float32
    assert interactions is rows
    instances = implicit_instances(data)
    users, items, labels, interactions = labelled(data, instances, rows)
    np.testing.assert_array_equal(users, instances.users[rows])
    np.testing.assert_array_equal(items, instances.items[rows])
    np.testing.assert_array_equal(labels, instances.labels[rows])
    np.testing.assert_array_equal(interactions, instances.rows[rows])


def test_the_scale_is_the_mean_and_the_spread() -> None:
    assert centre_and_spread(np.array([1.0, 3.0, 5.0])) == pytest.approx((3.0, (8 / 3) ** 0.5))
    assert centre_and_spread(np.array([4.0, 4.0])) == (4.0, 1.0)  # equal labels have nothing to be divided by


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1.0, -1e300, 2.0], r"a label is -1e\+300; expected numbers up to 1e\+15."),
        ([1.0, np.inf], "a label is inf"),
        ([np.nan, 1.0], "a label is nan"),
    ],
)
def test_labels_that_cannot_be_learned_are_named(labels: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        centre_and_spread(np.array(labels))
