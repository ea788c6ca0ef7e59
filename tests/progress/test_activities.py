from __future__ import annotations

from collections.abc import Callable

import pytest

from gmlfm.progress import Activity, activity, watched_by


class Recorder:
    def __init__(self) -> None:
        self.under_way: list[Activity] = []
        self.events: list[str] = []

    def begin(self, words: str | Callable[[float], str], unit: str) -> Activity:
        begun = Activity(words, unit)
        self.under_way.append(begun)
        self.events.append(f"begin {words} {unit}".rstrip())
        return begun

    def end(self, activity: Activity) -> None:
        self.under_way.remove(activity)
        self.events.append(f"end {activity.words} {activity.done} of {activity.total}")


def test_what_is_told_is_seen_by_the_watcher_in_its_order() -> None:
    recorder = Recorder()
    with watched_by(recorder), activity("reading", "rows") as outer:
        outer.update(1, 2)
        with activity("checking") as inner:
            inner.update(words="checking twice")
            assert recorder.under_way == [outer, inner]
    assert recorder.events == [
        "begin reading rows",
        "begin checking",
        "end checking twice None of None",
        "end reading 1 of 2",
    ]


def test_nothing_is_seen_without_a_watcher_or_after_it() -> None:
    recorder = Recorder()
    with activity("before") as alone:
        alone.update(1, 2)  # whoever works need not ask whether somebody watches
    with watched_by(recorder), watched_by(None), activity("hidden"):
        pass
    with activity("after"):
        pass
    assert recorder.events == []


def test_an_activity_that_fails_has_ended() -> None:
    recorder = Recorder()
    with watched_by(recorder), pytest.raises(ZeroDivisionError), activity("dividing"):
        _ = 1 / 0
    assert recorder.under_way == []


def test_a_function_can_be_an_activity_each_time_it_is_called() -> None:
    recorder = Recorder()

    @activity("writing")
    def write() -> int:
        return len(recorder.under_way)

    with watched_by(recorder):
        assert (write(), write()) == (1, 1)
    assert recorder.under_way == []
