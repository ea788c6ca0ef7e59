from __future__ import annotations

from itertools import combinations

import pytest
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.nfm import NFM
from tests.models.slow_loops import K, Row, check, linear


def test_it_pools_all_pairs_before_its_layers() -> None:
    model = NFM(K, hidden="4,2", dropout=0.5, norm=True)
    norm = model.pooled[0]
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)

    def slow(rows: Tensor, row: Row) -> Tensor:
        pooled = sum(rows[i, 1:] * rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2))
        normed = (pooled - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        return linear(rows, row) + model.head(model.deep(normed.unsqueeze(0)))

    check(model, slow, 1 + K)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": "a,b"}, "hidden is 'a,b'; expected sizes of 1 or more, such as 64,32"),
        ({"hidden": "0"}, "hidden is '0'; expected sizes of 1 or more"),
        ({"dropout": 1.0}, "dropout is 1; expected 0 or more, below 1"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        NFM(**options)  # type: ignore[arg-type]
