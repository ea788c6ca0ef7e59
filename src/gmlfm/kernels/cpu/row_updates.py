"""Updates of many distinct rows, part by part: the twin of RowOptimiser.step that reads and writes each number once."""

from __future__ import annotations

from gmlfm.kernels.cpu.arrays import Floats, Longs, Rows, Rule
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.rows import update


@compiled
def update_rows(rule: Rule, rows: Rows, numbers: Longs, gradients: Floats, begin: int, end: int) -> None:
    """numbers: distinct rows of the table, gradients: (U, width) beside them; of these the places begin to end."""
    table, updates = rows.table, rows.updates
    first_moment, second_moment = rows.first_moment, rows.second_moment
    optimiser, lr, weight_decay = rule.optimiser, rule.lr, rule.weight_decay
    first_correction, second_correction = rule.first_correction, rule.second_correction
    for place in range(begin, end):
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
