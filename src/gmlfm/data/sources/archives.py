"""Zip archives from outside: checked before anything is read from them."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

from gmlfm.errors import DataError
from gmlfm.reading import READ_ERRORS, check_regular, limit, reason

_MOST_BYTES = 20 * 2**30
_RATIO_ASKED_FROM = 2**20


def check_archive(archive: Path, needed: tuple[str, ...] = ()) -> None:
    """Refuse an archive that is damaged, lacks a needed member, points outside, or would unpack to something enormous.

    The checksums of the needed members are verified; of all members where none is named.
    """
    check_regular(archive)
    most_bytes, most_ratio = limit("GMLFM_READ_BYTES", _MOST_BYTES), limit("GMLFM_READ_RATIO", 200)
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            names = {entry.filename for entry in entries}
            for entry in entries:
                path = PurePosixPath(entry.filename.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts or ":" in entry.filename:
                    raise DataError(f"{archive} holds '{entry.filename}', a path that leads outside; it was not opened.")
                ratio = entry.file_size / max(entry.compress_size, 1)
                if entry.file_size > most_bytes or (ratio > most_ratio and entry.file_size > _RATIO_ASKED_FROM):
                    raise DataError(
                        f"{archive}: '{entry.filename}' would unpack to {entry.file_size:,} bytes, {ratio:,.0f} times "
                        "its size; it looks like a bomb and was not opened (GMLFM_READ_BYTES and GMLFM_READ_RATIO allow more)."
                    )
            missing = [name for name in needed if name not in names]
            if missing:
                raise DataError(f"{archive} has no member '{missing[0]}'; it holds {', '.join(sorted(names)[:8])}.")
            broken = next((name for name in needed or sorted(names) if _is_broken(opened, name)), None)
            if broken is not None:
                raise DataError(f"{archive}: the member '{broken}' is damaged; fetch the archive again.")
    except OSError as error:
        raise DataError(f"{archive} could not be read ({reason(error)}).") from error
    except READ_ERRORS as error:
        raise DataError(f"{archive} is no zip archive or is damaged ({reason(error)}); fetch it again.") from error


def _is_broken(opened: zipfile.ZipFile, name: str) -> bool:
    """Reads the member to its end, which verifies its CRC."""
    try:
        with opened.open(name) as member:
            while member.read(1 << 20):
                pass
    except READ_ERRORS:
        return True
    return False
