"""Watchers for people: a bar on a terminal, a line in a notebook, a line a minute in a pipe or a log file."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from gmlfm.progress.activities import Activity, Words
from gmlfm.progress.wording import amount, sentence

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Clock = Callable[[], float]
_FRAMES, _PLAIN_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"


class Display(ABC):
    """Holds what is under way and draws it from a thread of its own, so that work which tells nothing is seen, too.

    The thread calls `tick` every `interval` seconds; nothing else depends on it.
    """

    interval: ClassVar[float]

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.activities: list[Activity] = []
        self.lock = threading.RLock()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, words: Words, unit: str = "") -> Activity:
        begun = Activity(words, unit, self.clock())
        with self.lock:
            self.activities.append(begun)
        return begun

    def end(self, activity: Activity) -> None:
        with self.lock:
            self.activities.remove(activity)
            if not self.activities:
                self.clear()

    @abstractmethod
    def tick(self) -> None:
        """Draw, if it is time to."""

    def clear(self) -> None:  # noqa: B027 - a line in a log stays
        """Take away what was drawn."""

    def __enter__(self) -> Display:
        self._thread = threading.Thread(target=self._draw, name="gmlfm-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        with self.lock:
            self.clear()

    def _draw(self) -> None:
        try:
            while not self._is_over.wait(self.interval):
                self.tick()
        except (OSError, ValueError):
            return  # nobody reads any more; the work goes on


class PlainDisplay(Display):
    """For pipes and log files: what has lasted for five seconds is told, in one line a minute at most."""

    interval = 1.0
    seconds_to_first, seconds_between = 5.0, 60.0

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._stream, self._last = stream, float("-inf")

    def tick(self) -> None:
        with self.lock:
            now = self.clock()
            if not self.activities or now - self.activities[0].started < self.seconds_to_first:
                return
            if now - self._last < self.seconds_between:
                return
            self._last = now
            self._stream.write(one_line(self.activities, now) + "\n")
            self._stream.flush()


class NotebookDisplay(Display):
    """For a kernel without a terminal: one line that is written over."""

    interval = 0.5

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._stream, self._width = stream, 0

    def tick(self) -> None:
        with self.lock:
            if self.activities:
                line = one_line(self.activities, self.clock())
                self._stream.write("\r" + line.ljust(self._width))
                self._stream.flush()
                self._width = len(line)

    def clear(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


class TerminalDisplay(Display):
    """A line for each activity and a bar where its amount is known, below whatever is printed meanwhile.

    What is printed to the terminal in the meantime goes through `_Above`, which takes the lines away first.
    background: what to say while nothing else is told; '' says nothing.
    """

    interval = 0.2
    seconds_to_first = 0.4  # a short task leaves the terminal alone, and so does a command that prints its results

    def __init__(self, console: Console, background: str = "", clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._console, self._background = console, background
        self._live: Live | None = None
        self._quiet_since = clock()
        self._holds_still = False  # a line was begun and not ended: a question to the user, perhaps
        self._guarded: dict[str, Any] = {}

    def __enter__(self) -> Display:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None:
                self._guarded[name] = stream
                setattr(sys, name, _Above(self, stream, stream.isatty()))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for name, stream in self._guarded.items():
            if isinstance(getattr(sys, name), _Above):
                setattr(sys, name, stream)
        self._guarded = {}

    def begin(self, words: Words, unit: str = "") -> Activity:
        with self.lock:
            self._holds_still = False
            return super().begin(words, unit)

    def tick(self) -> None:
        from rich.live import Live

        with self.lock:
            now = self.clock()
            is_idle = not self.activities and not self._background
            if is_idle or self._holds_still or now - self._quiet_since < self.seconds_to_first:
                return
            if self._live is None:
                self._live = Live(
                    console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
                )
                self._live.start()
            self._live.update(self._lines(now), refresh=True)

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._quiet_since = self.clock()

    def make_way(self, text: str, is_terminal: bool) -> None:
        """For text that is about to be written: above the lines, or into a pipe, whose reader may use this terminal as `less`
        does: results are on their way then, unless something is under way."""
        if is_terminal or not self.activities:
            self.clear()
            self._holds_still = not (is_terminal and text.endswith("\n"))

    def _lines(self, now: float) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        frames = _FRAMES if self._console.encoding.startswith("utf") else _PLAIN_FRAMES
        frame = frames[int(now / self.interval) % len(frames)]
        lines: list[RenderableType] = []
        for place, activity in enumerate(self.activities or [Activity(self._background, started=self._quiet_since)]):
            text = Text(f"{frame if place == 0 else ' '} {sentence(activity, now)}", no_wrap=True, overflow="ellipsis")
            lines.append(text)
        measured = next((activity for activity in reversed(self.activities) if activity.done is not None), None)
        if measured is not None and measured.total:
            share = min(1.0, (measured.done or 0) / measured.total)
            row = Table.grid(padding=(0, 1), expand=True)
            row.add_column(width=1)
            row.add_column(ratio=1)
            row.add_column(no_wrap=True)
            row.add_row("", ProgressBar(total=1.0, completed=share), f"{share:4.0%}  {amount(measured)}")
            lines.append(row)
        return Group(*lines)


class _Above:
    """A stream before whose writes the display makes way; its lines come back a moment later."""

    def __init__(self, display: TerminalDisplay, stream: TextIO, is_terminal: bool) -> None:
        self._display, self._stream, self._is_terminal = display, stream, is_terminal

    def write(self, text: str) -> int:
        with self._display.lock:
            self._display.make_way(text, self._is_terminal)
            return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def one_line(activities: list[Activity], now: float) -> str:
    texts = [sentence(activity, now) for activity in activities]
    measured = next((amount(activity) for activity in reversed(activities) if activity.total), "")
    return ": ".join(texts) + (f" ({measured})" if measured else "")
