"""One step on a GPU as a row of kernels, and the places in which they read and write.

The places stay where they are from step to step, so that a step can be recorded once and played again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gmlfm.kernels.gpu.groups import walk_groups
from gmlfm.kernels.gpu.sums import sum_partials, sum_pieces, sum_rows
from gmlfm.kernels.gpu.transform import activate_rows, gather_rows, through_layer, transform_rows
from gmlfm.kernels.gpu.updates import finish_rows, update_line, update_rows
from gmlfm.training.engines.occurrences import Plan
from gmlfm.training.engines.packed_params import DenseLine

_ROWS_PER_PROGRAM = 16
_MOST_PARTIALS = 128  # programs that share in a layer's slopes
_WIDEST_MATRIX = 128  # a larger one does not fit a program


class Function(NamedTuple):
    """What is computed. distance: 0 none (an FM), 1 squared, 2 cosine; numbers as gmlfm.training.engines.packing has them."""

    k: int
    layers: int
    activation: int
    biased: bool
    unit: bool
    distance: int
    objective: int
    optimiser: int
    weight_decay: float


@dataclass(frozen=True)
class RowTensors:
    """The table and what its optimiser keeps; one number where it keeps no such thing."""

    table: Tensor
    first: Tensor
    second: Tensor
    updates: Tensor


class Sizes(NamedTuple):
    """groups a step, attributes a user, items a group, attributes an item; in_pieces: whether hot rows are summed in pieces."""

    groups: int
    user_side: int
    group: int
    item_side: int
    in_pieces: bool


class Launch:
    """A step for batches of given sizes, of at most so many distinct rows and pieces, of runs of at most n_steps steps."""

    def __init__(
        self,
        function: Function,
        rows: RowTensors,
        line: DenseLine,
        fading: tuple[Tensor, int],
        lr: float,
        sizes: Sizes,
        plan: Plan,
        n_steps: int,
    ) -> None:
        self.function, self.sizes, self.n_steps = function, sizes, n_steps
        self._table, self._line, self._fading = rows, line, fading
        self._device = rows.table.device
        most = min(int(plan.most_slots * 1.05) + 1, plan.slots.shape[1])
        self.most_slots = -(-most // _ROWS_PER_PROGRAM) * _ROWS_PER_PROGRAM
        self.most_pieces = int(plan.most_pieces * 1.1) + 16
        blocks = self.most_slots // _ROWS_PER_PROGRAM
        self._turns = -(-blocks // _MOST_PARTIALS)
        self._row_programs = -(-blocks // self._turns)
        self.most_slots = self._row_programs * self._turns * _ROWS_PER_PROGRAM
        self._wide = max(16, _power(function.k))
        self._has_z = function.distance > 0
        self._in_one = function.layers == 1 and self._wide <= _WIDEST_MATRIX
        self._per_item = _power(sizes.item_side)
        self._items = max(1, 16 // self._per_item)  # a matrix product takes sixteen rows or more
        tile = max(16, _power(sizes.user_side), self._items * self._per_item) * self._wide
        self._warps = 2 if tile <= 1024 else 4 if tile <= 2048 else 8
        self._lr = torch.tensor([lr], device=self._device)
        self.step, self.alive, self._ticket = (self._ints(1) for _ in range(3))
        self.held = self._places(plan.slots.shape[1])

    def fits(self, sizes: Sizes, plan: Plan, n_steps: int) -> bool:
        enough = plan.most_slots <= self.most_slots and plan.most_pieces <= self.most_pieces
        return sizes == self.sizes and n_steps <= self.n_steps and enough

    def put(self, name: str, values: Tensor) -> None:
        self.held[name][: values.numel()].copy_(values.flatten())

    def take(self) -> None:
        """One step; its number is on the device, and is one more afterwards."""
        self._transform()
        self._walk_groups()
        self._sum_by_row()
        self._finish()

    def _transform(self) -> None:
        held, function, k = self.held, self.function, self.function.k
        grid, rows = (self.most_slots // _ROWS_PER_PROGRAM,), {"K": k, "WIDE": self._wide, "EACH": _ROWS_PER_PROGRAM}
        features, gathered = held["features"], (self.step, held["first_slot"], held["rows"], self._table.table)
        outside = held["z"], held["inverses"]
        if self._in_one:
            transform_rows[grid](
                *gathered, self._line.values, features[0], held["linear"], features[1], *outside, **rows,
                ACTIVATION=function.activation, BIASED=function.biased, UNIT=function.unit, PRECISION="tf32x3",
            )  # fmt: skip
            return
        gather_rows[grid](*gathered, features[0], held["linear"], **rows)
        matrices, biases = self._matrices(self._line.values), self._biases(self._line.values)
        for at in range(function.layers):
            source, target, turned = features[at], features[at + 1], matrices[at].T
            if function.biased:
                torch.addmm(biases[at], source, turned, out=target)
            else:
                torch.mm(source, turned, out=target)
            last = at == function.layers - 1
            activate_rows[grid](target, *outside, **rows, ACTIVATION=function.activation, LAST=last, UNIT=function.unit)
        if self._has_z and function.layers == 0:
            activate_rows[grid](features[0], *outside, **rows, ACTIVATION=0, LAST=True, UNIT=function.unit)

    def _walk_groups(self) -> None:
        held, function, sizes = self.held, self.function, self.sizes
        walk_groups[(sizes.groups,)](
            self.step, held["slots"], held["positions"], held["user_x"], held["item_x"], held["labels"],
            held["weights"], held["shares"], held["features"][0], held["z"], held["linear"], self._line.values,
            held["by_occurrence_w"], held["by_occurrence_v"], held["by_occurrence_z"], held["partials"],
            held["loss_partials"],
            GROUPS=sizes.groups, F_USER=sizes.user_side, F_ITEM=sizes.item_side, SIZE=sizes.group, K=function.k,
            A=max(16, _power(sizes.user_side)), M=self._items * self._per_item, ITEMS=self._items, WIDE=self._wide,
            DISTANCE=function.distance, OBJECTIVE=function.objective, PRECISION="tf32x3",
            num_warps=self._warps, num_stages=1,
        )  # fmt: skip
        sum_partials[(1 + function.k if self._has_z else 1,)](
            self.step, self.alive, held["partials"], held["loss_partials"], held["line_gradient"], held["losses"],
            sizes.groups, WIDTH=1 + function.k, BLOCK=256,
        )  # fmt: skip

    def _sum_by_row(self) -> None:
        held, function = self.held, self.function
        sources = tuple(held[f"by_occurrence_{one}"] for one in "wvz")
        shape = {"K": function.k, "WIDE": self._wide, "Z": self._has_z, "num_warps": 2}
        pieces = held["piece_starts"], held["piece_ends"]
        if self.sizes.in_pieces:
            sums = tuple(held[f"by_piece_{one}"] for one in "wvz")
            sum_pieces[(self.most_pieces,)](self.step, held["first_piece"], *pieces, *sources, *sums, **shape)
            sources = sums
        sum_rows[(self.most_slots,)](
            self.step, held["first_slot"], held["first_piece"], held["sources"], *pieces, *sources,
            held["features"][function.layers], held["z"], held["inverses"], held["by_row_w"], held["by_row_v"],
            held["back"], **shape,
            ACTIVATION=function.activation if function.layers else 0, UNIT=function.unit, IN_PIECES=self.sizes.in_pieces,
        )  # fmt: skip

    def _finish(self) -> None:
        held, function, table, k = self.held, self.function, self._table, self.function.k
        fading, n_fading = self._fading
        place = (self.step, self.alive, self._lr, held["first_slot"], held["rows"])
        state = (*place, table.table, table.first, table.second, table.updates)
        choice = {"K": k, "N_FADING": n_fading, "OPTIMISER": function.optimiser}
        if self._in_one:
            finish_rows[(self._row_programs,)](
                *state, held["features"][0], held["by_row_w"], held["by_row_v"], held["back"], self._line.values,
                held["layer_partials"], fading, function.weight_decay, self._turns, **choice, WIDE=self._wide,
                EACH=_ROWS_PER_PROGRAM, BIASED=function.biased, PRECISION="tf32x3",
            )  # fmt: skip
        else:
            back = self._through_layers()
            update_rows[(self.most_slots,)](
                *state, held["by_row_w"], held["by_row_v"], back, fading, function.weight_decay, **choice,
                WIDE=max(16, _power(1 + k)), Z=self._has_z, num_warps=2,
            )  # fmt: skip
        line, n = self._line, len(self._line.values)
        update_line[(-(-n // 256),)](
            self.step, self.alive, self._lr, line.values, held["line_gradient"], line.first, line.second, line.updates,
            fading, self._ticket, held["layer_partials"], self._row_programs if self._in_one else 0, n,
            HEAD=1 + k, WIDTH=k * k + k, BLOCK=256, N_FADING=n_fading, OPTIMISER=function.optimiser,
        )  # fmt: skip

    def _through_layers(self) -> Tensor:
        """The layers' slopes, and what comes back to v."""
        held, function = self.held, self.function
        back, spare, features = held["back"], held["back_again"], held["features"]
        matrices, gradient = self._matrices(self._line.values), held["line_gradient"]
        for at in range(function.layers - 1, -1, -1):
            torch.mm(back.T, features[at], out=self._matrices(gradient)[at])
            if function.biased:
                torch.sum(back, 0, out=self._biases(gradient)[at])
            torch.mm(back, matrices[at], out=spare)
            back, spare = spare, back
            if at:
                n = back.numel()
                grid = (-(-n // 1024),)
                through_layer[grid](back, features[at], n, BLOCK=1024, ACTIVATION=function.activation)
        return back

    def _matrices(self, line: Tensor) -> Tensor:
        k, layers = self.function.k, self.function.layers
        return line[1 + k : 1 + k + layers * k * k].view(layers, k, k)

    def _biases(self, line: Tensor) -> Tensor:
        k, layers = self.function.k, self.function.layers
        begin = 1 + k + layers * k * k
        return line[begin : begin + layers * k].view(-1, k) if self.function.biased else line[:0]

    def _places(self, n: int) -> dict[str, Tensor]:
        """n: occurrences a step."""
        sizes, k, u, p, steps = self.sizes, self.function.k, self.most_slots, self.most_pieces, self.n_steps
        groups = steps * sizes.groups
        z = 1 if self._has_z else 0
        partials = self._row_programs * (k * k + k) if self._in_one else 1
        return {
            "slots": self._ints(steps * n),
            "positions": self._ints(steps * n),
            "rows": self._ints(steps * u),
            "sources": self._ints(steps * u + 1),
            "piece_starts": self._ints(steps * p),
            "piece_ends": self._ints(steps * p),
            "first_slot": self._ints(steps + 1),
            "first_piece": self._ints(steps + 1),
            "user_x": self._floats(groups * sizes.user_side),
            "item_x": self._floats(groups * sizes.group * sizes.item_side),
            "labels": self._floats(groups * sizes.group),
            "weights": self._floats(groups),
            "shares": self._floats(steps),
            "losses": self._floats(steps),
            "features": self._floats(self.function.layers + 1, u, k),
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
            "back_again": self._floats(u, k),
            "partials": self._floats(sizes.groups, 1 + k),
            "loss_partials": self._floats(sizes.groups),
            "line_gradient": self._floats(len(self._line.values)),
            "layer_partials": self._floats(partials),
        }

    def _floats(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self._device)

    def _ints(self, length: int) -> Tensor:
        return torch.zeros(length, dtype=torch.int32, device=self._device)


def _power(n: int) -> int:
    """The next power of two."""
    return 1 << max(0, n - 1).bit_length()
