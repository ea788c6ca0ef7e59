"""One step on a GPU as a sequence of kernels, and the buffers that they read and write.

The buffers stay where they are from step to step, so that a step can be recorded once and replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gmlfm.kernels.codes import IDENTITY, NO_DISTANCE
from gmlfm.kernels.gpu.groups import walk_groups
from gmlfm.kernels.gpu.sums import sum_partials, sum_pieces, sum_rows
from gmlfm.kernels.gpu.transform import activate_rows, gather_rows, through_layer, transform_rows
from gmlfm.kernels.gpu.updates import finish_rows, update_packed, update_rows
from gmlfm.training.engines.occurrences import StepOccurrences
from gmlfm.training.engines.packed_params import PackedParams

_ROWS_PER_PROGRAM = 16
_MOST_PARTIALS = 128  # programs that share in a layer's gradients
_WIDEST_MATRIX = 128  # a larger one does not fit a program


class StepFunction(NamedTuple):
    """What a step computes; activation, distance, loss and optimiser as gmlfm.kernels.codes numbers them."""

    k: int
    n_layers: int
    activation: int
    has_biases: bool
    unit: bool
    distance: int
    loss: int
    optimiser: int
    weight_decay: float


@dataclass(frozen=True)
class RowTensors:
    """The table and its optimiser's state; one number where the optimiser has no such state."""

    table: Tensor
    first_moment: Tensor
    second_moment: Tensor
    updates: Tensor


class Sizes(NamedTuple):
    """in_pieces: whether hot rows are summed in pieces."""

    groups_per_step: int
    user_width: int
    group_size: int
    item_width: int
    in_pieces: bool


