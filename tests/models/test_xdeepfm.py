from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.xdeepfm import XDeepFM
from tests.models.slow_loops import LAYOUT, K, Row, by_fields, check, linear


@pytest.mark.parametrize("activation", ["identity", "relu"])
@pytest.mark.parametrize("split_half", [True, False])
def test_it_crosses_maps_with_fields(split_half: bool, activation: Literal["identity", "relu"]) -> None:
    model = XDeepFM(LAYOUT, K, cin="4,3", split_half=split_half, cin_activation=activation, hidden="4", dropout=0.0)

    def slow(rows: Tensor, row: Row) -> Tensor:
        fields = by_fields(rows, row)
        outputs, hidden = [], fields
        for number, layer in enumerate(model.cin.layers):
            maps = []
            for h in range(layer.out_features):
                weights = layer.weight[h].view(len(hidden), len(fields))
                crossed = sum(weights[a, b] * hidden[a] * fields[b] for a in range(len(hidden)) for b in range(len(fields)))
                maps.append(torch.relu(crossed) if activation == "relu" else crossed)
            is_last = number == len(model.cin.layers) - 1
            half = len(maps) // 2 if split_half and not is_last else 0
            outputs += [feature_map.sum() for feature_map in maps[half:]]
            hidden = maps[:half] if half else maps
        deep = model.deep.user(torch.cat(fields[:2])) + model.deep.item(torch.cat(fields[2:]))
        return linear(rows, row) + model.head(torch.stack(outputs)) + model.deep.rest(deep)

    check(model, slow, 1 + K)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="of even sizes"):
        XDeepFM(LAYOUT, cin="3,3")
    with pytest.raises(OptionError, match="one layer or more"):
        XDeepFM(LAYOUT, cin="")
