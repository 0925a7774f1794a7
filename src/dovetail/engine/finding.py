"""Findings in few words, for those who examine a store; and those that every store can have."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.model import Finding, Severity


def ok(check: str, found: str) -> Finding:
    return Finding(check, Severity.OK, found)


def note(check: str, found: str, advice: str = "") -> Finding:
    return Finding(check, Severity.NOTE, found, advice)


def warning(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Severity.WARNING, found, advice)


def problem(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Severity.PROBLEM, found, advice)


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"


def some(names: Sequence[str], shown: int = 3) -> str:
    """The first of some names, and how many more there are."""
    listed = ", ".join(repr(name) for name in names[:shown])
    return listed if len(names) <= shown else f"{listed} and {len(names) - shown} more"


def limits_with_room(limits: Sequence[str]) -> Finding:
    if not limits:
        return ok("limits.stuck", "no run is parked on a limit that has room")
    return warning(
        "limits.stuck",
        f"runs are parked on limits that have room: {some(limits)}",
        "workers wake them when they next sweep; without workers, `dovetail doctor --repair` does",
    )


def orphans(keys: Sequence[str]) -> Finding:
    if not keys:
        return ok("runs.orphaned", "every run that waits has something to wait for")
    return problem(
        "runs.orphaned",
        f"runs wait for others that are gone or over: {some(keys)}",
        "records were removed by hand, or lost: cancel these runs, or schedule them again with docket.replace",
    )
