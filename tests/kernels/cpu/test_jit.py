"""How kernels are compiled: what is cached, and what the user is told about it."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest

from gmlfm.kernels.cpu import jit, losses
from gmlfm.progress import watched_by
from gmlfm.progress.displays import PlainDisplay


@pytest.fixture
def _fresh_cache() -> Iterator[None]:
    """The folder of compiled code is looked for again, before and after."""
    jit._cache.cache_clear()
    yield
    jit._cache.cache_clear()


@pytest.mark.usefixtures("_fresh_cache")
def test_the_first_call_says_that_it_compiles_and_a_cached_call_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GMLFM_KERNEL_CACHE", str(tmp_path))
    messages = []
    for _ in range(2):
        kernel = jit.compiled(losses.soft_plus.py_func)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "gmlfm"):
            jit.warn_if_compiling(kernel)
        messages.append(caplog.text)
        assert kernel(np.float32(0.0)) == pytest.approx(np.log(2.0))
    assert "compiling the training kernels for this machine, about half a minute, once" in messages[0]
    assert messages[1] == ""


@pytest.mark.usefixtures("_fresh_cache")
def test_without_a_place_to_keep_compiled_code_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GMLFM_KERNEL_CACHE", str(blocked))

    @jit.compiled
    def double(x: float) -> float:
        return x + x

    with caplog.at_level(logging.WARNING, "gmlfm"):
        jit.warn_if_compiling(double)
    assert "cannot be written, so again next time" in caplog.text
    assert double(2.0) == 4.0


@pytest.mark.usefixtures("_fresh_cache")
@pytest.mark.parametrize("mode", [0o777, 0o722, 0o707])
def test_a_cache_that_others_can_write_is_neither_read_nor_written(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GMLFM_KERNEL_CACHE", str(tmp_path / "kernels"))
    folder = jit._cache()
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(mode)
    jit._cache.cache_clear()
    with caplog.at_level(logging.WARNING, "gmlfm"):
        assert jit._cache() is None
    assert "can be written by others, so compiled kernels are neither kept nor taken from there" in caplog.text
    kernel = jit.compiled(losses.soft_plus.py_func)
    assert kernel(np.float32(0.0)) == pytest.approx(np.log(2.0))
    assert list(folder.iterdir()) == []


_COMPILING = """
import sys
import numpy as np
from gmlfm.kernels.cpu import jit
from tests.kernels.cpu.kernels_of_a_test import scaled
dtype = np.dtype(sys.argv[1])
sys.stdin.readline()
print(scaled(np.full(3, 2, dtype)).dtype, sum(scaled.stats.cache_hits.values()))
"""


def test_first_compiles_of_several_processes_at_once_keep_each_its_code(tmp_path: Path) -> None:
    """Each for another type, so that code kept under another's name would be seen."""
    dtypes = ("int8", "int16", "int32", "float32", "float64")
    environment = {**os.environ, "GMLFM_KERNEL_CACHE": str(tmp_path / "kernels"), "PYTHONPATH": os.getcwd()}
    for expected_hits in ("0", "1"):
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", _COMPILING, dtype], stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, text=True
            )
            for dtype in dtypes
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process, dtype in zip(processes, dtypes, strict=True):
            shown, errors = process.communicate(timeout=120)
            assert shown.split() == [dtype, expected_hits], errors


def test_a_save_to_the_index_waits_for_others(tmp_path: Path) -> None:
    order: list[str] = []
    held, entered = threading.Event(), threading.Event()

    def slow() -> None:
        order.append("slow begins")
        held.set()
        assert not entered.wait(0.2)
        order.append("slow ends")

    def quick() -> None:
        order.append("quick")
        entered.set()

    threads = [threading.Thread(target=jit._one_at_a_time(save, tmp_path / "lock")) for save in (slow, quick)]
    threads[0].start()
    held.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert order == ["slow begins", "slow ends", "quick"]


def test_whoever_watches_sees_the_first_call_get_its_code() -> None:
    @jit.compiled
    def triple(x: float) -> float:
        return 3.0 * x

    display = PlainDisplay(io.StringIO())
    seen = []
    with watched_by(display):
        for _ in range(2):
            with jit.compiling(triple):
                seen.append([activity.words for activity in display.activities])
                assert triple(2.0) == 6.0
    assert seen == [["getting the training kernels ready"], []]
