"""What every noun is made of."""

from __future__ import annotations

from typing import Any, Self

import msgspec


class Noun(msgspec.Struct, frozen=True):
    """An immutable record. A msgspec Struct is made ten times faster than a frozen dataclass, and one is
    made for every run that is scheduled, claimed and finished."""

    def but(self, **changes: Any) -> Self:
        """The same, with these fields changed."""
        return msgspec.structs.replace(self, **changes)
