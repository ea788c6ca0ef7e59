"""Steps with histories as they are measured: plain PyTorch takes the same step, and what is counted is what is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm.bench.contenders import Contender, Task, reads_history
from gmlfm.bench.history import PlainTorch, n_columns, softmax_operations
from gmlfm.errors import OptionError
from gmlfm.fitting.fit import make_plan
from gmlfm.training.engines.history import HistoryEngine
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.history_batches import HistoryBatches
from gmlfm.training.settings import Settings
from tests.models.history_world import N_ITEMS, QUICK, history_data

MakeTask = Callable[..., Task]
HISTORY = {"history": "last,recent,past", "piece": 3, "n_negatives": 20}


def world(name: str, **changes: Any) -> tuple[HistoryEngine, HistoryBatches, Any, Settings, int]:
    """An engine with its batches, model, settings and rows of the table."""
    given = {**QUICK, "batch_size": 40, "cold_start_rate": 0.0, "v_scale": 0.4, "piece": 1, "history_dropout": 0.3, **changes}
    plan = make_plan(history_data(weight="n"), Settings.make(name, "topn", given), "leave-one-out", device="cpu")
    inputs = plan.selection_inputs()
    model: Any = plan.settings.build(inputs.layout)
    model.attach(inputs)
    if name == "gml-fm":
        torch.nn.init.normal_(model.gates, 0.0, 0.5)  # at the start it is an FM
    trainer = RowTrainer(model, inputs.layout.n_rows, plan.settings.training, inputs.batches(), "cpu")
    engine, batches = trainer.engine, trainer.batches
    assert isinstance(engine, HistoryEngine)
    assert isinstance(batches, HistoryBatches)
    return engine, batches, model, plan.settings, inputs.layout.n_rows


@pytest.mark.parametrize("n_negatives", [6, "all"])
@pytest.mark.parametrize(("name", "once_an_item"), [("fm", False), ("fm", True), ("gml-fm", True), ("gml-fm-unit", True)])
def test_plain_torch_has_the_loss_and_the_gradients_of_our_step(name: str, once_an_item: bool, n_negatives: Any) -> None:
    engine, batches, model, settings, n_rows = world(name, n_negatives=n_negatives)
    plain = PlainTorch(model, n_rows, batches, settings, "cpu", once_an_item=once_an_item)
    with torch.no_grad():
        plain._table.copy_(engine.rows.table)
    batch = next(iter(batches.epoch(0)))
    step = engine._shared(batch, np.random.default_rng(batch.seed))
    step.loss.backward()  # type: ignore[no-untyped-call]
    loss = plain.loss(batch, plain._drawn(batch))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(float(step.loss.detach()), rel=1e-5)
    assert plain._table.grad is not None
    assert step.leaf.grad is not None
    expected = torch.zeros_like(plain._table).index_add_(0, step.numbers, step.leaf.grad)
    assert expected.abs().max() > 1e-3
    grad = plain._table.grad.clone()
    # Under a softmax the user's linear term has no gradient, and padding is no row.
    grad[0] = expected[0] = 0
    torch.testing.assert_close(grad, expected, rtol=1e-3, atol=2e-6)


def test_plain_torch_learns_and_moves_its_table() -> None:
    _, batches, model, settings, n_rows = world("fm", n_negatives=6, lr=0.02)
    plain = PlainTorch(model, n_rows, batches, settings, "cpu")
    start = plain._table.detach().clone()
    losses = [np.mean([plain.step(batch) for batch in batches.epoch(number)]) for number in range(6)]
    assert losses[-1] < 0.9 * losses[0]
    assert not torch.equal(plain._table.detach(), start)


def test_events_of_nobody_have_no_history() -> None:
    """A batch whose rows have nothing before them."""
    _, batches, model, settings, n_rows = world("fm", n_negatives=6)
    plain = PlainTorch(model, n_rows, batches, settings, "cpu")
    batch = next(iter(batches.epoch(0)))
    nothing, none = np.zeros(len(batch), np.int64), np.zeros(0, np.int32)
    empty = replace(batch, events=none, is_kept=none.astype(bool), row_first=nothing, row_start=nothing, row_stop=nothing)
    with torch.no_grad():
        assert not plain._history(empty, plain._table).any()
        assert plain._history(batch, plain._table).any()


def test_operations_of_the_softmax_are_those_of_its_three_products() -> None:
    for n_negatives, columns in ((6, 6), ("all", N_ITEMS), (1000, N_ITEMS)):
        _, batches, model, _, _ = world("fm", n_negatives=n_negatives)
        assert n_columns(batches) == min(columns, len(batches.candidates))
        again = batches.options.cold_start_rate  # the share of steps that comes once more with ids hidden
        assert softmax_operations(batches, model) == pytest.approx(6 * n_columns(batches) * 4 * (1 + again))
    _, batches, model, _, _ = world("fm", n_negatives=2, loss="bpr")
    assert softmax_operations(batches, model) is None


@pytest.mark.parametrize("way", ["ours", "torch", "torch-items", "torch-unfused"])
def test_whole_epochs_are_gone_through_again_and_again(make_task: MakeTask, timed_folder: Path, way: str) -> None:
    contender = Contender(replace(make_task(way, "fm"), data=str(timed_folder), settings=HISTORY))
    assert contender.softmax_operations == pytest.approx(6 * 20 * 6 * 1.1)
    n_rows, clock = 0, time.perf_counter
    for _ in range(12):
        n_done, seconds = contender.run(0.0, clock)
        assert 0 < n_done <= 70  # about a batch
        assert seconds > 0
        n_rows += n_done
    assert n_rows > 500  # the training rows of an epoch


def test_another_kind_of_training_is_refused(make_task: MakeTask, timed_folder: Path) -> None:
    for way, model, settings, message in (
        ("eager", "fm", HISTORY, "--against eager is another kind of training, since the model reads what users did before"),
        ("torch", "fm", {"history": "none"}, "since the model reads no history here; take factored, factored-product, eager"),
        ("torch-items", "fm", {**HISTORY, "loss": "bpr"}, "softmax over negatives that a step's rows share"),
        ("torch", "gml-fm", HISTORY, "--against torch is for fm"),
    ):
        with pytest.raises(OptionError, match=message):
            Contender(replace(make_task(way, model), data=str(timed_folder), settings=settings))
    with pytest.raises(OptionError, match="and data without listing times"):
        Contender(replace(make_task("torch", "fm"), settings=HISTORY))


def test_who_reads_histories() -> None:
    assert reads_history("fm", HISTORY)
    assert reads_history("fm", {"history": "auto"})
    assert not reads_history("fm", {"history": "none"})
    assert reads_history("sasrec", {})
    assert not reads_history("ncf", {})
    with pytest.raises(OptionError, match="'ease' is not trained by steps"):
        reads_history("ease", {})
