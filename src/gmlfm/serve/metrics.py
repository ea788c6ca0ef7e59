"""What happened, for Prometheus. Workers write their figures to a folder that they share; each answers with the sums."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from gmlfm.storage import write_text

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_HELP = {
    "gmlfm_requests_total": ("counter", "Requests answered, by route, method and status."),
    "gmlfm_request_seconds": ("histogram", "Seconds from a request's head to the end of its answer, by route."),
    "gmlfm_refused_total": ("counter", "Requests refused before an answer was made, by reason."),
    "gmlfm_events_total": ("counter", "Rows of what users did that were kept."),
    "gmlfm_reloads_total": ("counter", "Reloads of a run, by outcome."),
    "gmlfm_in_flight": ("gauge", "Questions that are being answered."),
    "gmlfm_resident_bytes": ("gauge", "Memory of the process, by worker."),
    "gmlfm_workers": ("gauge", "Workers whose figures are summed here; the others' are up to a second old."),
    "gmlfm_run_info": ("gauge", "The runs that are served."),
}
Key = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """Counts of one process; add from any thread."""

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._adding = threading.Lock()

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        with self._adding:
            self._counts[name, tuple(sorted(labels.items()))] += value  # type: ignore[assignment]

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        labels = (("route", route),)
        bound = next((f"{bound:g}" for bound in _BOUNDS if seconds <= bound), "+Inf")
        with self._adding:
            counts = self._counts
            counts["gmlfm_requests_total", (("method", method), ("route", route), ("status", str(status)))] += 1
            counts["gmlfm_request_seconds_bucket", (("le", bound), *labels)] += 1
            counts["gmlfm_request_seconds_sum", labels] += seconds  # type: ignore[assignment]

    def refused(self, reason: str) -> None:
        self.add("gmlfm_refused_total", reason=reason)

    def as_list(self) -> list[list[Any]]:
        with self._adding:
            return [[name, labels, value] for (name, labels), value in self._counts.items()]


def share_figures(figures: list[list[Any]], shared_folder: Path) -> None:
    """For the other workers; the file stays when the process ends, so that no sum goes back."""
    write_text(shared_folder / f"figures-{os.getpid()}.json", json.dumps(figures))


def workers_seen(shared_folder: Path) -> bool:
    """Whether a worker ever got so far as to write figures."""
    return any(shared_folder.glob("figures-*.json"))


def gathered(figures_here: list[list[Any]], shared_folder: Path | None) -> tuple[list[list[Any]], int]:
    """With those of the other workers, and how many workers live; of dead ones what they counted stays, and no gauge."""
    figures, n = list(figures_here), 1
    for path in sorted(shared_folder.glob("figures-*.json")) if shared_folder is not None else []:
        if path.name == f"figures-{os.getpid()}.json":
            continue
        try:
            others = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        is_alive = psutil.pid_exists(int(path.stem.removeprefix("figures-")))
        figures += [figure for figure in others if is_alive or _HELP.get(figure[0], ("counter",))[0] != "gauge"]
        n += is_alive
    return figures, n


def as_text(figures: Iterable[Iterable[Any]], gauges: Iterable[tuple[str, Mapping[str, str], float]]) -> str:
    sums: Counter[Key] = Counter()
    for name, labels, value in figures:
        sums[name, tuple((key, text) for key, text in labels)] += value
    for name, given, value in gauges:
        sums[name, tuple(sorted(given.items()))] += value  # type: ignore[assignment]
    lines = []
    for name, (kind, about) in _HELP.items():
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        if kind == "histogram":
            lines += _histogram(name, sums)
        else:
            lines += [_sample(key, labels, value) for (key, labels), value in sorted(sums.items()) if key == name]
    return "\n".join(lines) + "\n"


def _histogram(name: str, sums: Mapping[Key, float]) -> list[str]:
    """Buckets are counted apart and told as Prometheus reads them: each with all below it."""
    lines = []
    for (key, labels), seconds in sorted(sums.items()):
        if key != f"{name}_sum":
            continue
        n = 0.0
        for bound in (*(f"{bound:g}" for bound in _BOUNDS), "+Inf"):
            n += sums.get((f"{name}_bucket", (("le", bound), *labels)), 0)
            lines.append(_sample(f"{name}_bucket", (*labels, ("le", bound)), n))
        lines += [_sample(f"{name}_sum", labels, seconds), _sample(f"{name}_count", labels, n)]
    return lines


def _sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{inner}}} {value:.10g}" if inner else f"{name} {value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
