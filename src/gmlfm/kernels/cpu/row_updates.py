"""Updates of many distinct rows, part by part: the twin of RowOptimiser.step that reads and writes each number once."""

from __future__ import annotations

from gmlfm.kernels.cpu.arrays import Floats, Longs, Rows, Rule
from gmlfm.kernels.cpu.jit import compiled
from gmlfm.kernels.cpu.rows import update_row


@compiled
def update_rows(rule: Rule, rows: Rows, numbers: Longs, gradients: Floats, begin: int, end: int) -> None:
    """numbers: distinct rows of the table, gradients: (U, width) beside them; of these the places begin to end."""
    for place in range(begin, end):
        update_row(rule, rows, numbers[place], gradients, place)
