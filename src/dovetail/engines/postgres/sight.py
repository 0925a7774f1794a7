"""Reading back: runs by query, counts, workers and holds."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec

from dovetail.clock import from_microseconds, to_microseconds
from dovetail.engine.paging import no_cursor
from dovetail.engines.postgres.texts import get, get_any, put
from dovetail.errors import InvalidArgument
from dovetail.model import (
    TAGS,
    TERMINAL,
    AttemptError,
    Failure,
    Hold,
    HoldKind,
    Limit,
    LimitUse,
    Progress,
    QueueCount,
    QueueGlance,
    Run,
    RunGlance,
    RunQuery,
    State,
    WorkerInfo,
    marks_of,
)

_worker = msgspec.json.Decoder(WorkerInfo)
_headers = msgspec.json.Decoder(dict[str, str])

_encode = msgspec.json.encode
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# Not by a cast to JSON, which fails on what it cannot hold, a NUL for one. A quotation mark within a text is escaped.
_TAGS_IN_HEADERS = rf'"{TAGS}":"((?:[^"\\]|\\.)*)"'

_COLUMNS = """id, key, task, state, queue, -priority, due, created, attempt, epoch, payload, crashes, crash_limit,
    tribe, worker, started, finished, lease, stop, parked_on, limits::text, doomed_by, result, error, failures,
    progress, total, message, reported, headers"""


class Statement:
    """A statement that is put together: conditions, and the values they take."""

    def __init__(self, *values: Any) -> None:
        self.values: list[Any] = list(values)
        self.conditions: list[str] = []

    def value(self, value: Any) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def among(self, column: str, wanted: tuple[str, ...]) -> None:
        if wanted:
            self.conditions.append(f"{column} = ANY ({self.value([put(each) for each in wanted])}::text[])")

    def holds(self, condition: str, value: Any) -> None:
        if value is not None:
            self.conditions.append(condition.format(self.value(value)))


def page_of(query: RunQuery, docket: int, now: int) -> Statement:
    """One page and one row more, in the order of the ids, which is that of their making."""
    if query.limit < 1:
        raise InvalidArgument(f"limit must be at least 1, not {query.limit}")
    statement = Statement(docket, now)
    statement.conditions += ["docket = $1", "(expires IS NULL OR expires > $2)"]
    _narrow(statement, query)
    return statement


def _narrow(statement: Statement, query: RunQuery) -> None:
    statement.among("id", query.ids)
    if query.keys:
        keys = statement.value([put(key) for key in query.keys])
        statement.conditions.append(f"(key = ANY ({keys}::text[]) OR (id = ANY ({keys}::text[]) AND key IS NULL))")
    statement.among("state", query.states)
    statement.among("queue", query.queues)
    if query.without_queues:
        statement.holds("queue <> ALL ({}::text[])", [put(each) for each in query.without_queues])
    statement.among("task", query.tasks)
    statement.among("tribe", query.groups)
    for mark in marks_of(query.tags):
        header = statement.value(_TAGS_IN_HEADERS)
        written = _encode(mark).decode()[1:-1]
        statement.holds(f"strpos(',' || substr(substring(headers FROM {header}), 2), {{}}) > 0", put(written))
    statement.holds("starts_with(COALESCE(key, id), {})", query.key_prefix and put(query.key_prefix))
    statement.holds("worker = {}", query.worker if query.worker is None else put(query.worker))
    statement.holds("created > {}", _count(query.created_after))
    statement.holds("created < {}", _count(query.created_before))
    statement.holds("due < {}", _count(query.due_before))
    statement.holds("strpos(error, {}) > 0", query.error_contains and put(query.error_contains))
    if query.latest:
        statement.conditions.append(
            "NOT EXISTS (SELECT FROM {schema}.every_run AS newer WHERE newer.docket = $1"
            " AND newer.key = COALESCE(run.key, run.id) AND (newer.created, newer.id) > (run.created, run.id))"
        )
    if query.cursor is not None:
        if not _ID.fullmatch(query.cursor):
            raise no_cursor(query.cursor)
        if query.parent is None:
            statement.holds("id < {}" if query.newest_first else "id > {}", query.cursor)


def select(statement: Statement, query: RunQuery, schema: str, columns: str = _COLUMNS) -> str:
    live = query.states and not TERMINAL & set(query.states)
    order = "DESC" if query.newest_first else "ASC"
    conditions = " AND ".join(statement.conditions).replace("{schema}", f'"{schema}"')
    source, ordered = f'"{schema}".{"live_run" if live else "every_run"} AS run', "id"
    if query.parent is not None:
        source, ordered = _children(statement, query, put(query.parent), schema, source), "child"
    return f"SELECT {columns} FROM {source} WHERE {conditions} ORDER BY {ordered} {order} LIMIT {query.limit + 1}"  # noqa: S608 - values are bound


def _children(statement: Statement, query: RunQuery, parent: str, schema: str, source: str) -> str:
    """The runs that hang on one. Edges lie in the order of the children, which are looked up one by one, no more than
    the page needs: OFFSET 0 keeps the planner from another way, whatever its statistics say."""
    edges = f'SELECT child FROM "{schema}".edge WHERE docket = $1 AND parent = {statement.value(parent)}'  # noqa: S608 - values are bound
    if query.cursor is not None:
        edges += f" AND child {'<' if query.newest_first else '>'} {statement.value(query.cursor)}"
    edges += f" ORDER BY child {'DESC' if query.newest_first else 'ASC'} OFFSET 0"
    child = f"SELECT * FROM {source} WHERE docket = $1 AND run.id = edge.child OFFSET 0"  # noqa: S608 - the same
    return f"({edges}) AS edge CROSS JOIN LATERAL ({child}) AS run"


def _count(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)


def moment(count: int | None) -> datetime | None:
    return None if count is None else from_microseconds(count)


def run_of(row: tuple[Any, ...], parents: tuple[str, ...], errors: tuple[AttemptError, ...]) -> Run:
    (
        run_id, key, task, state, queue, priority, due, created, attempt, epoch, payload, crashes, crash_limit, tribe,
        worker, started, finished, lease, stop, parked_on, limits, doomed_by, result, error, _, progress, total,
        message, reported, headers,
    ) = row  # fmt: skip
    said = None
    if state == State.RUNNING:
        said = Progress(progress or 0, 100 if total is None else total, get_any(message), moment(reported))
    return Run(
        id=get(run_id), key=get(key if key is not None else run_id), task=get(task), state=State(state),
        queue=get(queue), priority=priority, due=from_microseconds(due), created=from_microseconds(created),
        attempt=attempt, epoch=epoch, payload=bytes(payload), crashes=crashes, crash_limit=crash_limit,
        group=get_any(tribe), worker=get_any(worker), started=moment(started), finished=moment(finished),
        lease_until=moment(lease), stopping=stop, parked_on=get_any(parked_on), limits=limits_of(limits),
        parents=parents, doomed_by=get_any(doomed_by), result=None if result is None else bytes(result),
        error=get_any(error), errors=errors, progress=said, headers=headers_of(headers),
    )  # fmt: skip


class _Limit(msgspec.Struct):
    key: str
    capacity: int
    span: int | None
    drop: bool


_limits = msgspec.json.Decoder(list[_Limit])


def limits_of(text: str | None) -> tuple[Limit, ...]:
    if not text:
        return ()
    return tuple(_limit_of(each) for each in _limits.decode(text))


def _limit_of(kept: _Limit) -> Limit:
    return Limit(get(kept.key), kept.capacity, None if kept.span is None else _span(kept.span), kept.drop)


class _Use(_Limit):
    taken: int
    holders: list[str] | None
    opens: int | None


_uses = msgspec.json.Decoder(list[_Use])


def uses_of(text: str | None, now: int) -> tuple[LimitUse, ...]:
    return tuple(_use_of(each, now) for each in _uses.decode(text)) if text else ()


def _use_of(use: _Use, now: int) -> LimitUse:
    opens = use.opens if use.opens is not None and use.opens > now else None
    return LimitUse(_limit_of(use), use.taken, tuple(map(get, use.holders or ())), moment(opens))


def _span(count: int) -> Any:
    return from_microseconds(count) - from_microseconds(0)


def headers_of(text: str | None) -> dict[str, str]:
    return _headers.decode(get(text)) if text else {}


def error_of(row: tuple[Any, ...]) -> AttemptError:
    attempt, at, worker, kind, message, traceback = row
    failure = Failure(get(kind), get(message), get(traceback))
    return AttemptError(attempt, from_microseconds(at), get_any(worker), failure)


def count_of(row: tuple[Any, ...]) -> QueueCount:
    queue, state, count, due = row
    return QueueCount(get(queue), State(state), count, moment(due))


def worker_of(row: tuple[Any, ...]) -> WorkerInfo:
    last_seen, info = row
    return _worker.decode(info).but(last_seen=from_microseconds(last_seen))


def hold_of(row: tuple[Any, ...]) -> Hold:
    kind, queue, task, parameter, operator, value, reason, owner, since, until = row
    return Hold(
        HoldKind(kind), get_any(queue), get_any(task), get_any(parameter), get(operator),
        None if value is None else bytes(value), get_any(reason), get_any(owner), from_microseconds(since),
        moment(until),
    )  # fmt: skip


def glance_of(row: tuple[Any, ...]) -> RunGlance:
    run_id, key, task, queue, state, attempt, worker, started, finished, lease, error = row
    return RunGlance(
        get(run_id), get(run_id if key is None else key), get(task), get(queue), State(state), attempt, get_any(worker),
        moment(started), moment(finished), moment(lease), get_any(error),
    )  # fmt: skip


def queues_of(rows: list[tuple[Any, ...]], now: int) -> list[QueueGlance]:
    """The queues, from counts by queue, state and whether the runs are parked."""
    found: dict[str, QueueGlance] = {}
    for queue, state, is_parked, count, due in rows:
        if state == State.WAITING or is_parked:
            continue
        seen = found.setdefault(queue, QueueGlance(get(queue))).but(**{state: count})
        if state != State.RUNNING and due <= now:
            # What has become due joins the others only when somebody claims.
            since = from_microseconds(due)
            seen = seen.but(oldest_due=min(seen.oldest_due or since, since))
        found[queue] = seen
    return [found[queue] for queue in sorted(found)]
