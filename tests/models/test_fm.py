from __future__ import annotations

from itertools import combinations

import pytest
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.fm import FM
from tests.models.slow_loops import K, Row, check, linear


def test_it_is_its_double_sum() -> None:
    def slow(rows: Tensor, row: Row) -> Tensor:
        pairs = (rows[i, 1:] @ rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2))
        return linear(rows, row) + sum(pairs)

    check(FM(K), slow, 1 + K)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="k is 0; expected 1 to 10,000"):
        FM(k=0)
    with pytest.raises(OptionError, match="v_scale is -1; expected 0 or more"):
        FM(v_scale=-1.0)
