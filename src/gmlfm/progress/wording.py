"""Activities in words: how long they take, how far they are, what is left."""

from __future__ import annotations

from gmlfm.escaping import terminal_text
from gmlfm.progress.activities import Activity

_MINUTE, _HOUR = 60, 3600
_FEWEST_SECONDS = 2.0  # earlier, neither the time so far nor an estimate says anything


def duration(seconds: float) -> str:
    """5 s, 4 min, 1 h 20 min: as exact as an estimate deserves."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    minutes = round(seconds / _MINUTE)
    if minutes < _HOUR // _MINUTE:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def time_left(seconds: float) -> str:
    return f"about {duration(max(seconds, 1))} left"


def sentence(activity: Activity, now: float) -> str:
    """What is done and for how long; with a known total, what is left."""
    if callable(activity.words):
        return terminal_text(activity.words(now))
    text, elapsed = terminal_text(activity.words), now - activity.started
    if elapsed < _FEWEST_SECONDS:
        return text
    if activity.done and activity.total:
        return f"{text}, {time_left(elapsed * (activity.total - activity.done) / activity.done)}"
    return f"{text}, {duration(elapsed)}"


def amount(activity: Activity) -> str:
    """1,024 of 3,600; bytes as MB; '' where it is not known."""
    if activity.done is None:
        return ""
    if activity.unit == "bytes":
        done, total = f"{activity.done / 1e6:,.1f}", "" if activity.total is None else f" of {activity.total / 1e6:,.1f}"
        return f"{done}{total} MB"
    total = "" if activity.total is None else f" of {activity.total:,}"
    return f"{activity.done:,}{total} {activity.unit}".rstrip()
