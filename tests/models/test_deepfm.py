from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from gmlfm.models.deepfm import DeepFM
from tests.models.slow_loops import LAYOUT, K, Row, by_fields, check, linear


def test_it_joins_a_machine_and_layers_over_fields() -> None:
    model = DeepFM(LAYOUT, K, hidden="4,2", dropout=0.5)

    def slow(rows: Tensor, row: Row) -> Tensor:
        pairs = sum(rows[i, 1:] @ rows[j, 1:] * x * y for (i, x, _), (j, y, _) in combinations(row, 2))
        fields = by_fields(rows, row)
        hidden = model.deep.user(torch.cat(fields[:2])) + model.deep.item(torch.cat(fields[2:]))
        return linear(rows, row) + pairs + model.deep.rest(hidden)

    check(model, slow, 1 + K)
