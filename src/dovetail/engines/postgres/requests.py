"""Runs, verdicts and the rest as the functions in the database take them: JSON, and bytes laid end to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

import msgspec

from dovetail.clock import duration_to_microseconds, to_microseconds
from dovetail.engines.postgres.texts import put
from dovetail.model import (
    Due,
    Failure,
    Hold,
    Limit,
    NewRun,
    ProgressReport,
    Requeue,
    Retention,
    Revival,
    Settle,
    State,
    Verdict,
)

LONGEST_KEPT = 10**17
"""Microseconds, some three thousand years: what is kept longer is kept for ever."""
_encode = msgspec.json.encode

Shape = tuple[Any, ...]


class Blobs:
    """Bytes laid end to end: one value to send, whatever their number."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._end = 1  # the database counts from one

    def add(self, part: bytes) -> int:
        """Where the part begins."""
        start = self._end
        self._parts.append(part)
        self._end += len(part)
        return start

    def joined(self) -> bytes:
        return b"".join(self._parts)


# Scheduling


def of_runs(runs: Sequence[NewRun], blobs: Blobs) -> list[dict[str, Any]]:
    """The runs as requests: neighbours that differ in id, due time and payload alone share one."""
    requests: list[dict[str, Any]] = []
    for shape, alike in groupby(runs, _shape):
        if shape is None:
            requests += [_one(run, blobs) for run in alike]
        else:
            requests.append(_many(list(alike), blobs))
    return requests


def of_plain_run(run: NewRun) -> tuple[Any, ...]:
    """A run that has nothing but arguments, as `schedule_plain` takes it."""
    is_delayed = isinstance(run.due, timedelta)
    return (
        run.id, put(run.task), put(run.queue), -run.priority,
        None if is_delayed else to_microseconds(run.due),  # pyright: ignore[reportArgumentType]
        duration_to_microseconds(run.due) if is_delayed else None,  # pyright: ignore[reportArgumentType]
        run.attempt, run.crash_limit, *_kept(run.retention), run.payload, run.conflict.value,
    )  # fmt: skip


def is_plain_run(run: NewRun) -> bool:
    return _shape(run) is not None and run.retention.keep is None and run.retention.archive is None


def _shape(run: NewRun) -> Shape | None:
    """What runs must have in common to share a request; None for one that has to be placed by itself."""
    if run.key != run.id or run.after or run.limits or run.headers or run.group is not None or "," in run.id:
        return None
    if run.instead_of is not None:
        return None
    is_delayed = isinstance(run.due, timedelta)
    delay = run.due if is_delayed else None
    return (
        delay,
        is_delayed,
        run.conflict,
        run.task,
        run.queue,
        run.priority,
        run.attempt,
        run.crash_limit,
        run.retention,
    )


def _many(runs: list[NewRun], blobs: Blobs) -> dict[str, Any]:
    first = runs[0]
    start = blobs.add(first.payload)
    for run in runs[1:]:
        blobs.add(run.payload)
    request: dict[str, Any] = {
        "ids": ",".join([run.id for run in runs]),
        "sizes": ",".join([str(len(run.payload)) for run in runs]),
        "start": start,
        **_common(first),
    }
    if isinstance(first.due, timedelta):
        request["delay"] = duration_to_microseconds(first.due)
    else:
        request["dues"] = ",".join([str(to_microseconds(run.due)) for run in runs])  # pyright: ignore[reportArgumentType]
    return request


def _common(run: NewRun) -> dict[str, Any]:
    completed, failed, cancelled = _kept(run.retention)
    common: dict[str, Any] = {
        "conflict": run.conflict,
        "task": run.task,
        "queue": run.queue,
        "priority": -run.priority,
        "attempt": run.attempt,
        "crash_limit": run.crash_limit,
        "keep_completed": completed,
        "keep_failed": failed,
        "keep_cancelled": cancelled,
    }
    if run.retention.keep is not None:
        common["keep_most"] = run.retention.keep
    if run.retention.archive is not None:
        common["keep_archived"] = _bounded(run.retention.archive)
    return common


def _one(run: NewRun, blobs: Blobs) -> dict[str, Any]:
    wanted = {"wants_results": True} if run.wants_results else {}
    return {
        "id": run.id,
        "key": None if run.key == run.id else run.key,
        "group": run.group,
        "weight": run.weight if run.group is not None else None,
        "after": run.after,
        "after_failure": run.after_failure,
        "instead_of": run.instead_of,
        "limits": [_limit(limit) for limit in run.limits] or None,
        "headers": _encode(run.headers).decode() if run.headers else None,
        "start": blobs.add(run.payload),
        "size": len(run.payload),
        **wanted,
        **_common(run),
        **_due(run.due),
    }


