"""Steps on a GPU: planned for many steps at once, recorded as a CUDA graph, played without a word from the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gmlfm.errors import DataError
from gmlfm.models.base import GradientModel, PairwiseModel
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.mf import MF
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.engines.launch import Function, Launch, RowTensors, Sizes
from gmlfm.training.engines.occurrences import Plan, plan_steps
from gmlfm.training.engines.packed_params import DenseLine
from gmlfm.training.engines.packing import OBJECTIVES, OPTIMISERS, fading, gml_line, mean_loss
from gmlfm.training.rows import RowOptimiser
from gmlfm.training.sampling.groups import Batch

if TYPE_CHECKING:
    from gmlfm.training.loop import TrainingOptions

_STEPS_PER_GRAPH = 32
_MOST_OCCURRENCES = 2**24  # planned at once
_PLANNED = ("slots", "positions", "rows", "first_slot", "piece_starts", "piece_ends", "first_piece", "sources")


def cannot(model: GradientModel) -> str:
    """Why a model has no steps of its own on a GPU; '' where it has."""
    if type(model) is FM or (type(model) is MF and model.biases and model.lambda_user == model.lambda_item == 0):
        return ""
    return gml_line(model).cannot if type(model) is GMLFM else f"{type(model).__name__} has no steps of its own on a GPU"


class DeviceSteps:
    """graphs: False takes step after step, for a machine without CUDA, on which Triton can be interpreted."""

    def __init__(
        self,
        model: GradientModel,
        rows: RowOptimiser,
        dense: torch.optim.Optimizer,
        options: TrainingOptions,
        graphs: bool = True,
    ) -> None:
        assert isinstance(model, (FM, MF, GMLFM))
        self._graphs, self._device, self._lr = graphs, rows.table.device, rows.lr
        self._ids_only = isinstance(model, PairwiseModel) and model.ids_only
        choices = OBJECTIVES.index(options.loss), OPTIMISERS.index(options.optimiser), rows.weight_decay
        parameters: list[nn.Parameter] = [model.bias]
        self.function = Function(model.k, 0, 0, False, False, 0, *choices)
        if isinstance(model, GMLFM):
            found = gml_line(model)
            parameters, distance = found.parameters, 2 if found.cosine else 1
            self.function = Function(model.k, found.layers, found.activation, found.biased, found.unit, distance, *choices)
        self._line = DenseLine(parameters, dense)
        state, nothing = rows.state(), torch.zeros(1, device=self._device)
        first = state.get("first", state.get("squares", nothing))
        self._rows = RowTensors(rows.table, first, state.get("second", nothing), state.get("count", nothing))
        tables = fading()
        self._fading = torch.from_numpy(np.concatenate(tables)).to(self._device), len(tables[0])
        self._launches: dict[tuple[int, Sizes], tuple[Launch, dict[int, Any]]] = {}  # with what was recorded of each

    def run(self, batch: Batch | DeviceBatch, size: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        """Steps of `size` groups: after many of them their mean loss and how many instances they had."""
        found = batch if isinstance(batch, DeviceBatch) else DeviceBatch.upload(batch, self._device)
        if self._ids_only:
            found = found.ids_alone()
        size = min(size, len(found))
        a_group = found.user_ids.shape[1] + found.item_ids[0].numel()
        at_once = max(1, _MOST_OCCURRENCES // (size * a_group)) * size
        for start in range(0, len(found), at_once):
            stop = min(start + at_once, len(found))
            n_steps = -(-(stop - start) // size)
            function = self.function if loss is None else self.function._replace(objective=OBJECTIVES.index(loss))
            losses = self._run(function, found.part(start, stop, n_steps * size), n_steps, size)
            yield mean_loss(losses, stop - start, size), (stop - start) * found.labels.shape[1]

    def _run(self, function: Function, batch: DeviceBatch, n_steps: int, size: int) -> npt.NDArray[np.float32]:
        """The steps' losses; the last of them no number where one was not."""
        occurrences = torch.cat([batch.user_ids.view(n_steps, -1), batch.item_ids.view(n_steps, -1)], dim=1)
        n_rows = len(self._rows.table)
        if not 0 <= int(occurrences.min()) <= int(occurrences.max()) < n_rows:
            raise DataError(f"a batch names row {int(occurrences.max()):,}; the table has {n_rows:,}.")
        plan = plan_steps(occurrences, n_rows)
        group = batch.labels.shape[1]
        terms = {2: group - 1, 3: 1}.get(function.objective, group)
        launch, recorded = self._launch_for(function, batch, plan, n_steps, size)
        for name in _PLANNED:
            launch.put(name, getattr(plan, name))
        for name in ("user_x", "item_x", "labels", "weights"):
            launch.put(name, getattr(batch, name))
        launch.put("shares", 1.0 / (batch.weights.view(n_steps, size).sum(1) * terms))
        launch.step.zero_()
        launch.alive.fill_(1)
        self._play(launch, recorded, n_steps)
        losses: npt.NDArray[np.float32] = launch.held["losses"][:n_steps].cpu().numpy().copy()
        self._line.tell_optimiser()
        if not bool(launch.alive):
            losses[-1] = np.nan
        return losses

    def _launch_for(
        self, function: Function, batch: DeviceBatch, plan: Plan, n_steps: int, size: int
    ) -> tuple[Launch, dict[int, Any]]:
        """The one at hand, or a new one where that is too small."""
        sizes = Sizes(size, batch.user_ids.shape[1], batch.labels.shape[1], batch.item_ids.shape[2], plan.in_pieces)
        key = function.objective, sizes
        held = self._launches.get(key)
        if held is None or not held[0].fits(sizes, plan, n_steps):
            held = Launch(function, self._rows, self._line, self._fading, self._lr, sizes, plan, n_steps), {}
            self._launches[key] = held
        return held

    def _play(self, launch: Launch, recorded: dict[int, Any], n_steps: int) -> None:
        done = 0
        if not self._graphs:
            for _ in range(n_steps):
                launch.take()
            return
        if not recorded:
            # These compile what is not compiled yet, which cannot be recorded.
            for _ in range(min(2, n_steps)):
                launch.take()
                done += 1
            recorded |= {steps: self._record(launch, steps) for steps in (1, _STEPS_PER_GRAPH)}
        while done < n_steps:
            steps = _STEPS_PER_GRAPH if n_steps - done >= _STEPS_PER_GRAPH else 1
            recorded[steps].replay()
            done += steps

    def _record(self, launch: Launch, steps: int) -> Any:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(steps):
                launch.take()
        return graph
