"""Zip archives from outside: checked before anything is read from them."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path, PurePosixPath

from gmlfm.errors import DataError

_MOST_RATIO = 200
_MOST_BYTES = 20 * 2**30


def check_archive(archive: Path, needed: tuple[str, ...] = ()) -> None:
    """Refuse an archive that is damaged, lacks a needed member, points outside, or would unpack to something enormous.

    The checksums of the needed members are verified; of all members where none is named.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            names = {entry.filename for entry in entries}
            for entry in entries:
                path = PurePosixPath(entry.filename.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts or ":" in entry.filename:
                    raise DataError(f"{archive} holds '{entry.filename}', a path that leads outside; it was not opened.")
                ratio = entry.file_size / max(entry.compress_size, 1)
                if entry.file_size > _MOST_BYTES or (ratio > _MOST_RATIO and entry.file_size > 2**20):
                    raise DataError(
                        f"{archive}: '{entry.filename}' would unpack to {entry.file_size:,} bytes, "
                        f"{ratio:,.0f} times its size; it looks like a bomb and was not opened."
                    )
            missing = [name for name in needed if name not in names]
            if missing:
                raise DataError(f"{archive} has no member '{missing[0]}'; it holds {', '.join(sorted(names)[:8])}.")
            broken = next((name for name in needed or sorted(names) if _is_broken(opened, name)), None)
            if broken is not None:
                raise DataError(f"{archive}: the member '{broken}' is damaged; fetch the archive again.")
    except FileNotFoundError as error:
        raise DataError(f"{archive} does not exist; check the path.") from error
    except zipfile.BadZipFile as error:
        raise DataError(f"{archive} is no zip archive or is damaged ({error}); fetch it again.") from error
    except OSError as error:
        raise DataError(f"{archive} could not be read ({error.strerror or error}).") from error


def _is_broken(opened: zipfile.ZipFile, name: str) -> bool:
    """Reads the member to its end, which verifies its CRC."""
    try:
        with opened.open(name) as member:
            while member.read(1 << 20):
                pass
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError):  # RuntimeError: encrypted or unknown compression
        return True
    return False
