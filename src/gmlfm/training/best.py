"""The best weights so far: in memory, or beside it where they are large."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gmlfm.errors import DataError

_LARGEST_IN_MEMORY = 2**28  # bytes


class BestWeights:
    """A copy in memory would cost a third of what the table and its moments take; a large one goes to a temporary file."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}
        self._file: Any = None
        self._shapes: dict[str, Tensor] = {}

    def __bool__(self) -> bool:
        return bool(self._held) or self._file is not None

    def keep(self, weights: Mapping[str, Tensor]) -> None:
        size = sum(one.numel() * one.element_size() for one in weights.values())
        on_disk = size > _LARGEST_IN_MEMORY and all(one.device.type == "cpu" for one in weights.values())
        if not on_disk:
            self._held = {name: one.clone() for name, one in weights.items()}
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="gmlfm-best-")
                weakref.finalize(self, self._file.close)
            self._file.seek(0)
            for one in weights.values():
                self._file.write(_bytes(one.detach().contiguous()))
            self._file.flush()
        except OSError as error:
            raise DataError(
                f"the best weights so far, {size / 2**30:.1f} GiB, could not be kept in {tempfile.gettempdir()} ({error}); "
                "set TMPDIR to a folder with more room."
            ) from error
        self._held = {}
        self._shapes = {name: torch.empty_like(one, device="meta") for name, one in weights.items()}

    def put_into(self, weights: Mapping[str, Tensor]) -> None:
        """Over the present ones, of the same names and shapes."""
        if self._file is None:
            for name, one in weights.items():
                one.copy_(self._held[name])
            return
        self._file.seek(0)
        for name in self._shapes:
            self._file.readinto(_bytes(weights[name].detach()))

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""
        if self._file is None:
            return self._held
        found = {name: torch.empty_like(one, device="cpu") for name, one in self._shapes.items()}
        self.put_into(found)
        return found

    def load(self, tensors: dict[str, Tensor]) -> None:
        self._held, self._file = tensors, None


def _bytes(tensor: Tensor) -> Any:
    """Its memory, to be written or read over."""
    return tensor.view(-1).view(torch.uint8).numpy()
