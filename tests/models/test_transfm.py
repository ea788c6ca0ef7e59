from __future__ import annotations

from itertools import combinations

from torch import Tensor

from gmlfm.models.transfm import TransFM
from tests.models.slow_loops import K, Row, check, linear


def test_it_is_its_double_loop_with_the_user_first() -> None:
    def slow(rows: Tensor, row: Row) -> Tensor:
        pairs = (
            (rows[i, 1 : 1 + K] + rows[i, 1 + K :] - rows[j, 1 : 1 + K]).square().sum() * x * y
            for (i, x, _), (j, y, _) in combinations(row, 2)
        )
        return linear(rows, row) + sum(pairs)

    check(TransFM(K), slow, 1 + 2 * K)
