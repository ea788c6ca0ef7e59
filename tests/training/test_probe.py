"""The sample by which training sees whether anything was learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gmlfm.models.fm import FM
from gmlfm.models.gradient import Attributes
from gmlfm.models.layers import FactorModel
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.probe import Probe
from gmlfm.training.sampling.groups import Batch

CPU = torch.device("cpu")


def batch(n_groups: int = 6, group: int = 3, **changed: Any) -> Batch:
    """User rows 1 to 4, item rows 5 to 9, a positive first."""
    rng = np.random.default_rng(0)
    labels = np.full((n_groups, group), -1.0, np.float32)
    labels[:, 0] = 1.0
    arrays = {
        "user_ids": rng.integers(1, 5, (n_groups, 1)).astype(np.int32),
        "user_x": np.ones((n_groups, 1), np.float32),
        "item_ids": np.tile(np.arange(5, 5 + group, dtype=np.int32), (n_groups, 1))[..., None],
        "item_x": np.ones((n_groups, group, 1), np.float32),
        "labels": labels if group > 1 else np.linspace(-1, 1, n_groups, dtype=np.float32)[:, None],
        "weights": None,
    }
    return Batch(**{**arrays, **changed})


def table_of(model: FactorModel) -> torch.Tensor:
    return model.initial_rows(10, torch.Generator().manual_seed(0)) * 50


@pytest.mark.parametrize("weights", [None, np.arange(1, 7, dtype=np.float32)])
@pytest.mark.parametrize("on_device", [False, True])
def test_its_loss_is_the_objective_of_the_scores(weights: Any, on_device: bool) -> None:
    shown, model = batch(weights=weights), FM(k=3)
    table = table_of(model)
    users, items = (
        Attributes(torch.from_numpy(ids).long(), torch.from_numpy(x))
        for ids, x in ((shown.user_ids, shown.user_x), (shown.item_ids, shown.item_x))
    )
    errors = (model.scores(table, users, items) - torch.from_numpy(shown.labels)).square().mean(1).detach().numpy()
    given = DeviceBatch.upload(shown, CPU) if on_device else shown
    reading = Probe(given, CPU, None, "squared")(model, table)
    assert reading.loss == pytest.approx(float(np.average(errors, weights=weights)), rel=1e-5)
    assert not reading.is_constant


def test_dropout_has_no_part_in_it_and_no_random_number_is_drawn() -> None:
    class Dropped(FM):
        def scores(self, rows: Any, user_side: Attributes, item_side: Attributes) -> torch.Tensor:
            return torch.nn.functional.dropout(super().scores(rows, user_side, item_side), 0.5, self.training)

    model = Dropped(k=3)
    table, probe, random_state = table_of(model), Probe(batch(), CPU, None, "squared"), torch.get_rng_state()
    model.train()
    assert probe(model, table) == probe(model, table)
    assert torch.equal(torch.get_rng_state(), random_state)


def test_it_is_a_copy_of_some_four_thousand_instances() -> None:
    shown = batch(n_groups=3_000)
    probe, model = Probe(shown, CPU, None, "squared"), FM(k=3)
    table = table_of(model)
    before = probe(model, table)
    shown.item_ids[:] = 1
    shown.labels[:] = 9.0
    assert probe(model, table) == before
    assert probe(model, table) == Probe(batch(n_groups=4096 // 3), CPU, None, "squared")(model, table)


@pytest.mark.parametrize("group", [1, 3])
def test_scores_are_constant_where_all_of_a_group_or_of_the_sample_are_the_same(group: int) -> None:
    model = FM(k=3)
    table = torch.zeros(10, model.row_width)
    probe = Probe(batch(group=group), CPU, None, "squared")
    assert probe(model, table).is_constant
    table[1:5, 0] = torch.arange(4.0)  # users differ: which tells instances apart, and no items
    assert probe(model, table).is_constant is (group == 3)
    table[6, 0] = 1e-3
    table[1:5, 0] = 0.0
    assert probe(model, table).is_constant is (group == 1)  # item row 6 is in no group of one item


def test_what_cannot_differ_is_not_constant() -> None:
    model = FM(k=3)
    table = torch.zeros(10, model.row_width)
    same_items = batch(item_ids=np.full((6, 3, 1), 5, np.int32))
    same_labels = batch(group=1, labels=np.ones((6, 1), np.float32))
    same_rows = batch(group=1, user_ids=np.ones((6, 1), np.int32))
    for shown, is_degenerate in ((same_items, False), (same_labels, True), (same_rows, False)):
        probe = Probe(shown, CPU, None, "squared")
        assert not probe(model, table).is_constant
        assert probe.is_degenerate is is_degenerate
