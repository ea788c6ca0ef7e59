"""How kernels are compiled: what is cached, and what the user is told about it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

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
