"""Progress: whoever works tells what is being done, whoever watches shows it. Without a watcher nothing is shown."""

from __future__ import annotations

from gmlfm.progress.activities import Activity, activity, watched_by
from gmlfm.progress.showing import display, shown, shows_progress

__all__ = ["Activity", "activity", "display", "shown", "shows_progress", "watched_by"]
