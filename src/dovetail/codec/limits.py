"""How large, how deep and how long-keyed a payload may be, when it is written and when it is read."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.errors import InvalidArgument

LARGEST_SIZE = 16 * 1024 * 1024
DEEPEST = 128  # the walkers recurse, at five frames a level


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one payload: bytes of its body, levels of nesting, characters of a key."""

    size: int = 256 * 1024
    depth: int = 64
    key_length: int = 255

    def __post_init__(self) -> None:
        for name, most in (("size", LARGEST_SIZE), ("depth", DEEPEST), ("key_length", LARGEST_SIZE)):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise InvalidArgument(f"payload limit {name}={value!r}: give a number from 1 to {most}")
