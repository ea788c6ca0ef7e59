"""What a score is the sum of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gmlfm.data.attributes import Role

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EarlierTerms:
    """What a user's earlier items add to one score: linear_e + weight_ej distance_ej x_e x_j over the attributes j of the item
    that is scored, which are the last J of its `Terms`. They make no pairs with each other or with the user's attributes.

    items: (E,) the number of the item that an attribute is of; roles: (E,) in which it stands; role_weights: (E,), a repeated
    item's added up; ids: (E,) rows of the table, 0 as in `Terms`; x: (E,), the role weight times the item's x; linear: (E,);
    weight: (E, J); distance: (E, J) or None.
    """

    items: npt.NDArray[np.int32]
    roles: Sequence[Role]
    role_weights: Floats
    ids: npt.NDArray[np.int64]
    x: Floats
    linear: Doubles
    weight: Doubles
    distance: Doubles | None


@dataclass(frozen=True)
class Terms:
    """What one score is the sum of: constant + linear_i + weight_ij distance_ij x_i x_j over the pairs i < j, and what earlier
    items add.

    ids: (A,) rows of the table, the user's first, 0 for the id of an item that a model knows without a row; x: (A,);
    linear: (A,); weight: (A, A); distance: (A, A), None where the model has none; earlier: of a user with a history. All in the
    units of the labels.
    """

    ids: npt.NDArray[np.int64]
    x: Floats
    constant: float
    linear: Doubles
    weight: Doubles
    distance: Doubles | None
    earlier: EarlierTerms | None = None
