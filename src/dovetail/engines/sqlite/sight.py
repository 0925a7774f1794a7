"""Reading back: runs by query, counts and workers."""

from __future__ import annotations

from operator import itemgetter
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
    epoch, payload, crashes, crash_limit, tribe, worker, started, finished, lease, stop, parked_on, limits, doomed_by,
    result, error, failures, progress, total, message, reported, headers"""
SEQ, FAILURES = 0, 25
"""Where these stand among the columns."""

_encode = msgspec.json.encode


def find(session: Session, query: RunQuery) -> Page[Run]:
    """One page. The cursor is the place in the order of arrival, so rows that come and go do not disturb it, nor do
    those that go to the archive."""
    rows = _rows(session, query, "dovetail_run", _COLUMNS)
    if _may_be_archived(session, query):
        both = [*rows, *_rows(session, query, "dovetail_archive", _COLUMNS)]
        rows = sorted(both, key=itemgetter(SEQ), reverse=query.newest_first)
    more = len(rows) > query.limit
    rows = rows[: query.limit]
    parents = _parents(session, [row[SEQ] for row in rows])
    runs = [
        _load(row, tuple(parents.get(row[SEQ], ())), _errors(session, row[SEQ]) if row[FAILURES] else ())
        for row in rows
    ]
    return Page(runs, str(rows[-1][SEQ]) if more else None)


def _may_be_archived(session: Session, query: RunQuery) -> bool:
    if query.states and not TERMINAL & set(query.states):
        return False
    return session.one("has_archive", session.docket) is not None


def live(session: Session, query: RunQuery, columns: str) -> list[Any]:
    """Some columns of live runs, in the order of a page, and one row more."""
    return _rows(session, query, "dovetail_run", columns)


def _rows(session: Session, query: RunQuery, table: str, columns: str) -> list[Any]:
    """What a table holds of a page, and one row more."""
    if query.limit < 1:
        raise InvalidArgument(f"limit must be at least 1, not {query.limit}")
    conditions, values = _conditions(session, query, table)
    order = "DESC" if query.newest_first else "ASC"
    statement = f"SELECT {columns} FROM {table} AS run WHERE {' AND '.join(conditions)} ORDER BY seq {order} LIMIT ?"  # noqa: S608 - values are bound
    return session.db.execute(statement, [*values, query.limit + 1]).fetchall()


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


def _load(row: tuple[Any, ...], parents: tuple[str, ...], errors: tuple[AttemptError, ...]) -> Run:
    (
        _, run_id, key, task, state, queue, priority, due, created, attempt, epoch, payload, crashes, crash_limit,
        tribe, worker, started, finished, lease, stop, parked_on, limits, doomed_by, result, error, _, progress, total,
        message, reported, headers,
    ) = row  # fmt: skip
    said = None
    if state == State.RUNNING:
        said = Progress(progress or 0, 100 if total is None else total, message, moment_or_none(reported))
    return Run(
        id=run_id, key=key, task=task, state=State(state), queue=queue, priority=priority, due=from_microseconds(due),
        created=from_microseconds(created), attempt=attempt, epoch=epoch, payload=payload, crashes=crashes,
        crash_limit=crash_limit, group=tribe, worker=worker, started=moment_or_none(started),
        finished=moment_or_none(finished), lease_until=moment_or_none(lease), stopping=bool(stop), parked_on=parked_on,
        limits=load_limits(limits), parents=parents, doomed_by=doomed_by, result=result, error=error, errors=errors,
        progress=said, headers=load_headers(headers),
    )  # fmt: skip


def _parents(session: Session, seqs: list[int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for child, parent in session.all("parents_of", _encode(seqs).decode()):
        found.setdefault(child, []).append(parent)
    return found


def _errors(session: Session, seq: int) -> tuple[AttemptError, ...]:
    return tuple(
        AttemptError(attempt, from_microseconds(at), worker, Failure(kind, message, traceback))
        for attempt, at, worker, kind, message, traceback in session.all("errors_of", seq)
    )


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
