"""Reading that ends in the content or in one sentence: names, JSON and Parquet; `streams` opens files of bytes.

What is damaged, special or out of reach is refused by name. Limits hold where a file could be endless or give more than it
seems; environment variables raise them:

    GMLFM_READ_BYTES     most bytes that one file may give (default: the free memory where it is read at once; 1 TiB where a
                         pipe or packed file is read in pieces)
    GMLFM_READ_RATIO     most bytes for each byte of a packed file (default: 200; asked from 64 MiB on)
    GMLFM_READ_SECONDS   most seconds for a pipe from its opening to its end (default: 600)
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from gmlfm.errors import DataError, OptionError
from gmlfm.storage import free_memory

# What decoders raise on content that is damaged, nested without end or not what its name says; polars panics on some.
READ_ERRORS = (
    OSError,
    ValueError,  # JSON, TOML, Unicode, a NUL in a name
    EOFError,
    RuntimeError,  # RecursionError; a zip archive's encrypted member or unknown compression
    ArithmeticError,
    LookupError,
    TypeError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    lzma.LZMAError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)
_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that may stand for half a character
_IN_PIECES = 1 << 40


def limit(name: str, default: float) -> float:
    """A limit from the environment; what is no number above 0 is refused."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise OptionError(f"the environment variable {name} is '{text}'; expected a number above 0.")
    return value


def reason(error: BaseException) -> str:
    """Why reading failed, in the system's or the decoder's words, on one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(getattr(error, "strerror", None) or str(error).strip().split("\n")[0] or type(error).__name__)


@contextmanager
def reading(path: str | Path, advice: str = "") -> Iterator[None]:
    """Turns any error in reading a file into a DataError that names the file; `advice` ends the sentence."""
    ending = f"; {advice}." if advice else "."
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; check path.") from error
    except EOFError as error:
        raise DataError(f"{path} is truncated: the compressed data end before their end mark; fetch the file again.") from error
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} is damaged or not what its name says ({reason(error)}); fetch the file again.") from error
    except READ_ERRORS as error:
        raise DataError(f"{path} could not be read ({reason(error)}){ending}") from error


def file_status(path: str | Path) -> os.stat_result | None:
    """What a name stands for, None for nothing; a name that no file can have, or that may not be looked at, is refused."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise DataError(f"{path} could not be looked at ({reason(error)}); may this user read the folders above it?") from error
    except (OSError, ValueError) as error:
        raise DataError(f"'{_shown(path)}' cannot be a file's name ({reason(error)}).") from error


def is_folder(path: str | Path) -> bool:
    status = file_status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_regular(path: str | Path) -> bool:
    status = file_status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def kind_of(status: os.stat_result) -> str:
    """What a name stands for, in words."""
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((kind for is_kind, kind in kinds if is_kind(status.st_mode)), "a file")


def check_regular(path: str | Path) -> os.stat_result:
    """For what is read from its end, or twice: a pipe will not do."""
    status = existing(path)
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is {kind_of(status)}; expected a file: save what it gives in one.")
    return status


def parse_json(text: str | bytes) -> Any:
    """A JSON value; raises ValueError also where it is nested too deeply or holds half of a surrogate pair."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if isinstance(text, bytes) or _HALF_OF_A_PAIR.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def read_parquet(path: str | Path, columns: list[str] | None = None) -> pl.DataFrame:
    """One Parquet file, whatever characters its name has; a damaged one raises READ_ERRORS, polars' panic among them."""
    return pl.read_parquet(path, columns=columns, hive_partitioning=False, glob=False)


def scan_parquet(path: str | Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, hive_partitioning=False, glob=False)


def parquet_rows(path: str | Path) -> int:
    """How many rows the file says it has."""
    return int(scan_parquet(path).select(pl.len()).collect().item())


def check_parquet_size(path: str | Path) -> None:
    """A few bytes can stand for a billion equal rows: refused where the columns alone would not fit in memory."""
    widths = {pl.Boolean: 1 / 8, pl.Int8: 1, pl.UInt8: 1, pl.Int16: 2, pl.UInt16: 2, pl.Int32: 4, pl.UInt32: 4, pl.Float32: 4}
    schema = scan_parquet(path).collect_schema()
    n_bytes = parquet_rows(path) * sum(widths.get(dtype.base_type(), 8) for dtype in schema.values())
    if n_bytes > most_bytes(whole=True):
        raise too_large(str(path), int(n_bytes), whole=True)


def existing(path: str | Path) -> os.stat_result:
    status = file_status(path)
    if status is None:
        raise DataError(f"{path} does not exist; check path.")
    return status


def _shown(path: str | Path) -> str:
    text = str(path)
    return text if len(text) <= 80 else f"{text[:60]}..."


def most_bytes(whole: bool) -> float:
    return limit("GMLFM_READ_BYTES", free_memory() if whole else _IN_PIECES)


def too_large(path: str, n_bytes: int, whole: bool) -> DataError:
    remedy = "read it in pieces with gmlfm data prepare, or allow more" if whole else "allow more"
    return DataError(
        f"{path} gives {n_bytes:,} bytes or more, and {most_bytes(whole):,.0f} are allowed; {remedy} with GMLFM_READ_BYTES."
    )
