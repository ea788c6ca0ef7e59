from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm.models import frozen
from gmlfm.models.deepfm import DeepFM
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.mf import MF
from gmlfm.models.nfm import NFM
from gmlfm.models.ngcf import NGCF
from gmlfm.models.transfm import TransFM
from tests.models.slow_loops import LAYOUT, K, rows_and_batch

MAKERS: dict[str, Any] = {
    "gml-fm": lambda: GMLFM(K),
    "manhattan": lambda: GMLFM(K, distance="manhattan"),
    "fm": lambda: FM(K),
    "transfm": lambda: TransFM(K),
    "mf": lambda: MF(K),
    "nfm": lambda: NFM(K),
    "deepfm": lambda: DeepFM(LAYOUT, K),
    "ngcf": lambda: NGCF(LAYOUT, K),
}


def built(name: str) -> GradientModel:
    model: GradientModel = MAKERS[name]().double().eval()
    if isinstance(model, NGCF):
        model.set_graph(np.array([3, 3, 4, 5]), np.array([13, 14, 14, 15]))
    return model


def batch_of(model: GradientModel, times: int = 1) -> tuple[Tensor, Attributes, Attributes]:
    """A table, users and each user's items several times over."""
    table, users, items = rows_and_batch(model.row_width)
    assert items.fields is not None
    return table, users, Attributes(*(tensor.repeat(1, times, 1) for tensor in (items.ids, items.x, items.fields)))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("times", [1, 4])
def test_frozen_scores_are_the_models(name: str, times: int) -> None:
    """Four times the same items: then pairs of attributes occur so often that those of a pairwise model are looked up."""
    model = built(name)
    table, users, items = batch_of(model, times)
    with torch.no_grad():
        expected = model.scores(model.transform_rows(table), users, items)
    scores = frozen.frozen_scores(model, table, users, items)
    torch.testing.assert_close(scores, expected)
    assert not scores.requires_grad


def test_pairs_that_occur_often_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(frozen, "_by_table", lambda *arguments: calls.append("table"))
    model = built("fm")
    frozen.frozen_scores(model, *batch_of(model, 4))
    assert calls == ["table"]


@pytest.mark.parametrize("name", MAKERS)
def test_scores_of_a_row_are_those_of_the_table_with_that_row(name: str) -> None:
    model = built(name)
    table, users, items = batch_of(model)
    row = 1  # the unknown user's
    users.ids[:, 0] = row
    values = torch.linspace(-0.5, 0.5, model.row_width, dtype=torch.float64).requires_grad_()
    before = table.clone()
    scores = frozen.scores_of_row(model, table, row, users, items)(values)
    assert torch.equal(table, before)
    changed = table.clone()
    changed[row] = values.detach()
    with torch.no_grad():
        expected = model.scores(model.transform_rows(changed), users, items)
    torch.testing.assert_close(scores.detach(), expected)
    (gradient,) = torch.autograd.grad(scores.sum(), [values])
    assert gradient.abs().max() > 0
