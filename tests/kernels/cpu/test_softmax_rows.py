from __future__ import annotations

import numpy as np

from gmlfm.kernels.cpu.softmax_rows import _NOTHING, _from_key, _key, exp_below_zero


def test_exponentials_are_right_to_the_last_bits_and_end_in_nothing() -> None:
    x = np.concatenate([np.linspace(-10, 0, 4001), [-1e-30, -1e-5]]).astype(np.float32)
    values = np.array([exp_below_zero(value) for value in x])
    np.testing.assert_allclose(values, np.exp(x.astype(np.float64)), rtol=1e-6)
    far = np.linspace(_NOTHING, -10, 2001).astype(np.float32)
    values = np.array([exp_below_zero(value) for value in far])
    np.testing.assert_allclose(values, np.exp(far.astype(np.float64)), rtol=5e-6)
    assert [exp_below_zero(np.float32(value)) for value in (-69.1, -1e4, -3e38, -np.inf)] == [0.0] * 4
    assert np.isnan(exp_below_zero(np.float32("nan")))


def test_keys_order_as_numbers_do_and_give_them_back() -> None:
    values = np.array([-np.inf, -3e38, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, np.inf], np.float32)
    keys = [int(_key(value)) for value in values]
    assert keys == sorted(keys)
    np.testing.assert_array_equal([_from_key(np.int32(key)) for key in keys], values)
