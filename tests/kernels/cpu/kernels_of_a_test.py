"""A kernel that processes of test_jit.py compile."""

from __future__ import annotations

import numpy as np

from gmlfm.kernels.cpu.jit import compiled


@compiled
def scaled(values: np.ndarray) -> np.ndarray:
    result = np.empty_like(values)
    for place in range(values.size):
        result[place] = values[place] * 3
    return result
