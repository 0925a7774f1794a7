"""What goes wrong with a server and the way to it. The names PG1 to PG20 are those of the catalogue of failures."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine
from dovetail.errors import EngineFull, EngineUnavailable, OutcomeUnknown
from dovetail.model import (
    Claim,
    EventKind,
    Finished,
    Limit,
    NewRun,
    RunQuery,
    Settle,
    State,
    Topic,
    WorkerInfo,
    new_id,
)
from tests.engines.conftest import as_user
from tests.engines.postgres.killing import kill_backends
from tests.servers.postgres import RELAXED, PostgresServer
from tests.servers.proxy import Proxy, proxy
from tests.waiting import PATIENCE, eventually

LEASE = timedelta(seconds=30)


@pytest.fixture
def name() -> str:
    return new_id()


@pytest.fixture
async def engine(postgres_url: str, name: str) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(postgres_url, name, clock=SYSTEM_CLOCK) as engine:
        yield engine


@pytest.fixture
async def way(postgres_server: PostgresServer) -> AsyncIterator[Proxy]:
    async with proxy("127.0.0.1", postgres_server.port) as way:
        yield way


@pytest.fixture
async def far(way: Proxy, name: str) -> AsyncIterator[PostgresEngine]:
    """An engine behind the proxy, on the same docket."""
    async with PostgresEngine(f"postgresql://postgres@127.0.0.1:{way.port}/postgres", name, clock=SYSTEM_CLOCK) as far:
        yield far


def a_run(key: str | None = None, **fields: Any) -> NewRun:
    run_id = new_id()
    return NewRun(run_id, key or run_id, "task", **fields)


def completed(claims: list[Claim]) -> list[Settle]:
    return [Settle(claim, State.COMPLETED) for claim in claims]


async def claims_of(engine: PostgresEngine, want: int = 100) -> list[Claim]:
    return (await engine.claim("worker", want, lease=LEASE)).claims


async def persistently(call: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call again for as long as it may be repeated, as the worker's parts do."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await call()
            except (EngineUnavailable, OutcomeUnknown):
                await asyncio.sleep(0.01)


# PG2: the reply to a commit is lost


async def test_a_reply_that_is_lost_is_resolved_by_asking_again(
    far: PostgresEngine, way: Proxy, engine: PostgresEngine
) -> None:
    """Requests reach the server, replies do not: each is made again with the same ids, and nothing is done twice."""
    for _ in range(20):
        run = a_run()
        way.lose_replies()
        scheduling = asyncio.create_task(persistently(lambda run=run: far.schedule([run])), name="scheduling")
        await way.swallowed.wait()
        way.restore()
        way.cut()
        ((placement,),) = [await scheduling]
        assert placement.id == run.id
        (claim,) = await claims_of(engine)
        way.lose_replies()
        finishing = asyncio.create_task(persistently(lambda claim=claim: far.finish(completed([claim]))), name="finish")
        await way.swallowed.wait()
        way.restore()
        way.cut()
        assert (await finishing)[0] in (Finished.DONE, Finished.ALREADY)
    runs = await engine.find(RunQuery(limit=1000))
    assert Counter(run.state for run in runs) == {State.COMPLETED: 20}


async def test_a_call_that_must_not_be_repeated_says_that_its_outcome_is_unknown(
    far: PostgresEngine, way: Proxy, engine: PostgresEngine
) -> None:
    await engine.schedule([a_run("a")])
    way.lose_replies()
    cancelling = asyncio.create_task(far.cancel(["a"]), name="cancelling")
    await way.swallowed.wait()
    way.cut()
    with pytest.raises(OutcomeUnknown):
        await cancelling


# PG3: connections die in ways that no driver documents


async def test_no_work_is_lost_or_doubled_while_backends_are_terminated(
    engine: PostgresEngine, postgres_url: str
) -> None:
    stop = asyncio.Event()
    killing = asyncio.create_task(kill_backends(postgres_url, stop, 0.01), name="killing")
    runs = [a_run(crash_limit=1000) for _ in range(400)]  # each claim whose answer is lost looks like a crash
    done: Counter[str] = Counter()

    async def schedule() -> None:
        for run in runs:
            await persistently(lambda run=run: engine.schedule([run]))

    async def work() -> None:
        while sum(done.values()) < len(runs):
            claimed = await persistently(lambda: engine.claim("worker", 20, lease=timedelta(seconds=1)))
            verdicts = completed(claimed.claims)
            answers = await persistently(lambda verdicts=verdicts: engine.finish(verdicts))
            accepted = zip(claimed.claims, answers, strict=True)
            done.update(claim.id for claim, answer in accepted if answer is not Finished.FENCED)

    await asyncio.gather(schedule(), work(), work())
    stop.set()
    assert await killing > 20
    assert done == Counter(run.id for run in runs)


async def test_a_worker_name_is_all_that_a_broken_connection_costs(engine: PostgresEngine, postgres_url: str) -> None:
    """The pool is as good as new after every connection was ended at once."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for _ in range(5):
            await asyncio.gather(*(engine.survey() for _ in range(10)))
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dovetail'")
            await asyncio.gather(*(persistently(engine.survey) for _ in range(10)))