class StepLaunch:
    """A step for batches of given sizes, of at most so many distinct rows and pieces, of runs of at most n_steps steps.

    bias_correction: Adam's two tables one after another, and the length of one.
    """

    def __init__(
        self,
        function: StepFunction,
        rows: RowTensors,
        packed: PackedParams,
        bias_correction: tuple[Tensor, int],
        lr: float,
        sizes: Sizes,
        occurrences: StepOccurrences,
        n_steps: int,
    ) -> None:
        self.function, self.sizes, self.n_steps = function, sizes, n_steps
        self._rows, self._packed, self._bias_correction = rows, packed, bias_correction
        self._device = rows.table.device
        most_slots = min(int(occurrences.most_slots * 1.05) + 1, occurrences.slots.shape[1])
        self.most_pieces = int(occurrences.most_pieces * 1.1) + 16
        n_blocks = -(-most_slots // _ROWS_PER_PROGRAM)
        self._blocks_per_program = -(-n_blocks // _MOST_PARTIALS)
        self._row_programs = -(-n_blocks // self._blocks_per_program)
        self.most_slots = self._row_programs * self._blocks_per_program * _ROWS_PER_PROGRAM
        self._wide = max(16, _power_of_two(function.k))
        self._has_z = function.distance != NO_DISTANCE
        self._fused = function.n_layers == 1 and self._wide <= _WIDEST_MATRIX
        self._rows_per_item = _power_of_two(sizes.item_width)
        self._items = max(1, 16 // self._rows_per_item)  # a matrix product takes sixteen rows or more
        tile = max(16, _power_of_two(sizes.user_width), self._items * self._rows_per_item) * self._wide
        self._warps = 2 if tile <= 1024 else 4 if tile <= 2048 else 8
        self._lr = torch.tensor([lr], device=self._device)
        self.step, self.alive, self._ticket = (self._ints(1) for _ in range(3))
        self.buffers = self._make_buffers(occurrences.slots.shape[1])

    def fits(self, sizes: Sizes, occurrences: StepOccurrences, n_steps: int) -> bool:
        enough = occurrences.most_slots <= self.most_slots and occurrences.most_pieces <= self.most_pieces
        return sizes == self.sizes and n_steps <= self.n_steps and enough

    def write(self, name: str, values: Tensor) -> None:
        self.buffers[name][: values.numel()].copy_(values.flatten())

    def take_step(self) -> None:
        """One step; its number is on the device, and is one more afterwards."""
        self._transform()
        self._walk_groups()
        self._sum_by_row()
        self._finish()

    def _transform(self) -> None:
        buffers, function, k = self.buffers, self.function, self.function.k
        grid, rows = (self.most_slots // _ROWS_PER_PROGRAM,), {"K": k, "WIDE": self._wide, "EACH": _ROWS_PER_PROGRAM}
        features, gathered = buffers["features"], (self.step, buffers["first_slot"], buffers["rows"], self._rows.table)
        z_buffers = buffers["z"], buffers["inverses"]
        if self._fused:
            transform_rows[grid](
                *gathered, self._packed.values, features[0], buffers["linear"], features[1], *z_buffers, **rows,
                ACTIVATION=function.activation, HAS_BIASES=function.has_biases, UNIT=function.unit, PRECISION="tf32x3",
            )  # fmt: skip
            return
        gather_rows[grid](*gathered, features[0], buffers["linear"], **rows)
        matrices, biases = self._matrices(self._packed.values), self._biases(self._packed.values)
        for layer in range(function.n_layers):
            source, target, transposed = features[layer], features[layer + 1], matrices[layer].T
            if function.has_biases:
                torch.addmm(biases[layer], source, transposed, out=target)
            else:
                torch.mm(source, transposed, out=target)
            last = layer == function.n_layers - 1
            activate_rows[grid](target, *z_buffers, **rows, ACTIVATION=function.activation, LAST=last, UNIT=function.unit)
        if self._has_z and function.n_layers == 0:
            activate_rows[grid](features[0], *z_buffers, **rows, ACTIVATION=IDENTITY, LAST=True, UNIT=function.unit)

    def _walk_groups(self) -> None:
        buffers, function, sizes = self.buffers, self.function, self.sizes
        walk_groups[(sizes.groups_per_step,)](
            self.step, buffers["slots"], buffers["positions"], buffers["user_x"], buffers["item_x"], buffers["labels"],
            buffers["weights"], buffers["shares"], buffers["features"][0], buffers["z"], buffers["linear"], self._packed.values,
            buffers["by_occurrence_w"], buffers["by_occurrence_v"], buffers["by_occurrence_z"], buffers["partials"],
            buffers["loss_partials"],
            GROUPS=sizes.groups_per_step, F_USER=sizes.user_width, F_ITEM=sizes.item_width, SIZE=sizes.group_size, K=function.k,
            A=max(16, _power_of_two(sizes.user_width)), M=self._items * self._rows_per_item, ITEMS=self._items, WIDE=self._wide,
            DISTANCE=function.distance, LOSS=function.loss, PRECISION="tf32x3",
            num_warps=self._warps, num_stages=1,
        )  # fmt: skip
        sum_partials[(1 + function.k if self._has_z else 1,)](
            self.step, self.alive, buffers["partials"], buffers["loss_partials"], buffers["packed_grads"], buffers["losses"],
            sizes.groups_per_step, WIDTH=1 + function.k, BLOCK=256,
        )  # fmt: skip

    def _sum_by_row(self) -> None:
        buffers, function = self.buffers, self.function
        sources = tuple(buffers[f"by_occurrence_{letter}"] for letter in "wvz")
        shape = {"K": function.k, "WIDE": self._wide, "HAS_Z": self._has_z, "num_warps": 2}
        pieces = buffers["piece_starts"], buffers["piece_ends"]
        if self.sizes.in_pieces:
            sums = tuple(buffers[f"by_piece_{letter}"] for letter in "wvz")
            sum_pieces[(self.most_pieces,)](self.step, buffers["first_piece"], *pieces, *sources, *sums, **shape)
            sources = sums
        sum_rows[(self.most_slots,)](
            self.step, buffers["first_slot"], buffers["first_piece"], buffers["sources"], *pieces, *sources,
            buffers["features"][function.n_layers], buffers["z"], buffers["inverses"], buffers["by_row_w"], buffers["by_row_v"],
            buffers["back"], **shape,
            ACTIVATION=function.activation if function.n_layers else IDENTITY, UNIT=function.unit,
            IN_PIECES=self.sizes.in_pieces,
        )  # fmt: skip

    def _finish(self) -> None:
        buffers, function, rows, k = self.buffers, self.function, self._rows, self.function.k
        bias_correction, n_counts = self._bias_correction
        slots = (self.step, self.alive, self._lr, buffers["first_slot"], buffers["rows"])
        state = (*slots, rows.table, rows.first_moment, rows.second_moment, rows.updates)
        optimiser = {"K": k, "N_COUNTS": n_counts, "OPTIMISER": function.optimiser}
        if self._fused:
            finish_rows[(self._row_programs,)](
                *state, buffers["features"][0], buffers["by_row_w"], buffers["by_row_v"], buffers["back"], self._packed.values,
                buffers["layer_partials"], bias_correction, function.weight_decay, self._blocks_per_program, **optimiser,
                WIDE=self._wide, EACH=_ROWS_PER_PROGRAM, HAS_BIASES=function.has_biases, PRECISION="tf32x3",
            )  # fmt: skip
        else:
            back = self._through_layers()
            update_rows[(self.most_slots,)](
                *state, buffers["by_row_w"], buffers["by_row_v"], back, bias_correction, function.weight_decay, **optimiser,
                WIDE=max(16, _power_of_two(1 + k)), HAS_Z=self._has_z, num_warps=2,
            )  # fmt: skip
        packed, n = self._packed, len(self._packed.values)
        update_packed[(-(-n // 256),)](
            self.step, self.alive, self._lr, packed.values, buffers["packed_grads"], packed.first_moment,
            packed.second_moment, packed.updates, bias_correction, self._ticket, buffers["layer_partials"],
            self._row_programs if self._fused else 0, n,
            HEAD=1 + k, WIDTH=k * k + k, BLOCK=256, N_COUNTS=n_counts, OPTIMISER=function.optimiser,
        )  # fmt: skip

    def _through_layers(self) -> Tensor:
        """The layers' gradients; returns that at v."""
        buffers, function = self.buffers, self.function
        back, spare, features = buffers["back"], buffers["spare_back"], buffers["features"]
        matrices, packed_grads = self._matrices(self._packed.values), buffers["packed_grads"]
        for layer in range(function.n_layers - 1, -1, -1):
            torch.mm(back.T, features[layer], out=self._matrices(packed_grads)[layer])
            if function.has_biases:
                torch.sum(back, 0, out=self._biases(packed_grads)[layer])
            torch.mm(back, matrices[layer], out=spare)
            back, spare = spare, back
            if layer:
                n = back.numel()
                grid = (-(-n // 1024),)
                through_layer[grid](back, features[layer], n, BLOCK=1024, ACTIVATION=function.activation)
        return back

    def _matrices(self, packed: Tensor) -> Tensor:
        k, n_layers = self.function.k, self.function.n_layers
        return packed[1 + k : 1 + k + n_layers * k * k].view(n_layers, k, k)

    def _biases(self, packed: Tensor) -> Tensor:
        k, n_layers = self.function.k, self.function.n_layers
        begin = 1 + k + n_layers * k * k
        return packed[begin : begin + n_layers * k].view(-1, k) if self.function.has_biases else packed[:0]

    def _make_buffers(self, n: int) -> dict[str, Tensor]:
        """n: occurrences a step."""
        sizes, k, u, p, steps = self.sizes, self.function.k, self.most_slots, self.most_pieces, self.n_steps
        groups = steps * sizes.groups_per_step
        z = 1 if self._has_z else 0
        partials = self._row_programs * (k * k + k) if self._fused else 1
        return {
            "slots": self._ints(steps * n),
            "positions": self._ints(steps * n),
            "rows": self._ints(steps * u),
            "sources": self._ints(steps * u + 1),
            "piece_starts": self._ints(steps * p),
            "piece_ends": self._ints(steps * p),
            "first_slot": self._ints(steps + 1),
            "first_piece": self._ints(steps + 1),
            "user_x": self._floats(groups * sizes.user_width),
            "item_x": self._floats(groups * sizes.group_size * sizes.item_width),
            "labels": self._floats(groups * sizes.group_size),
            "weights": self._floats(groups),
            "shares": self._floats(steps),
            "losses": self._floats(steps),
            "features": self._floats(self.function.n_layers + 1, u, k),
            "linear": self._floats(u),
            "z": self._floats(u * z + 1, k),
            "inverses": self._floats(u),
            "by_occurrence_w": self._floats(n),
            "by_occurrence_v": self._floats(n, k),
            "by_occurrence_z": self._floats(n * z + 1, k),
            "by_piece_w": self._floats(p),
            "by_piece_v": self._floats(p, k),
            "by_piece_z": self._floats(p * z + 1, k),
            "by_row_w": self._floats(u),
            "by_row_v": self._floats(u, k),
            "back": self._floats(u, k),
            "spare_back": self._floats(u, k),
            "partials": self._floats(sizes.groups_per_step, 1 + k),
            "loss_partials": self._floats(sizes.groups_per_step),
            "packed_grads": self._floats(len(self._packed.values)),
            "layer_partials": self._floats(partials),
        }

    def _floats(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self._device)

    def _ints(self, length: int) -> Tensor:
        return torch.zeros(length, dtype=torch.int32, device=self._device)


def _power_of_two(n: int) -> int:
    """The next power of two."""
    return 1 << max(0, n - 1).bit_length()
