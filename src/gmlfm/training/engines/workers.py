"""How many threads take the parts of a step at the moment, chosen by measuring as training runs, and the threads themselves.

Beside a busy neighbour, or under a container's quota, threads that have to meet after every round wait for whichever of them
has no processor; fewer threads are then faster. What they compute is the same, so the choice is free.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_BLOCK = 0.02  # seconds of steps between two looks at the clock
_PROBE = 2  # blocks by which another number of workers is measured
_SHORTEST, _LONGEST = 0.5, 8.0  # seconds from one such measurement to the next
_MUCH_SLOWER, _FASTER = 0.7, 1.1
_NEW = 0.3  # weight of a new measurement in the mean


class WorkerCount:
    """Learns from what was measured how many workers are the fastest.

    candidates: 1, half, and all of `most`. Every other candidate is measured from time to time, seldom where it is far slower
    than the present one, and at once where the present one becomes much slower than it was.
    """

    def __init__(self, most: int) -> None:
        self.candidates = sorted({1, max(1, most // 2), most})
        self.current = most
        self._rates: dict[int, float] = {}  # groups a second
        self._probing: list[int] = []  # the blocks to come that measure others
        self._interval = _SHORTEST
        self._since_probe = 0.0

    @property
    def next(self) -> int:
        return self._probing[0] if self._probing else self.current

    def steps_per_block(self, groups_per_step: int) -> int:
        """As many steps as take about the time of a block."""
        rate = self._rates.get(self.next) or self._rates.get(self.current)
        return 1 if not rate else max(1, round(_BLOCK * rate / groups_per_step))

    def record(self, workers: int, groups: int, seconds: float) -> None:
        """So many groups took so many seconds."""
        rate, before = groups / max(seconds, 1e-9), self._rates.get(workers)
        if len(self.candidates) == 1:
            self._rates[workers] = rate
            return
        if self._probing:
            self._record_probe(workers, rate)
            return
        self._rates[workers] = rate if before is None else (1 - _NEW) * before + _NEW * rate
        self._since_probe += seconds
        is_much_slower = before is not None and rate < _MUCH_SLOWER * before
        if self._since_probe >= self._interval or (is_much_slower and self._since_probe >= _PROBE * _BLOCK):
            self._since_probe = 0.0
            self._probing = [other for other in self.candidates if other != self.current for _ in range(_PROBE)]

    def _record_probe(self, workers: int, rate: float) -> None:
        is_first = self._probing.count(workers) == _PROBE
        self._rates[workers] = rate if is_first else (self._rates[workers] + rate) / 2
        del self._probing[0]
        if self._probing:
            return
        best = max(self.candidates, key=lambda candidate: self._rates.get(candidate, 0.0))
        if best != self.current and self._rates[best] > _FASTER * self._rates[self.current]:
            self.current, self._interval = best, _SHORTEST
        else:
            self._interval = min(2 * self._interval, _LONGEST)


class Workers:
    """Threads that wait between calls; the caller is the first of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[int], None], n_workers: int, broken: Callable[[], None]) -> None:
        """work(0) to work(n_workers - 1) at the same time. broken: called where one of them fails, so that nobody waits."""

        def guarded(worker: int) -> None:
            try:
                work(worker)
            except BaseException:
                broken()
                raise

        others = [self._threads().submit(guarded, worker) for worker in range(1, n_workers)] if n_workers > 1 else []
        try:
            guarded(0)
        finally:
            for other in others:
                other.result()

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max(1, self._most - 1), thread_name_prefix="gmlfm")
        return self._pool
