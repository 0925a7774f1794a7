"""Plans: claims, finishes and sweeps go by indexes alone, however many runs there are, before any ANALYZE (PG14)."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine, sight
from dovetail.model import Finished, NewRun, RunQuery, Settle, State, new_id

WANT = 100
BACKLOG = """
INSERT INTO dovetail.run (
    docket, id, task, queue, priority, state, due, created, attempt, crash_limit,
    keep_completed, keep_failed, keep_cancelled, payload
)
SELECT %(docket)s, %(state)s || n, 'task', 'default', n %% %(levels)s, %(state)s, %(due)s + n, 0, 1, 3,
    1000, 1000, 1000, 'payload'
FROM generate_series(1, %(count)s) AS n
"""

FAR = 4_000_000_000_000_000
OVER = """
INSERT INTO dovetail.ended (
    docket, id, task, queue, priority, state, due, created, epoch, attempt, crashes, crash_limit, children, failures,
    after_failure, finished, expires, keep_completed, keep_failed, keep_cancelled, keep_archived, keep_most, payload
)
SELECT %(docket)s, %(kind)s || n, 'task', 'default', 0, 'completed', 0, 0, 1, 1, 0, 3, 0, 0, false, n, %(expires)s + n,
    0, 0, 0, %(archived)s, %(most)s, 'payload'
FROM generate_series(1, %(count)s) AS n
"""


@pytest.fixture(scope="module")
def plain(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


class Explained:
    """A connection whose statements are explained, those inside of functions too."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._said: list[str] = []
        self._connection.add_notice_handler(lambda notice: self._said.append(notice.message_primary or ""))
        self._connection.execute(
            "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;"
            "SET auto_explain.log_buffers = on; SET auto_explain.log_nested_statements = on;"
            "SET client_min_messages = log"
        )

    def rows(self, statement: str, *values: Any) -> list[Any]:
        self._said.clear()
        return self._connection.execute(statement.encode(), values).fetchall()

    def numbered(self, statement: str, values: list[Any]) -> list[Any]:
        """The same for a statement whose values are $1, $2 and so on."""
        self._said.clear()
        return psycopg.RawCursor(self._connection).execute(statement.encode(), values).fetchall()

    @property
    def plans(self) -> list[str]:
        return [said for said in self._said if "plan:" in said]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def explained(postgres_url: str) -> Iterator[Explained]:
    with closing(Explained(postgres_url)) as explained:
        yield explained


