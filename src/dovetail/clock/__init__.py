"""Time: the real one, and one that tests advance."""

from dovetail.clock.system import LEAP, SYSTEM_CLOCK, Clock, SystemClock
from dovetail.clock.times import (
    EARLIEST,
    EPOCH,
    LAST,
    LATEST,
    duration_to_microseconds,
    from_microseconds,
    to_microseconds,
)
from dovetail.clock.virtual import VirtualClock

__all__ = [
    "EARLIEST",
    "EPOCH",
    "LAST",
    "LATEST",
    "LEAP",
    "SYSTEM_CLOCK",
    "Clock",
    "SystemClock",
    "VirtualClock",
    "duration_to_microseconds",
    "from_microseconds",
    "to_microseconds",
]
