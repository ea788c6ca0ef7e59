from __future__ import annotations

import inspect
import io
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gmlfm.errors import OptionError
from gmlfm.progress import activity, shown, shows_progress, watched_by
from gmlfm.progress.activities import current_watcher
from gmlfm.progress.displays import NotebookDisplay, PlainDisplay, TerminalDisplay
from gmlfm.progress.showing import display, is_interactive


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def in_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]


def at_terminal(monkeypatch: pytest.MonkeyPatch, kind: str = "xterm") -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", kind)


def test_the_display_is_chosen_by_where_standard_error_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        assert isinstance(display(), PlainDisplay)
        assert not is_interactive()
        at_terminal(patch)
        assert isinstance(display(), TerminalDisplay)
        assert is_interactive()
    with monkeypatch.context() as patch:
        at_terminal(patch, "dumb")
        assert isinstance(display(), PlainDisplay)
    with monkeypatch.context() as patch:
        in_kernel(patch)
        assert isinstance(display(), NotebookDisplay)
        assert is_interactive()
    with monkeypatch.context() as patch:  # IPython in a terminal has no kernel
        patch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))  # type: ignore[arg-type]
        assert not is_interactive()


@pytest.mark.parametrize(
    ("progress", "is_at_terminal", "is_shown"),
    [
        (None, False, False),
        (None, True, True),
        (True, False, True),
        (True, True, True),
        (False, True, False),
        (False, False, False),
    ],
)
def test_auto_shows_where_somebody_looks_on(
    progress: bool | None, is_at_terminal: bool, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_at_terminal:
        at_terminal(monkeypatch)
    with shown(progress):
        assert (current_watcher() is not None) is is_shown
    assert current_watcher() is None


def test_other_threads_do_not_draw_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch)
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(is_interactive()))
    thread.start()
    thread.join()
    assert seen == [False]
    assert is_interactive()


@pytest.mark.parametrize("progress", [None, True])
def test_who_watches_already_goes_on(progress: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch)
    watcher: Any = PlainDisplay(io.StringIO())
    with watched_by(watcher), shown(progress), activity("reading"):
        assert current_watcher() is watcher
        assert [activity.words for activity in watcher.activities] == ["reading"]
    with watched_by(watcher), shown(False), activity("reading"):
        assert watcher.activities == []


def test_a_verb_shows_progress_by_its_keyword() -> None:
    @shows_progress
    def verb(data: int, *, progress: bool | None = None) -> bool:
        """A verb."""
        return current_watcher() is not None

    assert (verb(1), verb(1, progress=True), verb(1, progress=False)) == (False, True, False)
    assert verb.__doc__ == "A verb."
    assert "progress" in inspect.signature(verb).parameters
    with pytest.raises(OptionError, match="progress is 'yes'; expected True, False, or None for auto"):
        verb(1, progress="yes")  # type: ignore[arg-type]
