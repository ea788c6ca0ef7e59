"""What this process may use of the machine: processors, and a container's quota of them."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def usable_processors() -> int:
    """Processors that this process may run on, and no more than its quota: a part of one counts as one."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return processors if quota is None else max(1, min(processors, math.floor(quota + 0.5)))


def cpu_quota(root: Path = _CGROUPS) -> float | None:
    """How many processors' time the container may take, the least of its groups; None where there is no limit."""
    quotas = [quota for folder in _groups(root) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _groups(root: Path) -> list[Path]:
    """The control groups of this process, from its own up to the root; of a container, its own is the root."""
    groups = [root]
    try:
        for text in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = text.split(":", 2)
            base = root / controllers if controllers else root
            inner = Path(path.lstrip("/"))
            groups += [base / parent for parent in (inner, *inner.parents)]
    except (OSError, ValueError):
        pass
    return list(dict.fromkeys(groups))


def _quota_of(folder: Path) -> float | None:
    """By cpu.max of version 2, or the two files of version 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
