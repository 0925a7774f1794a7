"""What is sent to the scripts and what comes back: nouns to bytes, and bytes to nouns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from dovetail.clock import duration_to_microseconds, from_microseconds, to_microseconds
from dovetail.errors import UsageError
from dovetail.model import (
    AttemptError,
    Claim,
    Due,
    Event,
    EventKind,
    Failure,
    Hold,
    HoldKind,
    Limit,
    LimitUse,
    NewRun,
    Progress,
    Result,
    Retention,
    Run,
    RunGlance,
    Settle,
    Standing,
    State,
    Verdict,
    WorkerInfo,
)

encode = msgspec.msgpack.encode
decode = msgspec.msgpack.decode

LONGEST_KEPT = 4 * 10**15
"""Microseconds, more than a century: what is kept longer is kept for ever. Lua's numbers are exact up to 9 * 10**15."""
_USUAL = Retention()
_NO_HEADERS: dict[str, str] = {}


class Draft(msgspec.Struct, omit_defaults=True):
    """A run's record, as far as the caller knows it. What is left out is as usual."""

    id: str
    queue: str
    due: int | str  # a delay, or, as text, a moment
    key: str | None = None
    priority: int = 0
    group: str | None = None
    weight: float = 1.0
    limits: list[Any] | None = None
    keep: tuple[int, int, int] | None = None
    crash_limit: int = 3
    attempt: int = 1
    after: tuple[str, ...] | None = None
    after_failure: bool = False
    conflict: str = "keep"
    instead_of: str | None = None
    counted: tuple[str, int] | None = None  # the task, and how many of it are kept
    wants_results: bool = False


# Scheduling


def draft(run: NewRun) -> Draft:
    return Draft(
        run.id,
        run.queue,
        due(run.due),
        None if run.key == run.id else run.key,
        run.priority,
        run.group,
        run.weight if run.group is not None else 1.0,
        [_limit(limit) for limit in run.limits] if run.limits else None,
        None if run.retention is _USUAL or run.retention == _USUAL else _keeps(run.retention),
        run.crash_limit,
        run.attempt,
        run.after or None,
        run.after_failure,
        run.conflict,
        run.instead_of,
        None if run.retention.keep is None else (run.task, run.retention.keep),
        run.wants_results,
    )


def due(moment: Due) -> int | str:
    return duration_to_microseconds(moment) if isinstance(moment, timedelta) else str(to_microseconds(moment))


def _limit(limit: Limit) -> list[Any]:
    window = False if limit.window is None else duration_to_microseconds(limit.window)
    return [limit.key, limit.capacity, window, limit.drop]


@lru_cache(maxsize=256)
def _keeps(retention: Retention) -> tuple[int, int, int]:
    if retention.archive is not None:
        raise UsageError(
            "Redis has no archive, and retention.archive asks for one; keep the records for longer, or keep the docket"
            " in PostgreSQL or SQLite"
        )
    kept = (retention.completed, retention.failed, retention.cancelled)
    completed, failed, cancelled = (min(duration_to_microseconds(each), LONGEST_KEPT) for each in kept)
    return completed, failed, cancelled


def call(task: str, headers: Mapping[str, str], payload: bytes) -> bytes:
    """What only the task has to know: how long its name and headers are, these, and the arguments."""
    return (_described(task, dict(headers)) if headers else _plain(task)) + payload


@lru_cache(maxsize=1024)
def _plain(task: str) -> bytes:
    return _described(task, None)


def _described(task: str, headers: dict[str, str] | None) -> bytes:
    text = encode((task, headers))
    return len(text).to_bytes(4, "big") + text


def parts_of(blob: bytes) -> tuple[str, dict[str, str], bytes]:
    """Task, headers and arguments of a call."""
    end = 4 + int.from_bytes(blob[:4], "big")
    task, headers = _described_by(blob[4:end])
    return task, headers or _NO_HEADERS, blob[end:]


@lru_cache(maxsize=1024)
def _described_by(text: bytes) -> tuple[str, dict[str, str] | None]:
    task, headers = decode(text)
    return task, headers


# Finishing


def verdict(given: Verdict) -> tuple[tuple[Any, ...], list[bytes]]:
    """A verdict, and the bytes that go with it."""
    claim, failure = given.claim, _failure(given.failure)
    if isinstance(given, Settle):
        blobs = [call(run.task, run.headers, run.payload) for run in given.then]
        if given.result is not None:
            blobs.insert(0, given.result)
        then = [draft(run) for run in given.then]
        return (claim.id, claim.epoch, "s", given.state, given.result is not None, failure, then, given.unbegun), blobs
    blobs = [] if given.payload is None else [given.payload]
    poisoned = given.crashed and _failure(given.poisoned)
    head = (claim.id, claim.epoch, "r", given.attempt, due(given.due), bool(blobs), failure, poisoned, given.unbegun)
    return head, blobs


def _failure(failure: Failure | None) -> tuple[str, str, str] | bool:
    return (failure.type, failure.message, failure.traceback) if failure else False


# Reading


