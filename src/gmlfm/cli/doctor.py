"""gmlfm doctor: what gmlfm finds on this machine, for whoever wonders why it is slow, and for a report of a fault."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gmlfm.cli.options import add_command, shared_options

_LIBRARIES = ("torch", "numba", "numpy", "scipy", "polars", "safetensors", "optuna", "matplotlib")


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "doctor",
        "what gmlfm finds on this machine",
        "Processors and a container's quota of them, threads, memory, engines, the cache of compiled kernels, versions. A "
        "training that is slower than it should be, or a fault to be reported, begins here.",
        ["gmlfm doctor", "gmlfm doctor --json"],
    )
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    findings = {
        "versions": _versions(),
        "processors": _processors(),
        "engines": _engines(),
        "kernel cache": _kernel_cache(),
        "memory": _memory(),
    }
    if options.json:
        print(json.dumps(findings, ensure_ascii=False))
        return
    console = Console()
    table = Table(header_style="bold", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for area, facts in findings.items():
        for place, (name, value) in enumerate(facts.items()):
            table.add_row(f"[bold]{area}[/]" if place == 0 else "", name, escape(str("none" if value is None else value)))
        table.add_section()
    console.print(table)
    for advice in _advice(findings):
        console.print(f"[yellow]note[/] {escape(advice)}", soft_wrap=True)


def _versions() -> dict[str, Any]:
    libraries = {name: version(name) for name in _LIBRARIES}
    return {"gmlfm": version("gmlfm"), "python": platform.python_version(), "system": platform.platform(), **libraries}


def _processors() -> dict[str, Any]:
    import torch

    from gmlfm.machine import cpu_quota, usable_processors

    quota = cpu_quota()
    return {
        "model": _processor_name(),
        "visible": os.cpu_count(),
        "container's quota": quota,
        "usable": usable_processors(),
        "threads by default": min(torch.get_num_threads(), usable_processors()),
        "busy with other work": round(_load(), 1),
        "torch waits": _waiting(),
    }


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(text.partition(":")[2].strip() for text in file if text.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _load() -> float:
    """How many processes wanted a processor in the last minute, this one apart."""
    return max(0.0, os.getloadavg()[0] - 1.0) if hasattr(os, "getloadavg") else 0.0


def _waiting() -> str:
    """How torch's threads wait for each other."""
    policy, spins = os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT")
    if policy:
        return f"OMP_WAIT_POLICY={policy}"
    return f"a bounded spin (GOMP_SPINCOUNT={spins})" if spins else "OpenMP's default, a long spin"


def _engines() -> dict[str, Any]:
    import torch

    has_cuda = torch.cuda.is_available()
    return {
        "cpu": "compiled kernels (numba)",
        "gpu": f"{torch.cuda.get_device_name()}, {_triton()}" if has_cuda else None,
        "by default": "cuda" if has_cuda else "cpu",
    }


def _triton() -> str:
    try:
        return f"compiled kernels (Triton {version('triton')})"
    except ImportError:
        return "no Triton, so PyTorch takes the steps"


def _kernel_cache() -> dict[str, Any]:
    from gmlfm.kernels.cpu.jit import cache_state

    return cache_state()


def _memory() -> dict[str, Any]:
    import psutil

    from gmlfm.storage import free_memory

    return {
        "free": f"{free_memory() / 2**30:.1f} GiB",
        "in all": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
    }


def _advice(findings: dict[str, Any]) -> list[str]:
    processors, cache = findings["processors"], findings["kernel cache"]
    advice = []
    if processors["busy with other work"] >= 0.5:
        advice.append(
            "other work keeps processors busy: training takes fewer threads as long as it does; figures of speed mean little."
        )
    if processors["container's quota"] is not None and processors["container's quota"] < 1:
        advice.append("the container's quota is less than one processor: steps are slower by that share.")
    if not cache["used"]:
        advice.append("compiled kernels are not kept: each process compiles them anew, about half a minute.")
    if sys.platform == "win32":
        advice.append("gmlfm is made for Linux and macOS; on Windows use WSL.")
    return advice