def _limit(limit: Limit) -> dict[str, Any]:
    span = None if limit.window is None else duration_to_microseconds(limit.window)
    return {"key": limit.key, "capacity": limit.capacity, "span": span, "drop": limit.drop}


def _due(due: Due) -> dict[str, int]:
    if isinstance(due, timedelta):
        return {"delay": duration_to_microseconds(due)}
    return {"due": to_microseconds(due)}


def _kept(retention: Retention) -> tuple[int, int, int]:
    kept = (retention.completed, retention.failed, retention.cancelled)
    completed, failed, cancelled = map(_bounded, kept)
    return completed, failed, cancelled


def _bounded(duration: timedelta) -> int:
    return min(duration_to_microseconds(duration), LONGEST_KEPT)


# Finishing


def is_plain(verdict: Verdict) -> bool:
    """Whether a verdict says that the run completed, and no more than its result."""
    return (
        isinstance(verdict, Settle)
        and verdict.state is State.COMPLETED
        and verdict.failure is None
        and not verdict.then
    )


def split(verdicts: Sequence[Verdict]) -> tuple[list[Settle], list[Verdict]]:
    """Those that can be settled before the others, all at once, each the only word on its run; and the others."""
    spoken_of = Counter([verdict.claim.id for verdict in verdicts])
    plain: list[Settle] = []
    others: list[Verdict] = []
    for verdict in verdicts:
        if isinstance(verdict, Settle) and is_plain(verdict) and spoken_of[verdict.claim.id] == 1:
            plain.append(verdict)
        else:
            others.append(verdict)
    # In one order, so that two who finish the same runs do not wait for each other.
    plain.sort(key=lambda verdict: verdict.claim.id)
    return plain, others


def of_plain(verdicts: list[Settle], blobs: Blobs) -> tuple[list[str], list[int], list[int], list[int]]:
    """Ids, epochs, and where each result begins and ends."""
    starts: list[int] = []
    sizes: list[int] = []
    for verdict in verdicts:
        result = verdict.result
        starts.append(0 if result is None else blobs.add(result))
        sizes.append(-1 if result is None else len(result))
    return [put(each.claim.id) for each in verdicts], [each.claim.epoch for each in verdicts], starts, sizes


def of_verdict(verdict: Verdict, blobs: Blobs) -> dict[str, Any]:
    claim = verdict.claim
    said: dict[str, Any] = {"id": claim.id, "epoch": claim.epoch}
    if verdict.failure is not None:
        said["failure"] = _failure(verdict.failure)
        said["error"] = str(verdict.failure)
    if verdict.unbegun:
        said["unbegun"] = True
    if isinstance(verdict, Requeue):
        said |= {"key": claim.key, "attempt": verdict.attempt, "claimed_attempt": claim.attempt, **_due(verdict.due)}
        if verdict.crashed:
            said |= {"poisoned": _failure(verdict.poisoned), "poisoned_error": str(verdict.poisoned)}
        body = verdict.payload
    else:
        said |= {"state": verdict.state, "then": of_runs(verdict.then, blobs)}
        body = verdict.result
    if body is not None:
        said |= {"start": blobs.add(body), "size": len(body)}
    return said


def _failure(failure: Failure) -> dict[str, str]:
    return {"type": failure.type, "message": failure.message, "traceback": failure.traceback}


# The rest


def of_report(report: ProgressReport) -> dict[str, Any]:
    return {
        "key": report.key,
        "id": report.id,
        "epoch": report.epoch,
        "increment": report.increment,
        "total": report.total,
        "message": report.message,
        "clear": report.clear_message,
    }


def of_revival(revival: Revival, blobs: Blobs) -> dict[str, Any]:
    if revival.payload is None:
        return {"id": revival.id}
    return {"id": revival.id, "start": blobs.add(revival.payload), "size": len(revival.payload)}


def of_hold(hold: Hold) -> dict[str, Any]:
    return {
        "identity": identity_of(hold),
        "kind": hold.kind,
        "queue": hold.queue,
        "task": hold.task,
        "parameter": hold.parameter,
        "operator": hold.operator,
        "value": None if hold.value is None else hold.value.hex(),
        "reason": hold.reason,
        "owner": hold.owner,
        "since": None if hold.since is None else to_microseconds(hold.since),
        "until": None if hold.until is None else to_microseconds(hold.until),
    }


def identity_of(hold: Hold) -> str:
    return _encode(hold.identity).hex()