def check(plans: list[str], most_pages: int, large: str = "run|ended|archive|error|edge") -> None:
    assert plans
    for plan in plans:
        assert not re.search(rf"Seq Scan on ({large})\b", plan), plan
        assert not re.search(r"Rows Removed by Filter: \d{4,}", plan), plan
        # A plan for the whole function counts what is below it as well.
        pages = [int(count) for count in re.findall(r"shared hit=(\d+)", plan)]
        assert max(pages, default=0) < most_pages, plan


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("count", "ageing", "levels"), [(0, None, 1), (1_000, None, 1), (1_000_000, None, 1), (100_000, 60_000_000, 5)]
)
async def test_the_work_of_a_claim_does_not_grow_with_the_backlog(
    postgres_url: str,
    plain: psycopg.Connection[Any],
    explained: Explained,
    count: int,
    ageing: int | None,
    levels: int,
) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    await asyncio.to_thread(_stock, plain, docket, "queued", 0, count, levels)
    await asyncio.to_thread(_stock, plain, docket, "scheduled", FAR, count // 10, levels)
    lease = timedelta(seconds=30) // timedelta(microseconds=1)
    for _ in range(3):
        rows = explained.rows(
            "SELECT * FROM dovetail.claim(%s::bigint, NULL, 'w', %s::bigint, '{}', %s::bigint, NULL, %s::bigint)",
            docket, WANT, lease, ageing,
        )  # fmt: skip
        assert len(rows) == min(count, WANT) + 1, "the last row says how long to wait"
        check(explained.plans, 40 * WANT * levels)
        claims = rows[:-1]
        explained.rows(
            "SELECT dovetail.finish(%s::bigint, NULL, %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], '[]', '')",
            docket, [row[0] for row in claims], [row[1] for row in claims], [0] * len(claims), [-1] * len(claims),
        )  # fmt: skip
        check(explained.plans, 60 * WANT)
    plain.execute("DELETE FROM dovetail.run WHERE docket = %s", (docket,))
    plain.execute("DELETE FROM dovetail.ended WHERE docket = %s", (docket,))


def _wear_index(plain: psycopg.Connection[Any], marks: str, left: int) -> None:
    """Let many runs of another docket pass through the index of what is marked like this, until so many are left: it is
    large then and has few entries, which makes it look expensive."""
    plain.execute("TRUNCATE dovetail.run")
    _stock(plain, -1, "queued", 0, 30_000, 1)
    plain.execute(f"UPDATE dovetail.run SET {marks} WHERE docket = -1".encode())
    plain.execute("DELETE FROM dovetail.run WHERE docket = -1 AND due > %s", (left,))
    plain.execute("VACUUM (ANALYZE) dovetail.run")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("left", [0, 2, 50])
async def test_a_claim_does_not_read_what_waits_after_much_has_run(
    postgres_url: str, plain: psycopg.Connection[Any], explained: Explained, left: int
) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    await asyncio.to_thread(_wear_index, plain, f"state = 'running', worker = 'w', lease = {FAR}", left)
    await asyncio.to_thread(_stock, plain, docket, "queued", 0, 20_000, 1)
    explained.rows("SELECT * FROM dovetail.claim(%s::bigint, NULL, 'w', %s::bigint, '{}', 1::bigint)", docket, WANT)
    check(explained.plans, 40 * WANT)
    plain.execute("TRUNCATE dovetail.run")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("left", [0, 2, 50])
async def test_a_key_is_looked_up_without_reading_what_waits_after_many_had_one(
    postgres_url: str, plain: psycopg.Connection[Any], explained: Explained, left: int
) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    await asyncio.to_thread(_wear_index, plain, "key = 'the key of run ' || id", left)
    await asyncio.to_thread(_stock, plain, docket, "queued", 0, 20_000, 1)
    keyed = {
        "task": "task", "queue": "default", "priority": 0, "due": FAR, "attempt": 1, "crash_limit": 3, "start": 1,
        "keep_completed": 0, "keep_failed": 0, "keep_cancelled": 0, "conflict": "keep", "size": 0, "after": [],
        "after_failure": False,
    }  # fmt: skip
    for step in range(2):  # at first the server reads its catalogue as well
        run = json.dumps([{**keyed, "id": new_id(), "key": f"key {step}"}])
        explained.rows("SELECT dovetail.schedule(%s::bigint, NULL, %s::jsonb, '', false)", docket, run)
        check(explained.plans, 5 * WANT if step else 50 * WANT)
        explained.rows("SELECT dovetail.cancel(%s::bigint, NULL, %s::text[], true)", docket, [f"key {step}", "unknown"])
        check(explained.plans, 5 * WANT if step else 50 * WANT)
    plain.execute("TRUNCATE dovetail.run")


@pytest.mark.timeout(300)
async def test_a_claim_brings_results_by_indexes_alone(
    postgres_url: str, plain: psycopg.Connection[Any], explained: Explained
) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    await asyncio.to_thread(_stock, plain, docket, "queued", 0, 1_000, 1)
    over = {"docket": docket, "kind": "parent", "expires": FAR, "archived": None, "most": None, "count": 100_000}
    await asyncio.to_thread(plain.execute, OVER.encode(), over)
    plain.execute("UPDATE dovetail.run SET wants_results = true WHERE docket = %s", (docket,))
    plain.execute(
        "INSERT INTO dovetail.edge SELECT %s, 'parent' || n, 'queued' || n, true FROM generate_series(1, 1000) AS n",
        (docket,),
    )
    rows = explained.rows(
        "SELECT * FROM dovetail.claim(%s::bigint, NULL, 'w', %s::bigint, '{}', 1::bigint)", docket, WANT
    )
    assert all("parent" in row[13] for row in rows[:-1])
    check([plan for plan in explained.plans if "FROM edge" in plan], 20)
    for table in ("run", "ended", "edge"):
        plain.execute(f"DELETE FROM dovetail.{table} WHERE docket = %s".encode(), (docket,))


def _stock(plain: psycopg.Connection[Any], docket: int, state: str, due: int, count: int, levels: int) -> None:
    values = {"docket": docket, "state": state, "due": due, "count": count, "levels": levels}
    plain.execute(BACKLOG.encode(), values)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("count", [0, 1_000, 300_000])
async def test_the_work_of_a_sweep_does_not_grow_with_what_there_is_to_sweep(
    postgres_url: str, plain: psycopg.Connection[Any], explained: Explained, count: int, stale: bool
) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    if stale:  # the statistics are of a time when other dockets had a little, and nothing for the archive
        others = {"docket": -1, "kind": "kept", "expires": FAR, "archived": None, "most": None, "count": 1_000}
        plain.execute(OVER.encode(), others)
        plain.execute("VACUUM (ANALYZE) dovetail.ended, dovetail.archive")
    for kind, expires, archived, most in (
        ("past", 0, None, None),
        ("ripe", FAR, FAR, None),
        ("counted", FAR, None, WANT),
        ("kept", FAR, None, None),
    ):
        values = {"docket": docket, "kind": kind, "expires": expires, "archived": archived, "most": most}
        await asyncio.to_thread(plain.execute, OVER.encode(), {**values, "count": count})
    for _ in range(3):
        ((answer,),) = explained.rows("SELECT dovetail.sweep(%s::bigint, NULL, 60000000, %s::bigint)", docket, WANT)
        dropped, _, _, _, archived, more = json.loads(answer)["swept"]
        assert (dropped, archived, more) == ((2 * WANT, WANT, True) if count else (0, 0, False))
        check(explained.plans, 60 * WANT)
    for table in ("ended", "archive"):
        plain.execute(f"DELETE FROM dovetail.{table} WHERE docket IN (-1, %s)".encode(), (docket,))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [1_000, 100_000])
