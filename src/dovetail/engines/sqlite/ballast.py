"""A file that only takes up room: when the disk is full it is removed, so that running work can still finish.

Whether it is there is also the sign, for every process, that there is room for new work.
"""

from __future__ import annotations

import os
from pathlib import Path

SIZE = 4 * 1024 * 1024


class Ballast:
    """Room kept for a database's own need. A store in memory needs none."""

    def __init__(self, database: Path | None) -> None:
        self._path = None if database is None else Path(f"{database}-ballast")

    @property
    def is_there(self) -> bool:
        return self._path is None or self._path.exists()

    def is_laid(self) -> bool:
        """Whether there is room to spare; it is taken again as soon as it can be had."""
        return self._path is None or self.is_there or self._lay(self._path)

    def _lay(self, path: Path) -> bool:
        try:
            disk = os.statvfs(path.parent)
            if disk.f_bavail * disk.f_frsize < 2 * SIZE:
                return False
            handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            return False
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, SIZE)
            else:
                os.write(handle, bytes(SIZE))
        except OSError:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(handle)
        return True

    def drop(self) -> None:
        """Give the room back to the file system."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
