"""What a server keeps when it fails, as far as it may be asked."""

from __future__ import annotations

import logging

from redis import exceptions as driver

from dovetail.engines.redis.lane import Lane
from dovetail.engines.redis.location import Location
from dovetail.errors import EngineUnavailable, InvalidArgument

LEVELS = ("process", "durable", "replicated")

_warned_of: set[str] = set()
"""Servers of which this process was told: once is enough."""

logger = logging.getLogger("dovetail.redis")


def check(durability: str) -> None:
    if durability not in LEVELS:
        raise InvalidArgument(f"durability must be 'process', 'durable' or 'replicated' for Redis, not {durability!r}")


async def inspect(lane: Lane, durability: str, location: Location) -> None:
    """Refuse a server that may throw live runs away; warn of one that forgets them when it is restarted."""
    if durability == "process":
        return
    policy = await setting(lane, "maxmemory-policy")
    if policy not in (None, "noeviction"):
        raise EngineUnavailable(
            f"{location.shown} evicts keys when its memory is full (maxmemory-policy {policy}), which would lose what"
            " is kept; set maxmemory-policy noeviction, or say durability='process' (DOVETAIL_DURABILITY) if that may"
            " happen"
        )
    if location.shown not in _warned_of and await setting(lane, "appendonly") == "no":
        _warned_of.add(location.shown)
        logger.warning(
            "%s keeps no append-only file: a crash of the server loses what was scheduled since its last snapshot; set"
            " appendonly yes, or say durability='process' if that may happen",
            location.shown,
        )


async def setting(lane: Lane, name: str) -> str | None:
    """A setting of the server, or None where it may not be asked."""
    try:
        found = await lane.command("CONFIG", "GET", name)
    except driver.ResponseError:
        return None
    return found[1].decode() if len(found) == 2 else None
