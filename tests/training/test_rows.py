from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gmlfm.errors import OptionError
from gmlfm.training.rows import DENSE_OPTIMISERS, ROW_OPTIMISERS, Distinct, RowAdam, RowSGD, register_optimiser, row_optimiser


@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=40), min_size=1, max_size=5))
def test_distinct_rows_and_their_places(batches: list[list[int]]) -> None:
    distinct = Distinct(21)
    for batch in batches:
        ids = np.array(batch, np.int32)
        rows, places = distinct(ids)
        assert sorted(rows.tolist()) == sorted(set(batch))
        assert rows[places].tolist() == batch


@pytest.mark.parametrize("name", ["adam", "adagrad", "sgd"])
def test_with_all_rows_in_every_step_it_is_the_dense_optimiser(name: str) -> None:
    torch.manual_seed(0)
    table = torch.randn(5, 3, dtype=torch.float64)
    dense = table.clone().requires_grad_()
    optimisers = {"adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}
    reference = optimisers[name]([dense], lr=0.05)
    rows = row_optimiser(name, table, 0.05, 0.0)
    all_rows = torch.arange(5)
    for _ in range(7):
        gradient = torch.randn(5, 3, dtype=torch.float64)
        dense.grad = gradient.clone()
        reference.step()
        rows.step(all_rows, table[all_rows], gradient)
        torch.testing.assert_close(table, dense.detach(), rtol=1e-6, atol=1e-9)


def test_lazy_adam_leaves_untouched_rows_and_their_moments_alone() -> None:
    table = torch.zeros(3, 2)
    adam = RowAdam(table, 0.1)
    for _ in range(5):
        adam.step(torch.tensor([0]), table[[0]], torch.ones(1, 2))
    before = {name: tensor[1:].clone() for name, tensor in adam.state().items()}
    assert (table[1:] == 0).all()
    assert all((tensor == 0).all() for tensor in before.values())
    # A row's first update is as large as any other's first, whenever it comes.
    adam.step(torch.tensor([1]), table[[1]], torch.full((1, 2), 1e-3))
    torch.testing.assert_close(table[1], torch.full((2,), -0.1), rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", ROW_OPTIMISERS)
def test_weight_decay_is_decoupled_and_reaches_only_touched_rows(name: str) -> None:
    table = torch.ones(2, 2)
    row_optimiser(name, table, 0.1, 0.5).step(torch.tensor([0]), table[[0]], torch.zeros(1, 2))
    torch.testing.assert_close(table, torch.tensor([[0.95, 0.95], [1.0, 1.0]]))


def test_unknown_optimisers_are_refused() -> None:
    with pytest.raises(OptionError, match="did you mean 'adam'"):
        row_optimiser("adma", torch.zeros(1, 1), 0.1, 0.0)


def test_a_registered_optimiser_is_known_by_its_name_and_no_name_is_registered_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (ROW_OPTIMISERS, DENSE_OPTIMISERS):
        monkeypatch.setitem(registry, "mine", None)  # type: ignore[arg-type]
        del registry["mine"]
    register_optimiser("mine", RowSGD, torch.optim.SGD)
    assert isinstance(row_optimiser("mine", torch.zeros(1, 1), 0.1, 0.0), RowSGD)
    assert DENSE_OPTIMISERS["mine"] is torch.optim.SGD
    with pytest.raises(OptionError, match=r"an optimiser 'mine' is registered already; .* register_optimiser\('my-mine', "):
        register_optimiser("mine", RowSGD, torch.optim.SGD)
