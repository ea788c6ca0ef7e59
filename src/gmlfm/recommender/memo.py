"""What was computed for one question and is asked again by many, up to a number of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """Values by key; where there are too many, the one that was kept longest goes. Several threads may ask."""

    def __init__(self, most: int) -> None:
        self._most, self._values = most, dict[Hashable, Value]()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        return self._values.get(key)

    def put(self, key: Hashable, value: Value) -> Value:
        with self._lock:
            if key not in self._values and len(self._values) >= self._most:
                del self._values[next(iter(self._values))]
            self._values[key] = value
        return value

    def of(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value kept under the key, or the one that is made now. None is no value."""
        value = self._values.get(key)
        return self.put(key, make()) if value is None else value

    def __len__(self) -> int:
        return len(self._values)
