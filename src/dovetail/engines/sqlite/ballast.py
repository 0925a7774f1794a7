"""A file that only takes up room: when the disk is full it is removed, so that running work can still finish."""

from __future__ import annotations

import os
from pathlib import Path

SIZE = 4 * 1024 * 1024


class Ballast:
    """Room kept for a database's own need. A store in memory needs none."""

    def __init__(self, database: Path | None) -> None:
        self._path = None if database is None else Path(f"{database}-ballast")

    def lay(self) -> None:
        """Take the room, if it can be had: a disk without it is no reason not to start."""
        if self._path is None or self._path.exists():
            return
        try:
            handle = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            return
        try:
            os.posix_fallocate(handle, 0, SIZE)
        except (OSError, AttributeError):
            self._path.unlink(missing_ok=True)
        finally:
            os.close(handle)

    def drop(self) -> None:
        """Give the room back to the file system."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