async def test_the_work_of_a_step_of_clearing_does_not_grow_with_the_backlog(
    postgres_url: str, plain: psycopg.Connection[Any], explained: Explained, count: int
) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    await asyncio.to_thread(_stock, plain, docket, "queued", 0, count, 1)
    for step in range(3):
        ids = [f"queued{n}" for n in range(step * WANT + 1, (step + 1) * WANT + 1)]
        ((answer,),) = explained.rows("SELECT dovetail.clear(%s::bigint, NULL, %s::text[])", docket, ids)
        assert json.loads(answer)["cleared"] == WANT
        check(explained.plans, 60 * WANT)
    for table in ("run", "ended"):
        plain.execute(f"DELETE FROM dovetail.{table} WHERE docket = %s".encode(), (docket,))


@pytest.mark.timeout(300)
async def test_the_work_of_a_revival_does_not_grow_with_what_is_over(
    postgres_url: str, plain: psycopg.Connection[Any], explained: Explained
) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    values = {"docket": docket, "kind": "kept", "expires": FAR, "archived": None, "most": None, "count": 100_000}
    await asyncio.to_thread(plain.execute, OVER.encode(), values)
    for step in range(3):
        revivals = json.dumps([{"id": f"kept{n}"} for n in range(step * WANT + 1, (step + 1) * WANT + 1)])
        ((answer,),) = explained.rows("SELECT dovetail.revive(%s::bigint, NULL, %s::jsonb, '')", docket, revivals)
        assert json.loads(answer)["answers"] == [True] * WANT
        check(explained.plans, 60 * WANT)
    for table in ("run", "ended"):
        plain.execute(f"DELETE FROM dovetail.{table} WHERE docket = %s".encode(), (docket,))


async def test_a_run_that_starts_while_it_is_about_to_be_cleared_goes_on(
    postgres_url: str, plain: psycopg.Connection[Any]
) -> None:
    """What is to be cleared is found first, and cancelled in a second step."""
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        run = NewRun(new_id(), "a", "task")
        await engine.schedule([run])
        (claim,) = (await engine.claim("worker", 1, lease=timedelta(minutes=1))).claims
        ((answer,),) = plain.execute(
            "SELECT dovetail.clear(%s::bigint, NULL, %s::text[])", (engine._docket, [run.id])
        ).fetchall()
        assert json.loads(answer)["cleared"] == 0
        assert await engine.finish([Settle(claim, State.COMPLETED)]) == [Finished.DONE]


async def test_a_backlog_on_a_full_limit_is_parked_hundreds_at_a_time(
    postgres_url: str, plain: psycopg.Connection[Any], explained: Explained
) -> None:
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    await asyncio.to_thread(_stock, plain, docket, "queued", 0, 10_000, 1)
    limits = json.dumps([{"key": "slots", "capacity": 1, "span": None, "drop": False}])
    plain.execute("UPDATE dovetail.run SET limits = %s::jsonb WHERE docket = %s", (limits, docket))
    rows = explained.rows("SELECT * FROM dovetail.claim(%s::bigint, NULL, 'w', 4, '{}', 30000000)", docket)
    assert len(rows) == 2, "one has the slot; the last row says how long to wait"
    assert len(explained.plans) < 100
    parked = plain.execute("SELECT COUNT(*) FROM dovetail.run WHERE docket = %s AND parked_on = 'slots'", (docket,))
    ((count,),) = parked.fetchall()
    assert 400 < count < 1_500
    plain.execute("DELETE FROM dovetail.run WHERE docket = %s", (docket,))
    plain.execute("DELETE FROM dovetail.slot WHERE docket = %s", (docket,))


@pytest.mark.parametrize("after", ["", "queued20000"])
async def test_a_page_of_children_is_read_without_the_others(
    postgres_url: str, plain: psycopg.Connection[Any], explained: Explained, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sight, "_ID", re.compile(".*"))  # the ids here are no UUIDs
    async with PostgresEngine(postgres_url, new_id(), clock=SYSTEM_CLOCK) as engine:
        docket = engine._docket
    await asyncio.to_thread(_stock, plain, docket, "queued", 0, 50_000, 1)
    plain.execute(
        "INSERT INTO dovetail.edge SELECT %s, 'parent', 'queued' || n, false FROM generate_series(1, 30000) AS n",
        (docket,),
    )
    query = RunQuery(parent="parent", limit=WANT, cursor=after or None)
    statement = sight.page_of(query, docket, 0)
    rows = explained.numbered(sight.select(statement, query, "dovetail"), statement.values)
    assert len(rows) == WANT + 1
    check(explained.plans, 20 * WANT, large="run|edge")  # what is nearly empty may be read as a whole
    for table in ("run", "edge"):
        plain.execute(f"DELETE FROM dovetail.{table} WHERE docket = %s".encode(), (docket,))


def test_a_heartbeat_writes_no_index(plain: psycopg.Connection[Any]) -> None:
    """What a heartbeat changes is in no index and in no condition of one: its updates stay on their page."""
    indexes = plain.execute(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'dovetail' AND tablename = 'run'"
    ).fetchall()
    assert indexes
    assert not [index for (index,) in indexes if "lease" in index]
