"""The ways to train that are compared: ours, and eager PyTorch over a dense table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gmlfm.data.sources import load_dataset
from gmlfm.errors import OptionError
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.fitting.plan import chosen_device
from gmlfm.models.base import Attributes, GradientModel
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.registry import model_info
from gmlfm.training.loop import Trainer
from gmlfm.training.objectives import OBJECTIVES
from gmlfm.training.sampling.groups import Batch
from gmlfm.training.settings import Settings

_INSTANCES = 400_000  # are made beforehand and gone through again and again
_INSTANCES_ON_A_GPU = 5_000_000


@dataclass(frozen=True)
class Task:
    """One side of a comparison."""

    data: str
    data_root: str | None
    model: str
    way: str
    k: int
    batch: int
    threads: int
    device: str
    n_negatives: int = 4

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def refuse_untrained(model: str) -> None:
    if model_info(model).make is None:
        raise OptionError(f"'{model}' is not trained by steps, so there is nothing to measure.")


class Side:
    """Ready to train; `run` goes through so many batches and tells how many instances that were."""

    def __init__(self, task: Task) -> None:
        torch.set_num_threads(task.threads)
        self.task = replace(task, device=chosen_device(task.device))
        refuse_untrained(task.model)
        given: dict[str, Any] = {"batch_size": task.batch, "n_negatives": task.n_negatives, "threads": task.threads}
        if "k" in model_info(task.model).option_names():
            given["k"] = task.k
        if task.way == "factored-product":
            given["form"] = "factored"
        settings = Settings.make(task.model, "topn", given)
        data = load_dataset(task.data, data_root=task.data_root)
        self.material = MemoryPlan(data, settings, "leave-one-out", {}, self.task.device).first()
        self.model = settings.build(self.material.layout)
        self.material.introduce(self.model)
        self.n_rows = self.material.layout.n_rows
        batches = self.material.batches()
        self.groups_per_step = batches.groups_per_step
        wanted = _INSTANCES_ON_A_GPU if self.task.device == "cuda" and task.way == "ours" else _INSTANCES
        found: list[Batch] = []
        for batch in islice(batches.epoch(0), 1000):
            found.append(batch)
            if sum(one.labels.size for one in found) >= wanted:
                break
        self.batches = found
        self._take = self._ours(settings) if task.way == "ours" else self._eager(settings)

    def run(self, seconds: float, clock: Callable[[], float]) -> tuple[int, float]:
        """Instances and seconds, through all batches at least once."""
        started, done = clock(), 0
        while True:
            done += self._take()
            if self.task.device == "cuda":
                torch.cuda.synchronize()
            if clock() - started >= seconds:
                return done, clock() - started

    def _ours(self, settings: Settings) -> Callable[[], int]:
        field_of_row = self.material.layout.field_of_row()
        trainer = Trainer(self.model, self.n_rows, settings.training, self.task.device, field_of_row)
        trainer.model.train()
        steps, batches = trainer.steps(), self.batches
        if self.task.device == "cuda":
            from gmlfm.training.engines.cuda import DeviceSteps
            from gmlfm.training.engines.device_batch import DeviceBatch

            if isinstance(steps, DeviceSteps):
                whole = _joined(batches)
                resident = DeviceBatch.upload(whole, torch.device("cuda"))
                return lambda: sum(n for _, n in steps.run(resident, self.groups_per_step))
        return lambda: sum(n for batch in batches for _, n in steps.run(batch, self.groups_per_step))

    def _eager(self, settings: Settings) -> Callable[[], int]:
        if self.model.whole_table or self.model.needs_fields:
            raise OptionError(f"--against compares models of rows alone; '{self.task.model}' is not one.")
        if self.task.way != "eager" and not isinstance(self.model, GMLFM):
            raise OptionError(f"--against {self.task.way} is for the GML-FM models; '{self.task.model}' has no such form.")
        dense = DenseEager(self.model, self.n_rows, settings, self.task.device)
        ways = {"eager": dense.group_step, "factored": dense.outer_step, "factored-product": dense.flat_step}
        step = ways[self.task.way]
        parts = [part for batch in self.batches for part in batch.steps(self.groups_per_step)]
        at = 0

        def some() -> int:
            # A few steps, so that the slowest way, too, looks at the clock now and then.
            nonlocal at
            chosen = [parts[(at + one) % len(parts)] for one in range(4)]
            at += 4
            for one in chosen:
                step(one)
            return sum(one.labels.size for one in chosen)

        return some


class DenseEager:
    """PyTorch as most would write it: an embedding table with a dense gradient, fused Adam over everything."""

    def __init__(self, model: GradientModel, n_rows: int, settings: Settings, device: str) -> None:
        self._model, self._device = model.to(device).train(), torch.device(device)
        self._table = nn.Parameter(model.initial_rows(n_rows, torch.Generator().manual_seed(0)).to(device))
        self._objective = OBJECTIVES[settings.training.loss]
        parameters = [self._table, *model.parameters()]
        self._adam = torch.optim.Adam(parameters, lr=settings.training.lr, fused=True)

    def group_step(self, batch: Batch) -> None:
        """Our own model: what is within a user is computed once for all of her items."""
        user_width = batch.user_ids.size
        ids = self._tensor(np.concatenate([batch.user_ids.ravel(), batch.item_ids.ravel()]).astype(np.int64))
        rows = self._model.transform_rows(functional.embedding(ids, self._table))
        place = torch.arange(len(ids), device=self._device)
        user_side = Attributes(place[:user_width].view(batch.user_ids.shape), self._tensor(batch.user_x))
        item_side = Attributes(place[user_width:].view(batch.item_ids.shape), self._tensor(batch.item_x))
        self._update(self._model.scores(rows, user_side, item_side), batch)

    def flat_step(self, batch: Batch) -> None:
        """Instance after instance, each with all of its attributes; the K x K sums of each by one matrix product."""
        rows, attributes = self._instances(batch)
        assert isinstance(self._model, GMLFM)
        self._update(self._model(rows, attributes), batch)

    def outer_step(self, batch: Batch) -> None:
        """The same as the equations are written: outer products v z^T, summed over the attributes."""
        rows, attributes = self._instances(batch)
        model, shape, x = self._model, attributes.x.shape, attributes.x
        assert isinstance(model, GMLFM)
        assert model.h is not None
        v = rows[:, 1:].view(*shape, model.k)
        z, scaled = model.transform(v), v * x.unsqueeze(-1)
        s, t = scaled.sum(1), (scaled * (z * z).sum(-1, keepdim=True)).sum(1)
        p = (scaled.unsqueeze(-1) * z.unsqueeze(-2)).sum(1)
        second = (s * model.h * t).sum(-1) - ((p * p).sum(-1) * model.h).sum(-1)
        self._update(model.bias + (rows[:, 0].view(shape) * x).sum(1) + second, batch)

    def _instances(self, batch: Batch) -> tuple[Tensor, Attributes]:
        """The rows of every instance's attributes, one after another: (B F, 1 + K)."""
        shape = (*batch.labels.shape, batch.user_ids.shape[1])
        sides = [(batch.user_ids, batch.item_ids), (batch.user_x, batch.item_x)]
        ids, x = (np.concatenate([np.broadcast_to(one[:, None], shape), two], axis=2) for one, two in sides)
        flat = self._tensor(ids.astype(np.int64)).view(-1)
        places = torch.arange(len(flat), device=self._device).view(-1, ids.shape[2])
        return functional.embedding(flat, self._table), Attributes(places, self._tensor(x).view(places.shape))

    def _update(self, scores: Tensor, batch: Batch) -> None:
        loss = self._objective(scores.view(batch.labels.shape), self._tensor(batch.labels), None)
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()

    def _tensor(self, values: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)


def _joined(batches: list[Batch]) -> Batch:
    return Batch(
        np.concatenate([one.user_ids for one in batches]),
        np.concatenate([one.user_x for one in batches]),
        np.concatenate([one.item_ids for one in batches]),
        np.concatenate([one.item_x for one in batches]),
        np.concatenate([one.labels for one in batches]),
        None,
    )
