"""Why a value or a text was refused, before the codec knows whose it is."""

from __future__ import annotations

from typing import Any

from dovetail.codec.kinds import name_of


class Refused(Exception):  # it never leaves the package
    """A reason, to be finished by the codec with the parameter it is about.

    A reason names types and places, never values: arguments do not belong in logs.
    """


class Foreign(Refused):
    """The value is of a type outside the closed list, so only an annotation can bring it back."""

    def __init__(self, kind: type[Any]) -> None:
        super().__init__(f"a value of type {name_of(kind)} cannot be stored as JSON")
        self.kind = kind


class TooLarge(Refused):
    """The value would not fit, whatever its type."""
