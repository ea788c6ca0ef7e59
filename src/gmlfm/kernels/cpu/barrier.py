"""Where threads of one computation meet: by atomic counters, with a bounded spin, and then by giving the processor away.

A thread that spins without end takes the processor from whom it waits for where a neighbour is busy; one that sleeps at once
wakes up late where nobody else wants the processor.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gmlfm.kernels.cpu.jit import compiled

Meeting = npt.NDArray[np.int64]
_ARRIVED, _ROUND, _BROKEN, _SIZE = 0, 8, 16, 24  # each in a cache line of its own
_SPINS = 2_000  # some 50 microseconds: more than threads of an idle machine wait for each other
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic  # numba's own type leaves the context out
_sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())


def new_meeting() -> Meeting:
    return np.zeros(_SIZE, np.int64)


def break_off(meeting: Meeting) -> None:
    """Nobody waits any more: a thread has failed."""
    meeting[_BROKEN] = 1


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@_intrinsic
def _atomic_add(typing_context: Any, address: Any, amount: Any) -> Any:
    """Adds to the number at an address; returns what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, arguments[0]), arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@_intrinsic
def _atomic_load(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(builder, arguments[0]), "seq_cst", 8)

    return types.int64(types.int64), generate


@_intrinsic
def _atomic_store(typing_context: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], _pointer(builder, arguments[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_intrinsic
def _pause(typing_context: Any) -> Any:
    """Tells the processor that this is a spin."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _IS_X86:
            insert: Any = cgutils.get_or_insert_function
            pause = insert(builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause")
            builder.call(pause, [])
        return context.get_dummy_value()

    return types.void(), generate


@compiled
def meet(meeting: Meeting, n_workers: int) -> bool:
    """Returns when all have come; False where one of them has failed. What each wrote before is seen by all after."""
    if n_workers == 1:
        return True
    base = np.int64(meeting.ctypes.data)
    arrived, round_, broken = base + 8 * _ARRIVED, base + 8 * _ROUND, base + 8 * _BROKEN
    this_round: Any = _atomic_load(round_)
    if _atomic_add(arrived, 1) == n_workers - 1:
        _atomic_store(arrived, 0)
        _atomic_add(round_, 1)
        return bool(_atomic_load(broken) == 0)
    spins = 0
    while _atomic_load(round_) == this_round:
        if _atomic_load(broken) != 0:
            return False
        spins += 1
        if spins < _SPINS:
            _pause()
        else:
            _sched_yield()
    return bool(_atomic_load(broken) == 0)
