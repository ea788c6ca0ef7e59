from __future__ import annotations

from pathlib import Path

import pytest

from gmlfm import machine
from gmlfm.machine import cpu_quota, usable_processors


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(("text", "quota"), [("max 100000", None), ("150000 100000", 1.5), ("nonsense", None), ("", None)])
def test_the_quota_of_version_2(text: str, quota: float | None, tmp_path: Path) -> None:
    _write(tmp_path / "cpu.max", text)
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("text", "quota"), [("-1", None), ("50000", 0.5), ("200000", 2.0)])
def test_the_quota_of_version_1(text: str, quota: float | None, tmp_path: Path) -> None:
    _write(tmp_path / "cpu.cfs_quota_us", text)
    _write(tmp_path / "cpu.cfs_period_us", "100000")
    assert cpu_quota(tmp_path) == quota


def test_no_groups_are_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "nothing") is None


@pytest.mark.parametrize(("quota", "processors"), [(None, 4), (0.5, 1), (1.0, 1), (1.4, 1), (1.5, 2), (2.0, 2), (99.0, 4)])
def test_a_quota_bounds_the_processors(quota: float | None, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert usable_processors() == processors
