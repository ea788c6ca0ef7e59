"""Training of gradient models by rows of their table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gmlfm.errors import OptionError
from gmlfm.models.gradient import GradientModel
from gmlfm.training.cold_start import ColdStartTrainer
from gmlfm.training.engines import Engine, make_engine
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.engines.history import HistoryEngine
from gmlfm.training.engines.history_graph import HistoryGraphEngine, ResidentHistories, fits
from gmlfm.training.engines.sequences import SequenceEngine
from gmlfm.training.history_level import HistoryLevel
from gmlfm.training.options import TrainingOptions
from gmlfm.training.probe import Probe, Reading
from gmlfm.training.rows import DENSE_OPTIMISERS, row_optimiser
from gmlfm.training.sampling.batches import Batches, RankingBatches
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.sampling.history_batches import HistoryBatches, TargetBatches
from gmlfm.training.trainer import DivergedError, Observer, Trainer, under_prefix

_READ_BY_ENGINE = (SequenceEngine, HistoryEngine)  # whose batches no Probe can score


class RowTrainer(Trainer):
    """Holds a model, its table and their optimisers."""

    def __init__(
        self,
        model: GradientModel,
        n_rows: int,
        options: TrainingOptions,
        batches: Batches | None = None,
        device: torch.device | str = "cpu",
        field_of_row: npt.NDArray[np.int16] | None = None,
        schedule_epochs: int | None = None,
    ) -> None:
        """schedule_epochs: over how many the schedule of the learning rate goes, unless it is those of the options."""
        super().__init__(model, options)
        self._schedule_epochs = options.epochs if schedule_epochs is None else schedule_epochs
        self.model, self.device = model.to(device), torch.device(device)
        table = model.initial_rows(n_rows, torch.Generator().manual_seed(options.seed))
        if tuple(table.shape) != (n_rows, model.row_width):
            raise OptionError(
                f"{type(model).__name__}.initial_rows gave the shape {tuple(table.shape)}; expected ({n_rows}, "
                f"{model.row_width}), a row of row_width numbers for each attribute."
            )
        table[0] = 0.0  # padding
        self.table = model.table = table.to(device)
        self.rows = row_optimiser(options.optimiser, self.table, options.lr, self._weight_decay(batches))
        self.dense = DENSE_OPTIMISERS[options.optimiser](list(model.parameters()) or [torch.zeros(0)], lr=options.lr)
        self._field_of_row = field_of_row if model.needs_fields else None
        self._batches = batches
        self._resident: Any = None
        self._engine: Engine | None = None
        self._probe: Callable[[GradientModel, Tensor], Reading] | None = None
        self._reading: Reading | None = None  # of the epoch at hand

    def _weight_decay(self, batches: Batches | None) -> float:
        if batches is None:
            return self.options.weight_decay or 0.0
        if isinstance(batches, TargetBatches) and not batches.reads_sequences:
            return self.options.decay_for(batches.steps_of_learned, has_history=True)
        return self.options.decay_for(batches.steps_per_epoch, has_history=False)

    @property
    def batches(self) -> Batches:
        assert self._batches is not None
        return self._batches

    @property
    def n_instances(self) -> int:
        return self.batches.n_instances

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps_per_epoch

    @property
    def warm_epochs(self) -> int:
        return self.model.warm_epochs

    @property
    def engine(self) -> Engine:
        """Who takes this model's steps here: compiled kernels where there are some, else eager PyTorch."""
        if self._engine is None:
            parts = (self.model, self.rows, self.dense)
            if isinstance(self._batches, TargetBatches):
                self._engine = self._history_engine(self._batches)
            else:
                self._engine = make_engine(*parts, self.options, self._field_of_row)
        return self._engine

    def _history_engine(self, batches: TargetBatches) -> Engine:
        """On a GPU all there is to a step stands there, where that fits and is in memory at once."""
        if batches.reads_sequences:
            return SequenceEngine(self.model, self.rows, self.dense, self.options.loss, batches)
        is_gpu = self.device.type == "cuda"
        if is_gpu and isinstance(batches, HistoryBatches) and fits(batches, self.model, self.rows, self.options.loss):
            self._resident = ResidentHistories(batches, self.device)
            return HistoryGraphEngine(self.model, self.rows, self.dense, self._resident, batches, self._field_of_row)
        return HistoryEngine(self.model, self.rows, self.dense, self.options.loss, batches, self._field_of_row)

    def run_epoch(self, observer: Observer) -> float:
        # Dropout draws from torch's own stream; named by the epoch, a resumed run draws the same.
        torch.manual_seed(self.options.seed * 1_000_003 + self.epoch)
        self.model.train()
        self.model.begin_epoch(self.epoch)
        total, n_done, self._reading = 0.0, 0, None
        engine, batches = self.engine, self._on_device()
        size, sampler = batches.groups_per_step, batches.cold_start_sampler(self.epoch)
        cold_start: ColdStartTrainer | HistoryLevel | None = None
        if isinstance(self.batches, TargetBatches):
            if not self.batches.reads_sequences and HistoryLevel.is_open(self.model, self.batches):
                cold_start = HistoryLevel(self.model, self.table, self.batches, self.epoch)
        elif sampler is not None:
            cold_start = ColdStartTrainer(self.model, self.table, engine, size, sampler, self._field_of_row, self.options.loss)
        for batch in batches.epoch(self.epoch):
            self._set_lr(n_done)
            if self._probe is None and (isinstance(batch, Batch | DeviceBatch) or isinstance(engine, _READ_BY_ENGINE)):
                self._begin_probe(batch if self.epoch == 0 else next(iter(batches.epoch(0))))
            for loss, n_instances in engine.run(batch, size):
                self._check((loss,))
                total += loss * n_instances
                n_done += n_instances
                observer.on_step(n_done, self.n_instances, total / n_done)
            if n_done >= self.n_instances:
                self.probe()
            self._check(cold_start.after(len(batch)) if cold_start else ())
        self._check(cold_start.end() if cold_start else ())
        return total / max(n_done, 1)

    def _set_lr(self, n_done: int) -> None:
        """By the schedule over all epochs of the selection, which a refit follows as far as it trains."""
        if self.options.schedule == "constant":
            return
        share = (self.epoch + n_done / max(self.n_instances, 1)) / max(self._schedule_epochs, 1)
        self.rows.lr = self.options.lr_at(share)
        for group in self.dense.param_groups:
            if not isinstance(group["lr"], Tensor):
                group["lr"] = self.rows.lr

    def _check(self, losses: Iterable[float]) -> None:
        for loss in losses:
            if not np.isfinite(loss):
                raise DivergedError(f"the loss became {loss} in epoch {self.epoch + 1}; {self._remedy}")

    def _begin_probe(self, batch: Any) -> None:
        """batch: the first one of epoch 0, in a resumed training too."""
        if isinstance(self.engine, _READ_BY_ENGINE):
            self._probe, has_start = partial(self.engine.reading, batch), True
        else:
            probe = Probe(batch, self.device, self._field_of_row, self.options.loss)
            self._probe, has_start = probe, not probe.is_degenerate
        if self.epoch == 0 and has_start:
            self.start_loss = self._probe(self.model, self.table).loss
            self.model.train()

    def probe(self) -> Reading | None:
        """As it was before the last cold-start steps: these set the level of all scores without regard to the loss, and the
        next training steps set it back."""
        if self._reading is None and self._probe is not None:
            self._reading = self._probe(self.model, self.table)
            self.model.train()
        return self._reading

    def _on_device(self) -> Any:
        """Batches on the device, where both they and the engine can be there."""
        if self._resident is None:
            self._resident = self.batches
            if self.engine.takes_device_batches and isinstance(self.batches, RankingBatches):
                from gmlfm.training.engines.resident import ResidentBatches

                self._resident = ResidentBatches(self.batches, self.device)
        return self._resident

    def weights(self) -> dict[str, Tensor]:
        return {"table": self.table, **{f"dense.{name}": tensor for name, tensor in self.model.dense_state().items()}}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """In place: the optimiser and the engine hold these tensors."""
        self.table.copy_(weights["table"])
        torch.nn.Module.load_state_dict(self.model, under_prefix(weights, "dense."))

    def restore_best(self) -> None:
        self.best.put_into(self.weights())  # a large table is not read into memory a second time

    def optimiser_state(self) -> dict[str, Tensor]:
        state = {f"rows.{name}": tensor for name, tensor in self.rows.state().items()}
        for number, slots in self.dense.state_dict()["state"].items():
            state |= {f"optimiser.{number}.{name}": torch.as_tensor(value) for name, value in slots.items()}
        return state

    def load_optimiser_state(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in self.rows.state().items():
            tensor.copy_(state[f"rows.{name}"])
        dense = self.dense.state_dict()
        dense["state"] = {}
        for key, tensor in under_prefix(state, "optimiser.").items():
            number, name = key.split(".", 1)
            dense["state"].setdefault(int(number), {})[name] = tensor
        self.dense.load_state_dict(dense)
        self._engine = self._resident = None  # the optimiser's state lies elsewhere now
