"""Operations and bytes of a step, and the rates of the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from gmlfm.bench import roofline
from gmlfm.bench.contenders import Contender, Task
from gmlfm.bench.roofline import Sgemm, counted, measured

MakeTask = Callable[..., Task]


def test_operations_are_counted_from_the_batches(make_task: MakeTask) -> None:
    contender = Contender(make_task())
    counts = counted(contender)
    assert counts is not None
    step = next(contender.batches[0].steps(contender.groups_per_step))
    n_pairs = 0
    for group in range(len(step)):
        n_user = int((step.user_x[group] != 0).sum())
        n_items = (step.item_x[group] != 0).sum(1).tolist()
        n_pairs += n_user * (n_user - 1) // 2 + sum(n * (n - 1) // 2 + n_user * n for n in n_items)
    n_rows = len(np.unique(np.r_[step.user_ids.ravel(), step.item_ids.ravel()]))
    expected = (12 * 6 * n_pairs + (6 * 36 + 12 * 7) * n_rows) / step.labels.size
    assert counts["operations"] == pytest.approx(expected, rel=0.05)  # the average over eight steps against the first
    assert counts["bytes"] == pytest.approx(
        (4 * 6 * 7 * n_rows + 8 * (step.user_ids.size + step.item_ids.size)) / step.labels.size, rel=0.05
    )


def test_sums_are_cheaper_than_pairs_and_what_has_no_kernel_is_not_counted(make_task: MakeTask) -> None:
    alone = {"history": "none"}
    pairs, sums = (counted(Contender(replace(make_task(model=name), settings=alone))) for name in ("gml-fm-md", "fm"))
    assert pairs is not None
    assert sums is not None
    assert sums["operations"] < pairs["operations"]
    for name in ("nfm", "transfm", "mf"):
        assert counted(Contender(replace(make_task(model=name), settings=alone))) is None


def test_rates_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On small matrices: what the machine reaches is not the test's matter."""
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, device: randn(*(min(n, 64) for n in shape), device=device))
    seconds = iter(np.arange(0.0, 100.0, 0.5))
    monkeypatch.setattr("gmlfm.bench.roofline.time.perf_counter", lambda: next(seconds))
    assert measured("cpu") == {"operations_per_second": 2.0 * 2048**3 / 0.5, "bytes_per_second": 8.0 * 64 / 0.5}


def test_a_large_product_is_timed_by_the_clock_and_by_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "SGEMM_SIZE", 8)
    product = Sgemm("cpu")
    for name, values in (("perf_counter", [1.0, 3.0]), ("process_time", [0.0, 0.5])):
        monkeypatch.setattr(f"gmlfm.bench.roofline.time.{name}", iter(values).__next__)
    assert product() == {"operations": 2.0 * 8**3, "seconds": 2.0, "busy": 0.5}
