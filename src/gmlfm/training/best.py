"""The best weights so far: in memory, or in a temporary file where they are large."""

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
        self._in_memory: dict[str, Tensor] = {}
        self._file: Any = None
        self._shapes: dict[str, Tensor] = {}

    def __bool__(self) -> bool:
        return bool(self._in_memory) or self._file is not None

    def keep(self, weights: Mapping[str, Tensor]) -> None:
        size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        on_disk = size > _LARGEST_IN_MEMORY and all(tensor.device.type == "cpu" for tensor in weights.values())
        if not on_disk:
            self._in_memory = {name: tensor.clone() for name, tensor in weights.items()}
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="gmlfm-best-")
                weakref.finalize(self, self._file.close)
            self._file.seek(0)
            for tensor in weights.values():
                self._file.write(_bytes(tensor.detach().contiguous()))
            self._file.flush()
        except OSError as error:
            raise DataError(
                f"the best weights so far, {size / 2**30:.1f} GiB, could not be kept in {tempfile.gettempdir()} ({error}); "
                "set TMPDIR to a folder with more room."
            ) from error
        self._in_memory = {}
        self._shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in weights.items()}

    def put_into(self, weights: Mapping[str, Tensor]) -> None:
        """Write them over these tensors, of the same names and shapes."""
        if self._file is None:
            for name, tensor in weights.items():
                tensor.copy_(self._in_memory[name])
            return
        self._file.seek(0)
        for name in self._shapes:
            self._file.readinto(_bytes(weights[name].detach()))

    def tensors(self) -> dict[str, Tensor]:
        """All of them, for a checkpoint."""
        if self._file is None:
            return self._in_memory
        tensors = {name: torch.empty_like(shape, device="cpu") for name, shape in self._shapes.items()}
        self.put_into(tensors)
        return tensors

    def load(self, tensors: dict[str, Tensor]) -> None:
        self._in_memory, self._file = tensors, None


def are_finite(weights: Mapping[str, Tensor]) -> bool:
    """Whether no number of them is NaN or infinite. The extremes tell without a second array: NaN is passed on as both."""
    numbers = [tensor.detach() for tensor in weights.values() if tensor.is_floating_point() and tensor.numel()]
    return all(bool(extreme.isfinite()) for tensor in numbers for extreme in torch.aminmax(tensor))


def _bytes(tensor: Tensor) -> Any:
    """Its memory, to be written or read over."""
    return tensor.view(-1).view(torch.uint8).numpy()
