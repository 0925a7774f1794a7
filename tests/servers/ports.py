"""Ports for servers that tests start."""

from __future__ import annotations

import contextlib
import random
import socket

LOW, HIGH = 10_000, 22_000
"""Below those that the system hands out to whoever connects, of which any may be taken before a server has it; and so
is the port 10,000 higher, which a node of a Redis cluster takes as well."""

_random = random.SystemRandom()  # pytest-randomly gives all processes of a test run the same numbers


def free_port(*offsets: int) -> int:
    """A port that nobody uses, nor those at these distances from it."""
    while True:
        port = _random.randrange(LOW, HIGH)
        if all(_is_free(port + offset) for offset in (0, *offsets)):
            return port


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.bind(("", port))
        return True
    return False
