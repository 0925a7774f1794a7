"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TypeVar

Length = TypeVar("Length", float, timedelta)

FIRST = 0.5
LONGEST = 30.0


def pause_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row: twice as long each time, and never quite the same."""
    return spread(min(FIRST * 2 ** min(failures - 1, 16), LONGEST))


def spread(delay: Length) -> Length:
    """About as long: all workers lose a store at the same moment, and are not to come back to it at one moment too."""
    return delay * random.uniform(0.75, 1.25)
