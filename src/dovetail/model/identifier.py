"""Run ids: UUIDs of version 7, so that they sort by when they were made."""

from __future__ import annotations

import os
import threading
import time
import uuid

_lock = threading.Lock()
_last = 0


def _after_fork() -> None:
    """A lock that another thread of the parent held would never be free in the child."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def new_id() -> str:
    """A fresh id. Within a process each is greater than the one before."""
    global _last
    stamp = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10), "big")
    with _lock:
        # The random part counts on within a millisecond, and when the clock steps back.
        if stamp >> 80 <= _last >> 80:
            stamp = _last + 1 + (stamp & 0xFFFFFFFF)
        _last = stamp
    value = stamp & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: str) -> bool:
    """Whether the text could be the id of a run."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
