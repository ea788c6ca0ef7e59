"""The file in which a study's trials are written down: several processes may append, and a full disk leaves no half line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from gmlfm.storage import reporting_write_errors

_LOCK_SECONDS = 5  # a write takes milliseconds: a lock held for longer was left by a process that was killed


class Journal(JournalFileBackend):
    def __init__(self, path: Path) -> None:
        # Not Optuna's default, a link: relative to its own folder it leads nowhere, and is then waited for without end.
        self._path, self._writers = path, JournalFileOpenLock(str(path), grace_period=_LOCK_SECONDS)
        with reporting_write_errors(path):
            super().__init__(str(path), lock_obj=self._writers)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        content = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with reporting_write_errors(self._path):
            self._writers.acquire()
            try:
                self._append(content)
            finally:
                self._writers.release()

    def _append(self, content: bytes) -> None:
        with self._path.open("ab", buffering=0) as file:
            start = file.tell()
            try:
                while content:
                    content = content[file.write(content) or 0 :]
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self._path, start)
                raise