def claim(head: Sequence[Any], blob: bytes) -> Claim:
    run_id, epoch, key, attempt, moment, queue, priority, group, redelivered, crashes = head
    task, headers, payload = parts_of(blob)
    return Claim(
        run_id, epoch, run_id if key is False else key, task, payload, attempt, from_microseconds(int(moment)), queue,
        priority, None if group is False else group, redelivered, crashes, headers,
    )  # fmt: skip


def results(brought: Sequence[Any]) -> dict[int, list[Result]]:
    """What was brought along for claims, by their number in the answer."""
    found: dict[int, list[Result]] = {}
    for number, run_id, blob, value in zip(*[iter(brought)] * 4, strict=True):
        found.setdefault(number, []).append(Result(run_id.decode(), parts_of(blob)[0], value))
    return found


def run(record: dict[str, Any], run_id: str, blob: bytes, result: bytes, errors: list[bytes]) -> Run:
    task, headers, payload = parts_of(blob)
    state = State(record["state"])
    return Run(
        id=run_id,
        key=record.get("key", run_id),
        task=task,
        state=state,
        queue=record["queue"],
        priority=record.get("priority", 0),
        due=from_microseconds(int(record["due"])),
        created=from_microseconds(record["created"]),
        attempt=record.get("attempt", 1),
        epoch=record.get("epoch", 0),
        payload=payload,
        crashes=record.get("crashes", 0),
        crash_limit=record.get("crash_limit", 3),
        group=record.get("group"),
        worker=record.get("worker"),
        started=moment_or_none(record.get("started")),
        finished=moment_or_none(record.get("finished")),
        lease_until=moment_or_none(record.get("lease")),
        stopping=record.get("stop", False),
        parked_on=record.get("parked"),
        limits=tuple(_load_limit(*each) for each in record.get("limits", ())),
        parents=tuple(record.get("parents", ())),
        doomed_by=record.get("doomed"),
        result=result if record.get("has_result") else None,
        error=record.get("error"),
        errors=tuple(_load_error(*decode(line)) for line in errors),
        progress=_progress(record.get("progress") or {"current": 0, "total": 100}) if state is State.RUNNING else None,
        headers=headers,
    )


def standing(head: bytes, workers: list[WorkerInfo]) -> Standing:
    now, state, epoch, parked, ahead, uses = decode(head)
    return Standing(
        from_microseconds(now), State(state), epoch, None if parked is False else parked, ahead,
        tuple(_load_use(*use) for use in uses), tuple(workers),
    )  # fmt: skip


def _load_use(limit: list[Any], taken: int, holders: list[str], opens: int) -> LimitUse:
    return LimitUse(_load_limit(*limit), taken, tuple(holders or ()), moment_or_none(opens or None))


def _load_limit(key: str, capacity: int, window: int | bool, drop: bool) -> Limit:
    return Limit(key, capacity, None if window is False else timedelta(microseconds=window), drop)


def _load_error(attempt: int, at: int, worker: str | bool, kind: str, message: str, traceback: str) -> AttemptError:
    failure = Failure(kind, message, traceback)
    return AttemptError(attempt, from_microseconds(at), None if worker is False else str(worker), failure)


def _progress(kept: dict[str, Any]) -> Progress:
    return Progress(kept["current"], kept["total"], kept.get("message"), moment_or_none(kept.get("updated")))


def run_glance(told: Sequence[Any]) -> RunGlance:
    run_id, key, task, queue, state, attempt, *rest = told
    worker, started, finished, lease, error = (None if each is False else each for each in rest)
    return RunGlance(
        run_id, key, task, queue, State(state), attempt, worker, moment_or_none(started), moment_or_none(finished),
        moment_or_none(lease), error,
    )  # fmt: skip


def moment_or_none(count: int | None) -> datetime | None:
    return None if count is None else from_microseconds(int(count))


def event(told: dict[str, Any]) -> Event:
    state, progress = told.get("state"), told.get("progress")
    return Event(
        EventKind(told["kind"]),
        told.get("key"),
        told.get("id"),
        State(state) if state else None,
        moment_or_none(told.get("when")),
        told.get("worker"),
        moment_or_none(told.get("started")),
        moment_or_none(told.get("finished")),
        told.get("error"),
        told.get("has_result", False),
        _progress(progress) if progress else None,
    )


# Holds


def identity(hold: Hold) -> str:
    return msgspec.json.encode(hold.identity).decode()


def hold(given: Hold) -> tuple[Any, ...]:
    return (
        identity(given),
        paused_queue(given),
        to_microseconds(given.until) if given.until else 0,
        given.reason if given.reason is not None else False,
        given.owner if given.owner is not None else False,
        to_microseconds(given.since) if given.since else False,
    )


def paused_queue(hold: Hold) -> str | bool:
    return hold.queue if hold.kind is HoldKind.PAUSE and hold.queue is not None else False


_identities = msgspec.json.Decoder(tuple[HoldKind, str | None, str | None, str | None, str, bytes | None])


def load_hold(name: bytes, kept: bytes) -> Hold:
    until, reason, owner, since, _ = decode(kept)
    kind, queue, task, parameter, operator, value = _identities.decode(name)
    return Hold(
        kind, queue, task, parameter, operator, value, None if reason is False else reason,
        None if owner is False else owner, from_microseconds(int(since)), moment_or_none(until or None),
    )  # fmt: skip
