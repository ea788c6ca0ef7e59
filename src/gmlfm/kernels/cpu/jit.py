"""How our kernels are compiled: float32 throughout, sums in any order, NaN and infinity kept, compiled code cached on disk.

numba looks at the file of a function alone to see whether its compiled code is stale, not at those of the functions that it
calls. The cache is therefore kept in a folder named by all of our kernels' sources.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import config as _numba_config

from gmlfm.progress import activity
from gmlfm.storage import cache_folder, is_private

Function = TypeVar("Function", bound=Callable[..., Any])
# Not 'fast' as a whole: a loss that is no number must be seen, so NaN and infinity are not assumed away.
_RELAXED = {"reassoc", "contract", "nsz", "arcp"}
_config: Any = _numba_config
_LOCK = ".lock"
_log = logging.getLogger("gmlfm")


def compiled(function: Function) -> Function:
    """Small functions are inlined by LLVM: numba's own inline="always" would change the order of sums. Never numba's
    parallel=True: its threads spin without end while they wait, and end the process after a fork.

    No kernel may be given two arrays of which it writes to one where it reads the other: LLVM is told so (noalias), as numba
    tells it of its own parallel loops, which makes steps an eighth faster.
    """
    folder, configured = _cache(), _config.CACHE_DIR
    _config.CACHE_DIR = str(folder or "")
    try:
        make: Any = numba.njit(cache=folder is not None, fastmath=_RELAXED, error_model="numpy", nogil=True)
        dispatcher: Any = make(function)
        dispatcher._compiler._customize_flags = _without_aliases
    finally:
        _config.CACHE_DIR = configured
    if folder is not None:
        dispatcher._cache.save_overload = _one_at_a_time(dispatcher._cache.save_overload, folder / _LOCK)
    kernel: Function = dispatcher
    return kernel


def _without_aliases(flags: Any) -> Any:
    flags.noalias = True
    return flags


def warn_if_compiling(kernel: Callable[..., Any]) -> None:
    """Compiling takes half a minute: whoever waits should know why, and that it is once only."""
    dispatcher: Any = kernel
    if dispatcher.signatures:
        return
    folder = _cache()
    if folder is None:
        _log.warning("compiling the training kernels, about half a minute; %s cannot be written, so again next time", _root())
    elif not any(folder.rglob(f"*{dispatcher.py_func.__qualname__}*.nbc")):
        _log.warning("compiling the training kernels for this machine, about half a minute, once")


def compiling(kernel: Callable[..., Any]) -> AbstractContextManager[object]:
    """Around a call of the kernel: the first one in a process reads its code from the cache, or compiles it."""
    dispatcher: Any = kernel
    return nullcontext() if dispatcher.signatures else activity("getting the training kernels ready")


def _root() -> Path:
    folder = os.environ.get("GMLFM_KERNEL_CACHE")
    return Path(folder) if folder else cache_folder() / "kernels"


def cache_state() -> dict[str, Any]:
    """Where compiled code is kept, whether it is, and how much of it there is for this version."""
    folder = _cache()
    files = [] if folder is None else [path for path in folder.rglob("*.nbc")]
    return {
        "folder": str(_root()),
        "used": folder is not None,
        "compiled kernels": len(files),
        "megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 1),
    }


def _one_at_a_time(save: Callable[..., None], lock: Path) -> Callable[..., None]:
    """numba reads its index, chooses a new file's name and writes both: two processes at once would choose the same name for
    different code."""

    def save_alone(*arguments: Any) -> None:
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            save(*arguments)

    return save_alone


@functools.cache
def _cache() -> Path | None:
    """The folder, or None where nothing can be written or somebody else could write: compiled code is run as it is found."""
    kernels = Path(__file__).parent
    sources = [kernels.parent / "codes.py", *sorted(kernels.glob("*.py"))]
    name = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + numba.__version__.encode()).hexdigest()[:16]
    folder = _root() / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not is_private(folder):
            _log.warning("%s can be written by others, so compiled kernels are neither kept nor taken from there", folder)
            return None
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, ValueError):
        return None
