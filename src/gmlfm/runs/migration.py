"""Older formats of run.json, brought up to the present one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gmlfm.fitting import Refit

FORMAT = 5


def _from_2(about: dict[str, Any]) -> dict[str, Any]:
    """Format 2 named the refit by a sentence under 'regime'; a sentence that it never wrote leaves 'refit' missing, which
    the reader reports. Renamed settings are aliases of Settings.make."""
    migrated = {name: value for name, value in about.items() if name not in ("regime", "metrics")}
    refits = [refit.value for refit in Refit if refit.label == about.get("regime")]
    return {**migrated, **({"refit": refits[0]} if refits else {}), "format": 3}


def _from_3(about: dict[str, Any]) -> dict[str, Any]:
    """Format 3 had one generation, RUN/model, with run.json and the marks of items in it, and no checksums."""
    unknown_then = {"files": {}, "generation": "", "version": "", "replayed": -1, "interrupted": False, "added_items": 0}
    return {**about, **unknown_then, "format": 4}


def _from_4(about: dict[str, Any]) -> dict[str, Any]:
    """Format 4 had another form under the name gml-fm, which is gml-fm-unit since, and no row of newcomers."""
    renamed: dict[str, Any] = {"model": "gml-fm-unit"} if about.get("model") == "gml-fm" else {}
    settings = about.get("settings")
    if isinstance(settings, dict) and "history" in settings:
        renamed["settings"] = {**settings, "newcomer_row": False}
    return {**about, **renamed, "format": 5}


_STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {2: _from_2, 3: _from_3, 4: _from_4}


def migrate(about: dict[str, Any]) -> dict[str, Any]:
    """Step after step; an unknown format stays as it is."""
    while isinstance(about.get("format"), int) and about["format"] in _STEPS:
        about = _STEPS[about["format"]](about)
    return about
