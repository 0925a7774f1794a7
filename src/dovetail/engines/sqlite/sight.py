"""Reading back: runs by query, counts and workers."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from dovetail.clock import from_microseconds, to_microseconds
from dovetail.engine.paging import place_of
from dovetail.engines.sqlite.session import Session, load_headers, load_limits, moment_or_none
from dovetail.errors import InvalidArgument
from dovetail.model import (
    TAGS,
    TERMINAL,
    AttemptError,
    Failure,
    Page,
    Progress,
    QueueCount,
    Run,
    RunQuery,
    State,
    Survey,
    WorkerInfo,
    marks_of,
)

_worker = msgspec.json.Decoder(WorkerInfo)

_COLUMNS = """seq, id, COALESCE(key, id) AS key, task, state, queue, -priority AS priority, due, created, attempt,
    epoch, payload, crashes, crash_limit, tribe, worker, started, finished, lease, stop, parked_on, limits, waits_for,
    doomed_by, result, error, failures, progress, total, message, reported, headers"""


def find(session: Session, query: RunQuery) -> Page[Run]:
    """One page. The cursor is the place in the order of arrival, so rows that come and go do not disturb it, nor do
    those that go to the archive."""
    rows = _rows(session, query, "dovetail_run")
    if _may_be_archived(session, query):
        both = [*rows, *_rows(session, query, "dovetail_archive")]
        rows = sorted(both, key=lambda row: row["seq"], reverse=query.newest_first)
    more = len(rows) > query.limit
    rows = rows[: query.limit]
    return Page([_load(session, row) for row in rows], str(rows[-1]["seq"]) if more else None)


def _may_be_archived(session: Session, query: RunQuery) -> bool:
    if query.states and not TERMINAL & set(query.states):
        return False
    return session.one("has_archive", session.docket) is not None


def _rows(session: Session, query: RunQuery, table: str) -> list[sqlite3.Row]:
    """What a table holds of a page, and one row more."""
    # Not with a cursor made beforehand: whoever instruments sqlite3 would show it, and nothing else of ours.
    cursor = session.db.execute(*_select(session, query, table, _COLUMNS))
    cursor.row_factory = sqlite3.Row
    return cursor.fetchall()


def live(session: Session, query: RunQuery, columns: str) -> list[Any]:
    """Some columns of live runs, in the order of a page, and one row more."""
    return session.db.execute(*_select(session, query, "dovetail_run", columns)).fetchall()


def _select(session: Session, query: RunQuery, table: str, columns: str) -> tuple[str, list[Any]]:
    if query.limit < 1:
        raise InvalidArgument(f"limit must be at least 1, not {query.limit}")
    conditions, values = _conditions(session, query, table)
    order = "DESC" if query.newest_first else "ASC"
    statement = f"SELECT {columns} FROM {table} AS run WHERE {' AND '.join(conditions)} ORDER BY seq {order} LIMIT ?"  # noqa: S608 - values are bound
    return statement, [*values, query.limit + 1]


def _conditions(session: Session, query: RunQuery, table: str) -> tuple[list[str], list[Any]]:
    conditions = ["docket = ?", "(expires IS NULL OR expires > ?)"]
    values: list[Any] = [session.docket, session.now]

    def among(column: str, wanted: tuple[str, ...]) -> None:
        if wanted:
            conditions.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values.extend(wanted)

    def holds(condition: str, value: Any) -> None:
        if value is not None:
            conditions.append(condition)
            values.append(value)

    among("id", query.ids)
    if query.keys:
        marks = ", ".join("?" * len(query.keys))
        conditions.append(
            f"seq IN (SELECT seq FROM {table} AS run WHERE docket = ? AND key IN ({marks})"  # noqa: S608 - values are bound
            f" UNION ALL SELECT seq FROM {table} AS run WHERE id IN ({marks}) AND docket = ? AND key IS NULL)"
        )
        values += [session.docket, *query.keys, *query.keys, session.docket]
    among("state", query.states)
    among("queue", query.queues)
    if query.without_queues:
        conditions.append(f"queue NOT IN ({', '.join('?' * len(query.without_queues))})")
        values.extend(query.without_queues)
    among("task", query.tasks)
    among("tribe", query.groups)
    for mark in marks_of(query.tags):
        holds(f"instr(',' || substr(json_extract(headers, '$.\"{TAGS}\"'), 2), ?) > 0", mark)
    holds("instr(COALESCE(key, id), ?) = 1", query.key_prefix)
    holds("worker = ?", query.worker)
    holds("created > ?", query.created_after and to_microseconds(query.created_after))
    holds("created < ?", query.created_before and to_microseconds(query.created_before))
    holds("due < ?", query.due_before and to_microseconds(query.due_before))
    holds("instr(error, ?) > 0", query.error_contains)
    if query.parent is not None:
        conditions.append(
            "seq IN (SELECT child FROM dovetail_edge AS edge WHERE parent IN ("
            "SELECT seq FROM dovetail_run AS run WHERE id = ? AND docket = ?"
            " UNION ALL SELECT seq FROM dovetail_archive AS run WHERE id = ? AND docket = ?))"
        )
        values += [query.parent, session.docket, query.parent, session.docket]
    if query.latest:
        conditions += [_is_newest_in("dovetail_run"), _is_newest_in("dovetail_archive")]
    if query.cursor is not None:
        holds("seq < ?" if query.newest_first else "seq > ?", place_of(query.cursor))
    return conditions, values


def _is_newest_in(table: str) -> str:
    return (
        f"NOT EXISTS (SELECT 1 FROM {table} AS newer WHERE newer.docket = run.docket"  # noqa: S608 - names of our own
        " AND newer.key = COALESCE(run.key, run.id) AND newer.seq > run.seq)"
    )


def _load(session: Session, row: sqlite3.Row) -> Run:
    return Run(
        id=row["id"],
        key=row["key"],
        task=row["task"],
        state=State(row["state"]),
        queue=row["queue"],
        priority=row["priority"],
        due=from_microseconds(row["due"]),
        created=from_microseconds(row["created"]),
        attempt=row["attempt"],
        epoch=row["epoch"],
        payload=row["payload"],
        crashes=row["crashes"],
        crash_limit=row["crash_limit"],
        group=row["tribe"],
        worker=row["worker"],
        started=moment_or_none(row["started"]),
        finished=moment_or_none(row["finished"]),
        lease_until=moment_or_none(row["lease"]),
        stopping=bool(row["stop"]),
        parked_on=row["parked_on"],
        limits=load_limits(row["limits"]),
        parents=tuple(run_id for (run_id,) in session.all("parents_of", row["seq"])),
        doomed_by=row["doomed_by"],
        result=row["result"],
        error=row["error"],
        errors=_errors(session, row["seq"]) if row["failures"] else (),
        progress=_progress(row),
        headers=load_headers(row["headers"]),
    )


def _errors(session: Session, seq: int) -> tuple[AttemptError, ...]:
    return tuple(
        AttemptError(attempt, from_microseconds(at), worker, Failure(kind, message, traceback))
        for attempt, at, worker, kind, message, traceback in session.all("errors_of", seq)
    )


def _progress(row: sqlite3.Row) -> Progress | None:
    if row["state"] != State.RUNNING:
        return None
    total = 100 if row["total"] is None else row["total"]
    return Progress(row["progress"] or 0, total, row["message"], moment_or_none(row["reported"]))


def survey(session: Session) -> Survey:
    counts = [
        QueueCount(queue, State(state), count, moment_or_none(due))
        for queue, state, count, due in session.all("counts", session.docket, session.now)
    ]
    return Survey(from_microseconds(session.now), counts, workers_of(session))


def workers_of(session: Session) -> list[WorkerInfo]:
    return [
        _worker.decode(info).but(last_seen=from_microseconds(last_seen))
        for _, last_seen, info in session.all("workers", session.docket)
    ]
