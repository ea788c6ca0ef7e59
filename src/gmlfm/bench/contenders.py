"""The ways to train that are compared: ours, and eager PyTorch over a dense table. With histories: gmlfm.bench.history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gmlfm.data.sources import load_dataset
from gmlfm.errors import OptionError
from gmlfm.fitting.fit import make_plan
from gmlfm.fitting.plan import chosen_device
from gmlfm.models.base import FitInputs, FitReport
from gmlfm.models.gradient import Attributes
from gmlfm.models.registry import model_info
from gmlfm.training.history_options import NO_HISTORY
from gmlfm.training.objectives import objective_named
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.sampling.history_batches import HistoryBatches
from gmlfm.training.settings import Settings, applicable

_INSTANCES = 400_000  # are made beforehand and gone through again and again
_INSTANCES_ON_A_GPU = 5_000_000
_STEPS_AT_ONCE = 4
PLAIN_TORCH = ("torch", "torch-items", "torch-unfused")


@dataclass(frozen=True)
class Task:
    """What one contender trains, and how. batch: None for as many as training takes; n_negatives: without a history; settings:
    more of them, of models that read histories."""

    data: str
    data_root: str | None
    model: str
    way: str
    k: int
    batch: int | None
    threads: int
    device: str
    n_negatives: int = 4
    settings: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def refuse_untrained(model: str) -> None:
    if not applicable(model_info(model))["batches"]:
        raise OptionError(f"'{model}' is not trained by steps, so there is nothing to measure.")


def reads_history(model: str, given: Mapping[str, Any]) -> bool:
    """Whether training reads what users did before, where the data say what came before what."""
    info = model_info(model)
    refuse_untrained(model)
    return info.cls.reads_sequences or Settings.make(info, "topn", given).history.history != NO_HISTORY


def _refuse_other_form(way: str, with_history: bool) -> None:
    ways = (*PLAIN_TORCH, "sasrec") if with_history else ("factored", "factored-product", "eager")
    if way not in ("ours", *ways):
        does = "reads what users did before" if with_history else "reads no history here"
        raise OptionError(f"--against {way} is another kind of training, since the model {does}; take {', '.join(ways)}.")


class Contender:
    """Set up to train; `run` goes through so many batches and says how many instances that were."""

    def __init__(self, task: Task) -> None:
        torch.set_num_threads(task.threads)
        self.task = replace(task, device=chosen_device(task.device))
        refuse_untrained(task.model)
        info = model_info(task.model)
        values: dict[str, Any] = {"threads": task.threads, **task.settings}
        if task.batch is not None:
            values["batch_size"] = task.batch
        if "k" in info.declared:
            values["k"] = task.k
        with_history = reads_history(task.model, values)
        if not with_history:
            values = {"n_negatives": task.n_negatives, **values}
        _refuse_other_form(task.way, with_history)
        if task.way in PLAIN_TORCH:
            values["piece"] = 1
        if task.way in ("factored", "factored-product") and "form" not in info.declared:
            raise OptionError(f"--against {task.way} is for the GML-FM models; '{task.model}' has no such form.")
        if task.way == "factored-product":
            values["form"] = "factored"
        self.settings = Settings.make(task.model, "topn", values)
        data = load_dataset(task.data, data_root=task.data_root)
        plan = make_plan(data, self.settings, "leave-one-out", None, self.task.device)
        self.settings, inputs = plan.settings, plan.selection_inputs()
        self.settings.build(inputs.layout).fit(inputs, self)

    def train(self, model: Any, inputs: FitInputs) -> FitReport:
        """As a model's plan: instead of training it, set up the steps that are measured."""
        self.model, self._inputs = model, inputs
        self.n_rows = inputs.layout.n_rows
        batches = inputs.batches()
        self.groups_per_step = batches.groups_per_step
        self.softmax_operations: float | None = None
        self.batches: list[Batch] = []
        if isinstance(batches, HistoryBatches):
            from gmlfm.bench.history import our_steps, softmax_operations, torch_steps

            self.softmax_operations = softmax_operations(batches, model)
            parts = (model, inputs.layout, batches, self.settings, self.task.device)
            way = self.task.way
            self._take_steps = our_steps(*parts) if way == "ours" else torch_steps(*parts, way=way)
            return FitReport()
        n_instances = _INSTANCES_ON_A_GPU if self.task.device == "cuda" and self.task.way == "ours" else _INSTANCES
        for batch in islice(batches.epoch(0), 1000):
            self.batches.append(batch)
            if sum(earlier.labels.size for earlier in self.batches) >= n_instances:
                break
        self._take_steps = self._ours() if self.task.way == "ours" else self._eager()
        return FitReport()

    train_episodes = train

    def run(self, seconds: float, clock: Callable[[], float]) -> tuple[int, float]:
        """Instances and seconds, through all batches at least once."""
        started, n_done = clock(), 0
        while True:
            n_done += self._take_steps()
            if self.task.device == "cuda":
                torch.cuda.synchronize()
            if clock() - started >= seconds:
                return n_done, clock() - started

    def _ours(self) -> Callable[[], int]:
        field_of_row = self._inputs.layout.field_of_row()
        options, device = self.settings.training, self.task.device
        trainer = RowTrainer(self.model, self.n_rows, options, device=device, field_of_row=field_of_row)
        trainer.model.train()
        engine, batches = trainer.engine, self.batches
        if engine.takes_device_batches:
            from gmlfm.training.engines.device_batch import DeviceBatch

            resident = DeviceBatch.upload(_joined(batches), torch.device(device))
            return lambda: sum(n for _, n in engine.run(resident, self.groups_per_step))
        return lambda: sum(n for batch in batches for _, n in engine.run(batch, self.groups_per_step))

    def _eager(self) -> Callable[[], int]:
        if self.model.whole_table or self.model.needs_fields:
            raise OptionError(f"--against compares models of rows alone; '{self.task.model}' is not one.")
        dense = DenseEager(self.model, self.n_rows, self.settings, self.task.device)
        ways = {"eager": dense.group_step, "factored": dense.outer_step, "factored-product": dense.flat_step}
        step = ways[self.task.way]
        steps = [step_batch for batch in self.batches for step_batch in batch.steps(self.groups_per_step)]
        n_taken = 0

        def take_some() -> int:
            # A few steps, so that the slowest way, too, looks at the clock now and then.
            nonlocal n_taken
            chosen = [steps[(n_taken + number) % len(steps)] for number in range(_STEPS_AT_ONCE)]
            n_taken += _STEPS_AT_ONCE
            for batch in chosen:
                step(batch)
            return sum(batch.labels.size for batch in chosen)

        return take_some


