"""The engine on a GPU: occurrences are sorted for many steps at once, steps are recorded as a CUDA graph and replayed without
the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from gmlfm.errors import DataError
from gmlfm.kernels.codes import (
    ACTIVATION_CODES,
    COSINE,
    IDENTITY,
    LOSS_CODES,
    NO_DISTANCE,
    OPTIMISER_CODES,
    SQUARED_DISTANCE,
    loss_terms,
)
from gmlfm.kernels.spec import KernelSpec, PairsSpec, SumsSpec
from gmlfm.training.engines.device_batch import DeviceBatch
from gmlfm.training.engines.launch import RowTensors, Sizes, StepFunction, StepLaunch
from gmlfm.training.engines.occurrences import StepOccurrences, sort_occurrences
from gmlfm.training.engines.packed_params import PackedParams
from gmlfm.training.engines.packing import NoKernelError, bias_corrections, check_spec, mean_loss
from gmlfm.training.rows import RowOptimiser
from gmlfm.training.sampling.groups import Batch

if TYPE_CHECKING:
    from gmlfm.training.options import TrainingOptions

_STEPS_PER_GRAPH = 32
_MOST_OCCURRENCES = 2**24  # sorted at once
_SORTED = ("slots", "positions", "rows", "first_slot", "piece_starts", "piece_ends", "first_piece", "sources")


class CudaEngine:
    """graphs: False takes step after step, for a machine without CUDA, on which Triton can be interpreted."""

    takes_device_batches = True

    def __init__(
        self,
        spec: KernelSpec,
        rows: RowOptimiser,
        dense: torch.optim.Optimizer,
        options: TrainingOptions,
        graphs: bool = True,
    ) -> None:
        self.function = _step_function(spec, LOSS_CODES[options.loss], OPTIMISER_CODES[options.optimiser], rows.weight_decay)
        self._graphs, self._device, self._lr, self._ids_only = graphs, rows.table.device, rows.lr, spec.ids_only
        self._packed = PackedParams(spec.parameters, dense)
        state, no_state = rows.state(), torch.zeros(1, device=self._device)
        first_moment = state.get("first", state.get("squares", no_state))
        self._rows = RowTensors(rows.table, first_moment, state.get("second", no_state), state.get("count", no_state))
        corrections = bias_corrections()
        self._bias_correction = torch.from_numpy(np.concatenate(corrections)).to(self._device), len(corrections[0])
        self._launches: dict[tuple[int, Sizes], tuple[StepLaunch, dict[int, Any]]] = {}  # with the graphs recorded of each

    def run(self, batch: Batch | DeviceBatch, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        """After many steps their mean loss and how many instances they had."""
        uploaded = batch if isinstance(batch, DeviceBatch) else DeviceBatch.upload(batch, self._device)
        if self._ids_only:
            uploaded = uploaded.ids_only()
        n_groups, size = len(uploaded), min(groups_per_step, len(uploaded))
        occurrences_per_group = uploaded.user_ids.shape[1] + uploaded.item_ids[0].numel()
        groups_per_run = max(1, _MOST_OCCURRENCES // (size * occurrences_per_group)) * size
        function = self.function if loss is None else self.function._replace(loss=LOSS_CODES[loss])
        for start in range(0, n_groups, groups_per_run):
            stop = min(start + groups_per_run, n_groups)
            n_steps = -(-(stop - start) // size)
            losses = self._run(function, uploaded.padded_slice(start, stop, n_steps * size), n_steps, size)
            yield mean_loss(losses, stop - start, size), (stop - start) * uploaded.labels.shape[1]

    def _run(self, function: StepFunction, batch: DeviceBatch, n_steps: int, size: int) -> npt.NDArray[np.float32]:
        """The steps' losses; the last of them no number where one was not."""
        ids = torch.cat([batch.user_ids.view(n_steps, -1), batch.item_ids.view(n_steps, -1)], dim=1)
        n_rows = len(self._rows.table)
        if not 0 <= int(ids.min()) <= int(ids.max()) < n_rows:
            raise DataError(f"a batch names row {int(ids.max()):,}; the table has {n_rows:,}.")
        occurrences = sort_occurrences(ids, n_rows)
        terms = loss_terms(function.loss, batch.labels.shape[1])
        launch, graphs = self._launch_for(function, batch, occurrences, n_steps, size)
        for name in _SORTED:
            launch.write(name, getattr(occurrences, name))
        for name in ("user_x", "item_x", "labels", "weights"):
            launch.write(name, getattr(batch, name))
        launch.write("shares", 1.0 / (batch.weights.view(n_steps, size).sum(1) * terms))
        launch.step.zero_()
        launch.alive.fill_(1)
        self._take_steps(launch, graphs, n_steps)
        losses: npt.NDArray[np.float32] = launch.buffers["losses"][:n_steps].cpu().numpy().copy()
        self._packed.sync_optimiser()
        if not bool(launch.alive):
            losses[-1] = np.nan
        return losses

    def _launch_for(
        self, function: StepFunction, batch: DeviceBatch, occurrences: StepOccurrences, n_steps: int, size: int
    ) -> tuple[StepLaunch, dict[int, Any]]:
        """The launch of the last call where it fits, else a new one."""
        sizes = Sizes(size, batch.user_ids.shape[1], batch.labels.shape[1], batch.item_ids.shape[2], occurrences.in_pieces)
        key = function.loss, sizes
        launch = self._launches.get(key)
        if launch is None or not launch[0].fits(sizes, occurrences, n_steps):
            state = (self._rows, self._packed, self._bias_correction, self._lr)
            launch = StepLaunch(function, *state, sizes, occurrences, n_steps), {}
            self._launches[key] = launch
        return launch

    def _take_steps(self, launch: StepLaunch, graphs: dict[int, Any], n_steps: int) -> None:
        n_taken = 0
        if not self._graphs:
            for _ in range(n_steps):
                launch.take_step()
            return
        if not graphs:
            # These compile what is not compiled yet, which cannot be recorded.
            for _ in range(min(2, n_steps)):
                launch.take_step()
                n_taken += 1
            graphs |= {steps: self._record(launch, steps) for steps in (1, _STEPS_PER_GRAPH)}
        while n_taken < n_steps:
            steps = _STEPS_PER_GRAPH if n_steps - n_taken >= _STEPS_PER_GRAPH else 1
            graphs[steps].replay()
            n_taken += steps

    def _record(self, launch: StepLaunch, steps: int) -> Any:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(steps):
                launch.take_step()
        return graph


def _step_function(spec: KernelSpec, loss: int, optimiser: int, weight_decay: float) -> StepFunction:
    check_spec(spec, (PairsSpec, SumsSpec))
    if isinstance(spec, PairsSpec):
        distance, activation = COSINE if spec.cosine else SQUARED_DISTANCE, ACTIVATION_CODES[spec.activation]
        layers = (spec.n_layers, activation, spec.has_biases, spec.unit)
        return StepFunction(spec.k, *layers, distance, loss, optimiser, weight_decay)
    assert isinstance(spec, SumsSpec)
    if spec.translated or not spec.linear or spec.user_l2 or spec.item_l2:
        raise NoKernelError("translations, scores without linear weights and L2 by instance have no kernel on a GPU")
    return StepFunction(spec.k, 0, IDENTITY, False, False, NO_DISTANCE, loss, optimiser, weight_decay)
