"""Labels: which instances a part has, and the scale that they are learned in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gmlfm.data.dataset import Dataset, Rows
from gmlfm.errors import DataError
from gmlfm.training.sampling.instances import Instances

_LARGEST_LABEL = 1e15


def labelled(
    data: Dataset, instances: Instances | None, rows: Rows
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32], Rows]:
    """users, items, labels and interaction rows: of implicit instances where there are some, else of rated rows."""
    if instances is not None:
        return instances.users[rows], instances.items[rows], instances.labels[rows], instances.rows[rows]
    labels = data.interactions["label"].to_numpy()[rows].astype(np.float32)
    return data.user_numbers[rows], data.item_numbers[rows], labels, rows


def centre_and_spread(labels: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Labels are learned from their mean and in their spread, so that a learning rate suits stars as well as prices."""
    if not np.isfinite(labels).all() or np.abs(labels).max() > _LARGEST_LABEL:
        worst = labels[np.argmax(np.where(np.isfinite(labels), np.abs(labels), np.inf))]
        raise DataError(f"a label is {worst:g}; expected numbers up to {_LARGEST_LABEL:g}.")
    return float(labels.mean()), float(labels.std()) or 1.0
