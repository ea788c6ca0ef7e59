from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pytest
from rich.console import Console

from gmlfm.progress import activity, watched_by
from gmlfm.progress.displays import Display, NotebookDisplay, PlainDisplay, TerminalDisplay
from tests.progress.clocks import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_display(clock: FakeClock, background: str = "") -> tuple[TerminalDisplay, Terminal]:
    stream = Terminal()
    console = Console(file=stream, force_terminal=True, width=80, color_system=None, legacy_windows=False)
    return TerminalDisplay(console, background, clock), stream


def test_a_pipe_gets_one_line_a_minute_at_most() -> None:
    clock, stream = FakeClock(), io.StringIO()
    display = PlainDisplay(stream, clock)
    reading = display.begin("reading a.csv")
    for _ in range(240):
        display.tick()
        clock.passes(1)
    display.end(reading)
    assert stream.getvalue().splitlines() == [
        "reading a.csv, 5 s",
        "reading a.csv, 1 min",
        "reading a.csv, 2 min",
        "reading a.csv, 3 min",
    ]
    for _ in range(30):  # another activity within the minute adds no line of its own
        short = display.begin("next", "rows")
        clock.passes(4.9)
        display.tick()
        display.end(short)
    assert len(stream.getvalue().splitlines()) == 4


def test_a_line_tells_the_same_facts_as_the_bar() -> None:
    clock, stream = FakeClock(), io.StringIO()
    display = PlainDisplay(stream, clock)
    display.begin("tuning fm: trial 2 of 9")
    display.begin(lambda now: "epoch 3 of at most 50").update(5, 20)
    clock.passes(6)
    display.tick()
    assert stream.getvalue() == "tuning fm: trial 2 of 9, 6 s: epoch 3 of at most 50 (5 of 20)\n"


def test_a_notebook_has_one_line_that_is_written_over_and_taken_away() -> None:
    clock, stream = FakeClock(), io.StringIO()
    display = NotebookDisplay(stream, clock)
    first = display.begin("a long sentence")
    display.tick()
    display.end(first)
    display.tick()
    assert stream.getvalue() == "\ra long sentence" + "\r" + " " * 15 + "\r"


def test_a_terminal_shows_each_activity_and_a_bar_and_leaves_nothing() -> None:
    clock = FakeClock()
    display, stream = terminal_display(clock)
    outer = display.begin("tuning fm")
    inner = display.begin("epoch 1", "instances")
    inner.update(30, 120)
    clock.passes(3)
    display.tick()
    shown = stream.getvalue()
    assert "tuning fm, 3 s" in shown
    assert "epoch 1, about 9 s left" in shown
    assert "25%  30 of 120 instances" in shown
    assert "━" in shown
    assert max(map(len, shown.replace("\r", "").splitlines())) <= 80
    display.end(inner)
    display.end(outer)
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K" * 3)  # each of the three lines is taken away


def test_short_work_leaves_the_terminal_alone_and_long_work_without_words_has_some() -> None:
    clock = FakeClock()
    display, stream = terminal_display(clock, "working")
    short = display.begin("quick")
    clock.passes(0.3)
    display.tick()
    display.end(short)
    assert stream.getvalue() == ""
    clock.passes(5)
    display.tick()
    assert "working, 5 s" in stream.getvalue()


def test_nothing_is_drawn_without_work_or_words() -> None:
    clock = FakeClock()
    display, stream = terminal_display(clock)
    clock.passes(60)
    display.tick()
    assert stream.getvalue() == ""


def test_a_long_sentence_is_cut_to_the_width() -> None:
    clock = FakeClock()
    display, stream = terminal_display(clock)
    display.begin("x" * 300)
    clock.passes(1)
    display.tick()
    lines = stream.getvalue().replace("\r", "").replace("\x1b[?25l", "").splitlines()
    assert [len(row) for row in lines if "x" in row] == [80]


def test_what_is_printed_meanwhile_stands_above_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    display, stream = terminal_display(clock)
    display.interval = 3600.0  # type: ignore[misc]  # the test ticks
    monkeypatch.setattr(sys, "stdout", stream)
    with display:
        display.begin("training")
        clock.passes(1)
        display.tick()
        drawn = len(stream.getvalue())
        Console().print("epoch 1", highlight=False)
        assert stream.getvalue()[drawn:].endswith("\x1b[1A\x1b[2Kepoch 1\n")  # the line was taken away first
        display.tick()
        assert stream.getvalue().endswith("epoch 1\n")  # and rests a moment, so that a table is not torn
        clock.passes(1)
        display.tick()
        assert "training" in stream.getvalue()[drawn + 40 :]
    assert sys.stdout is stream


def test_a_question_is_not_drawn_over_until_work_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    display, stream = terminal_display(clock, "working")
    display.interval = 3600.0  # type: ignore[misc]
    monkeypatch.setattr(sys, "stdout", stream)
    with display:
        print("Accept? [y/N] ", end="")
        clock.passes(60)
        display.tick()
        assert stream.getvalue() == "Accept? [y/N] "
        display.begin("downloading")
        display.tick()
        assert "downloading" in stream.getvalue()


def test_results_in_a_pipe_end_the_drawing_and_lines_of_work_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pipe = FakeClock(), io.StringIO()
    display, stream = terminal_display(clock, "working")
    display.interval = 3600.0  # type: ignore[misc]
    monkeypatch.setattr(sys, "stdout", pipe)
    with display:
        training = display.begin("training")
        clock.passes(1)
        display.tick()
        print("epoch 1")
        drawn = len(stream.getvalue())
        clock.passes(1)
        display.tick()
        assert "training, 2 s" in stream.getvalue()[drawn:]
        display.end(training)
        print("a table for less")
        drawn = len(stream.getvalue())
        clock.passes(60)
        display.tick()
        assert stream.getvalue()[drawn:] == ""  # the reader may show it on this very terminal
    assert pipe.getvalue() == "epoch 1\na table for less\n"
    assert sys.stdout is pipe


def test_the_thread_draws_and_ends_with_the_display() -> None:
    class Ticks(Display):
        interval = 0.001

        def __init__(self) -> None:
            super().__init__()
            self.is_drawn = threading.Event()

        def tick(self) -> None:
            self.is_drawn.set()

    with Ticks() as display:
        assert display.is_drawn.wait(60)  # type: ignore[attr-defined]
    assert "gmlfm-progress" not in {thread.name for thread in threading.enumerate()}


def test_work_goes_on_when_nobody_reads_any_more() -> None:
    class Broken(io.StringIO):
        was_asked = threading.Event()

        def write(self, text: str) -> int:
            self.was_asked.set()
            raise BrokenPipeError

    class Eager(PlainDisplay):
        interval, seconds_to_first = 0.001, 0.0

    stream: Any = Broken()
    with Eager(stream) as display, watched_by(display), activity("working on"):
        assert stream.was_asked.wait(60)
