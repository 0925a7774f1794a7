"""What an examination found, and what was put right."""

from __future__ import annotations

from enum import StrEnum

from dovetail.model.noun import Noun


class Severity(StrEnum):
    OK = "ok"
    NOTE = "note"  # worth knowing; nothing has to be done
    WARNING = "warning"  # it works, and may not for long, or not as it should
    PROBLEM = "problem"  # something is lost, stands still, or will

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Finding(Noun, frozen=True):
    """What one check has found, and what to do about it. The name of a check never changes."""

    check: str
    severity: Severity
    found: str
    advice: str = ""


class Repair(Noun, frozen=True):
    """Something that was put right, and how often."""

    what: str
    count: int
