"""What the training loop asks of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class Engine(Protocol):
    """Takes the steps of a batch and changes the table, the dense parameters and their moments in place.

    takes_device_batches: `run` also takes a DeviceBatch, so that batches may be drawn and kept on the device.
    """

    takes_device_batches: bool

    def run(self, batch: Any, groups_per_step: int, loss: str | None = None) -> Iterator[tuple[float, int]]:
        """After one step or several: their mean loss and how many instances they had. A loss that is no number changed nothing.

        batch: a Batch, or a DeviceBatch where the engine takes those. loss: another one than that of training.
        """
        ...