# PG4: deadlocks and serialization failures


async def test_those_who_lock_in_opposite_orders_all_get_through(engine: PostgresEngine, name: str) -> None:
    keys = [f"{n}" for n in range(30)]
    limits = (Limit("a", 5), Limit("b", 5))
    await engine.schedule([a_run(key, limits=limits) for key in keys])

    async def shuffle() -> None:
        for _ in range(20):
            await engine.cancel(random.sample(keys, 10))
            await engine.schedule([a_run(key, limits=random.sample(limits, 2)) for key in random.sample(keys, 10)])
            claimed = await claims_of(engine, 5)
            random.shuffle(claimed)
            await engine.finish(completed(claimed))

    await asyncio.gather(*(shuffle() for _ in range(4)))


# PG5: what is committed out of order is found all the same


async def test_a_run_that_was_committed_late_is_claimed(engine: PostgresEngine, postgres_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_url) as late:
        early = a_run()
        await engine.schedule_within(late, [early])
        await engine.schedule([a_run()])
        assert len(await claims_of(engine)) == 1
        await late.commit()
    assert [claim.id for claim in await claims_of(engine)] == [early.id]


# PG6: the connection that listens dies


async def test_one_who_listens_hears_again_after_his_connection_died(
    engine: PostgresEngine, postgres_url: str, name: str
) -> None:
    async with engine.watch(Topic(EventKind.WORK)) as events:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'dovetail' AND query LIKE '%pg_advisory_lock_shared%'"
            )
        async with asyncio.timeout(PATIENCE):
            await anext(events)  # "look again": hints may have been lost
            async with PostgresEngine(postgres_url, name, clock=SYSTEM_CLOCK) as other:
                await other.schedule([a_run()])
                assert (await anext(events)).kind is EventKind.WORK


# PG7: behind a pooler


async def test_a_pooled_engine_keeps_nothing_in_its_session(postgres_url: str, name: str) -> None:
    """Each statement may meet another server process, so no session may be needed: here each meets a new one."""
    async with PostgresEngine(f"{postgres_url}?pooled=true", name, clock=SYSTEM_CLOCK) as engine:
        await engine.schedule([a_run(), a_run("key")])
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            prepared = admin.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
            assert prepared == (0,)
        await engine.finish(completed(await claims_of(engine)))
        async with engine.watch(Topic(EventKind.WORK)) as events, asyncio.timeout(PATIENCE):
            await anext(events)  # it looks by itself
        with psycopg.connect(postgres_url) as admin:
            listening = admin.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND objsubid = 1"
                " AND pid IN (SELECT pid FROM pg_stat_activity WHERE application_name = 'dovetail')"
            ).fetchone()
            assert listening == (0,)


# PG13: time that passes while a lock is waited for belongs to nobody's lease


async def test_a_lease_counts_from_when_it_was_given(engine: PostgresEngine, postgres_url: str) -> None:
    await engine.schedule([a_run("held", limits=(Limit("one", 1),))])
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute(
            "SELECT pg_advisory_xact_lock(hashtext('dovetail/limits/' || %s), hashtext('one') & 1023)",
            (engine._docket,),
        )
        claiming = asyncio.create_task(engine.claim("worker", 1, lease=LEASE), name="claiming")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(claiming), 1)
    (claim,) = (await claiming).claims
    (run,) = await engine.find(RunQuery(ids=(claim.id,)))
    assert run.lease_until is not None
    assert run.started is not None
    assert run.lease_until - run.started == LEASE


# PG15: racing for a key