class DenseEager:
    """PyTorch as most would write it: an embedding table with a dense gradient, fused Adam over everything."""

    def __init__(self, model: Any, n_rows: int, settings: Settings, device: str) -> None:
        self._model, self._device = model.to(device).train(), torch.device(device)
        self._table = nn.Parameter(model.initial_rows(n_rows, torch.Generator().manual_seed(0)).to(device))
        self._objective = objective_named(settings.training.loss, model)
        parameters = [self._table, *model.parameters()]
        self._adam = torch.optim.Adam(parameters, lr=settings.training.lr, fused=True)

    def group_step(self, batch: Batch) -> None:
        """Our own model: what is within a user is computed once for all of their items."""
        user_width = batch.user_ids.size
        ids = self._tensor(np.concatenate([batch.user_ids.ravel(), batch.item_ids.ravel()]).astype(np.int64))
        rows = self._model.transform_rows(functional.embedding(ids, self._table))
        place = torch.arange(len(ids), device=self._device)
        user_side, item_side = (
            Attributes(places.view(ids.shape), self._tensor(x), is_present=self._tensor(ids != 0))
            for places, ids, x in (
                (place[:user_width], batch.user_ids, batch.user_x),
                (place[user_width:], batch.item_ids, batch.item_x),
            )
        )
        self._update(self._model.scores(rows, user_side, item_side), batch)

    def flat_step(self, batch: Batch) -> None:
        """Instance after instance, each with all of its attributes; the K x K sums of each by one matrix product."""
        rows, attributes = self._instances(batch)
        self._update(self._model(rows, attributes), batch)

    def outer_step(self, batch: Batch) -> None:
        """The same as the equations are written: outer products v z^T, summed over the attributes."""
        rows, attributes = self._instances(batch)
        model, shape, x = self._model, attributes.x.shape, attributes.x
        v = rows[:, 1:].view(*shape, model.k)
        z, scaled = model.transform(v), v * x.unsqueeze(-1)
        s, t = scaled.sum(1), (scaled * (z * z).sum(-1, keepdim=True)).sum(1)
        p = (scaled.unsqueeze(-1) * z.unsqueeze(-2)).sum(1)
        second = (s * model.h * t).sum(-1) - ((p * p).sum(-1) * model.h).sum(-1)
        self._update(model.bias + (rows[:, 0].view(shape) * x).sum(1) + second, batch)

    def _instances(self, batch: Batch) -> tuple[Tensor, Attributes]:
        """The rows of every instance's attributes, one after another: (B F, 1 + K)."""
        shape = (*batch.labels.shape, batch.user_ids.shape[1])
        by_side = [(batch.user_ids, batch.item_ids), (batch.user_x, batch.item_x)]
        ids, x = (np.concatenate([np.broadcast_to(user[:, None], shape), item], axis=2) for user, item in by_side)
        flat = self._tensor(ids.astype(np.int64)).view(-1)
        places = torch.arange(len(flat), device=self._device).view(-1, ids.shape[2])
        attributes = Attributes(places, self._tensor(x).view(places.shape), is_present=(flat != 0).view(places.shape))
        return functional.embedding(flat, self._table), attributes

    def _update(self, scores: Tensor, batch: Batch) -> None:
        loss = self._objective(scores.view(batch.labels.shape), self._tensor(batch.labels), None)
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()

    def _tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)


def _joined(batches: list[Batch]) -> Batch:
    return Batch(
        np.concatenate([batch.user_ids for batch in batches]),
        np.concatenate([batch.user_x for batch in batches]),
        np.concatenate([batch.item_ids for batch in batches]),
        np.concatenate([batch.item_x for batch in batches]),
        np.concatenate([batch.labels for batch in batches]),
        None,
    )
