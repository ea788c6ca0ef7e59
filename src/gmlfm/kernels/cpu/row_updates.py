"""Updates of many distinct rows, part by part: the twin of RowOptimiser.step that reads and writes each number once."""

from __future__ import annotations

from gmlfm.kernels.cpu.arrays import Floats, Longs, Rows, Rule
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.prefetch import prefetch_row
from gmlfm.kernels.cpu.rows import update

_AHEAD = 6  # rows


@compiled
def update_rows(rule: Rule, rows: Rows, numbers: Longs, gradients: Floats, begin: int, end: int) -> None:
    """numbers: distinct rows of the table, gradients: (U, width) beside them; of these the places begin to end."""
    table, updates, n_rows = rows.table, rows.updates, rows.table.shape[0]
    first_moment, second_moment = rows.first_moment, rows.second_moment
    optimiser, lr, weight_decay = rule.optimiser, rule.lr, rule.weight_decay
    first_correction, second_correction = rule.first_correction, rule.second_correction
    for place in range(begin, end):
        if place + _AHEAD < end:
            row = numbers[place + _AHEAD]
            prefetch_row(table, row)
            # One by one: a loop over arrays would count references to each, at half the cost of the update.
            if first_moment.shape[0] == n_rows:
                prefetch_row(first_moment, row)
            if second_moment.shape[0] == n_rows:
                prefetch_row(second_moment, row)
            if updates.shape[0] == n_rows:
                prefetch_row(updates, row)
        update(
            optimiser,
            lr,
            first_correction,
            second_correction,
            table,
            first_moment,
            second_moment,
            updates,
            numbers[place],
            gradients,
            place,
            weight_decay,
        )
