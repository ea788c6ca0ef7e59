"""A process that dies at the n-th change it makes to the file system, without a process: from then on nothing can be changed."""

from __future__ import annotations

import io
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

_CHANGING = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "fsync", "ftruncate", "pwrite", "chmod")


class Death(BaseException):
    """Not an Exception, so that nobody takes it for an error to be handled."""


class Dying:
    """at: the number of the change that does not happen any more, from 1; 0 for none. n: how many there were."""

    def __init__(self, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._at, self.n = at, 0
        for name in _CHANGING:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name), lambda *_: True))
        monkeypatch.setattr(os, "open", self._counted(os.open, lambda _, flags=0, *__: bool(flags & (os.O_WRONLY | os.O_RDWR))))
        for module in (io, pathlib.io):  # type: ignore[attr-defined]
            monkeypatch.setattr(module, "open", self._counted(io.open, lambda _, mode="r", *__: set(mode) & set("wa+x")))

    def _counted(self, function: Callable[..., Any], changes: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*positional: Any, **named: Any) -> Any:
            if changes(*positional):
                self.n += 1
                if self._at and self.n >= self._at:
                    raise Death
            return function(*positional, **named)

        return counted