async def test_of_many_who_race_for_many_keys_one_each_wins(postgres_url: str, name: str) -> None:
    engines = [PostgresEngine(postgres_url, name, clock=SYSTEM_CLOCK) for _ in range(4)]
    await asyncio.gather(*(engine.__aenter__() for engine in engines))
    keys = [f"{n}" for n in range(100)]
    answers = await asyncio.gather(
        *(engine.schedule([a_run(key)]) for key in keys for engine in random.sample(engines, 4))
    )
    winners: dict[int, set[str]] = {}
    for n, (placement,) in enumerate(answers):
        winners.setdefault(n // 4, set()).add(placement.id)
    assert all(len(ids) == 1 for ids in winners.values())
    assert len(await engines[0].find(RunQuery(limit=1000))) == 100
    await asyncio.gather(*(engine.__aexit__() for engine in engines))


# PG18: a stranger takes all connections


async def test_leases_are_renewed_though_no_more_connections_can_be_made(name: str) -> None:
    server = PostgresServer(None, *RELAXED, "-c", "max_connections=12", "-c", "superuser_reserved_connections=0")
    server.create().start()
    taken: list[psycopg.Connection[Any]] = []
    try:
        async with PostgresEngine(server.url(), name, clock=SYSTEM_CLOCK) as engine, engine.twin() as pulse:
            await engine.schedule([a_run()])
            held = await claims_of(engine)
            await pulse.heartbeat(WorkerInfo("w", id="w"), held, lease=LEASE)
            with suppress(psycopg.OperationalError):
                while True:
                    taken.append(psycopg.connect(server.url()))
            beat = await pulse.heartbeat(WorkerInfo("w", id="w"), held, lease=LEASE)
            assert beat.lost == frozenset()
            with pytest.raises(EngineUnavailable):
                await PostgresEngine(server.url(), name, clock=SYSTEM_CLOCK).__aenter__()
    finally:
        for each in taken:
            each.close()
        server.remove()


# A server that is killed, and comes back


async def test_what_was_acknowledged_survives_a_killed_server(name: str) -> None:
    server = PostgresServer(None, "-c", "fsync=on").create().start()
    try:
        async with PostgresEngine(server.url(), name, clock=SYSTEM_CLOCK) as engine:
            acknowledged: list[str] = []

            async def schedule() -> None:
                for _ in range(300):
                    run = a_run()
                    await persistently(lambda run=run: engine.schedule([run]))
                    acknowledged.append(run.id)

            scheduling = asyncio.create_task(schedule(), name="scheduling")
            for _ in range(3):
                enough = len(acknowledged) + 20
                await eventually(lambda enough=enough: len(acknowledged) >= enough or scheduling.done())
                server.kill()
                await asyncio.to_thread(server.start)
            await scheduling
            kept = {run.id for run in (await persistently(lambda: engine.find(RunQuery(limit=1000)))).items}
            assert kept == set(acknowledged)
    finally:
        server.remove()


# PG20: no room


async def test_a_server_without_room_says_so(engine: PostgresEngine, postgres_url: str) -> None:
    """A quota cannot be had here, so the server's own word for a full disk is raised by a trigger of the test's."""
    schema = f"full{new_id().replace('-', '')}"
    async with PostgresEngine(f"{postgres_url}?schema={schema}", "docket", clock=SYSTEM_CLOCK) as full:
        await full.schedule([a_run()])
        (claim,) = await claims_of(full)
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(
                f"CREATE FUNCTION {schema}.no_room() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file'; END $$;"
                f"CREATE TRIGGER full_ BEFORE INSERT ON {schema}.run FOR EACH ROW"
                f" EXECUTE FUNCTION {schema}.no_room()".encode()
            )
            with pytest.raises(EngineFull, match="no room"):
                await full.schedule([a_run()])
            assert await full.finish(completed([claim])) == [Finished.DONE]
            admin.execute(f"DROP TRIGGER full_ ON {schema}.run".encode())
        await full.schedule([a_run()])
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"DROP SCHEMA {schema} CASCADE".encode())


# PG11: a role whose statements are cut short


async def test_the_timeouts_of_a_role_are_not_ours(postgres_url: str, name: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(80)")
        if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'test_hasty'").fetchone():
            admin.execute("CREATE ROLE test_hasty LOGIN SUPERUSER PASSWORD 'secret'")
            admin.execute("ALTER ROLE test_hasty SET statement_timeout = '5ms'")
    async with PostgresEngine(as_user(postgres_url, "test_hasty"), name, clock=SYSTEM_CLOCK) as engine:
        await engine.schedule([a_run() for _ in range(5000)])
        assert len(await claims_of(engine, 1000)) == 1000
