from __future__ import annotations

import numpy as np

from gmlfm.kernels.cpu.maths import tanh


def test_tanh_is_right_to_the_last_bits_and_stays_1_far_out() -> None:
    x = np.concatenate([np.linspace(-12, 12, 4001), [1e-30, -1e-5, 0.0, 50.0, -1e4]]).astype(np.float32)
    values = np.array([tanh(value) for value in x])
    np.testing.assert_allclose(values, np.tanh(x.astype(np.float64)), rtol=1e-6, atol=1e-12)
    assert np.isnan(tanh(np.float32("nan")))
