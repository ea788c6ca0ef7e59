from __future__ import annotations

import json
from pathlib import Path

import pytest

from gmlfm.cli import doctor, main
from gmlfm.kernels.cpu import jit


def test_it_tells_threads_quota_engines_and_the_cache(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gmlfm.machine.cpu_quota", lambda: 1.5)
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert set(findings) == {"versions", "processors", "engines", "kernel cache", "memory"}
    assert findings["processors"]["container's quota"] == 1.5
    assert findings["processors"]["usable"] in (1, 2)
    assert findings["engines"]["cpu"] == "compiled kernels (numba)"
    assert {"folder", "used", "compiled kernels", "megabytes"} == set(findings["kernel cache"])
    assert findings["versions"]["torch"]


def test_it_is_shown_to_people_with_advice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GMLFM_KERNEL_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(doctor, "_load", lambda: 1.2)
    monkeypatch.setattr("gmlfm.machine.cpu_quota", lambda: 0.5)
    jit._cache.cache_clear()
    try:
        assert main(["doctor"]) == 0
    finally:
        jit._cache.cache_clear()
    shown = " ".join(capsys.readouterr().out.split())
    assert "threads by default" in shown
    assert "note other work keeps processors busy" in shown
    assert "note the container's quota is less than one processor" in shown
    assert "note compiled kernels are not kept" in shown
