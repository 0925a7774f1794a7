"""What an examination says of a server, brought about on a server of its own."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from dovetail.clock import SYSTEM_CLOCK
from dovetail.engines.postgres import PostgresEngine, examining
from dovetail.errors import EngineUnavailable
from dovetail.model import Finding, Limit, NewRun, Severity, new_id
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import CHUNK, Proxy
from tests.waiting import PATIENCE

LEASE = timedelta(seconds=30)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One whose settings are the server's own, and can be changed while it runs."""
    server = PostgresServer(None, "-c", "max_prepared_transactions=2").create().start()
    yield server
    server.remove()


@pytest.fixture
def admin(server: PostgresServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def opened(url: str, durability: str = "durable") -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(url, new_id(), clock=SYSTEM_CLOCK, durability=durability) as engine:
        yield engine


async def found(engine: PostgresEngine) -> dict[str, Finding]:
    return {each.check: each for each in await engine.examine()}


async def severities(url: str, durability: str = "durable") -> dict[str, Severity]:
    async with opened(url, durability) as engine:
        return {check: each.severity for check, each in (await found(engine)).items()}


async def test_a_server_as_it_should_be(server: PostgresServer) -> None:
    assert set((await severities(server.url())).values()) == {Severity.OK}


async def test_less_durability_is_worth_a_note(server: PostgresServer) -> None:
    assert (await severities(server.url(), "process"))["postgres.commit"] is Severity.NOTE


async def test_a_server_that_does_not_wait_for_its_disk(postgres_url: str) -> None:
    told = await severities(postgres_url)
    assert (told["postgres.fsync"], told["postgres.commit"]) == (Severity.PROBLEM, Severity.PROBLEM)
    assert (await severities(postgres_url, "process"))["postgres.fsync"] is Severity.NOTE


async def test_a_user_with_settings_of_its_own(server: PostgresServer, admin: psycopg.Connection) -> None:
    admin.execute("DROP ROLE IF EXISTS impatient")
    admin.execute("CREATE ROLE impatient LOGIN SUPERUSER")
    admin.execute("ALTER ROLE impatient SET statement_timeout = '2s'")
    admin.execute("ALTER ROLE impatient SET synchronous_commit = 'off'")
    told = await severities(server.url(user="impatient"))
    assert (told["postgres.timeouts"], told["postgres.commit"]) == (Severity.NOTE, Severity.PROBLEM)


async def test_a_transaction_that_lies_idle(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "IDLE", timedelta())
    async with await psycopg.AsyncConnection.connect(server.url()) as idle:
        await idle.execute("SELECT 1")
        async with opened(server.url()) as engine:
            finding = (await found(engine))["postgres.idle_transactions"]
        assert (finding.severity, f"pid {idle.info.backend_pid} of postgres" in finding.found) == (
            Severity.WARNING,
            True,
        )


async def test_a_prepared_transaction_left_behind(
    server: PostgresServer, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "PREPARED", timedelta())
    admin.execute("BEGIN")
    admin.execute("PREPARE TRANSACTION 'left'")
    try:
        assert (await severities(server.url()))["postgres.prepared"] is Severity.WARNING
    finally:
        admin.execute("ROLLBACK PREPARED 'left'")


async def test_dead_rows(server: PostgresServer, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "DEAD", 50)
    async with opened(server.url()) as engine:
        await engine.schedule([NewRun(new_id(), f"{n}", "task") for n in range(200)])
        admin.execute("ALTER TABLE dovetail.run SET (autovacuum_enabled = off)")
        admin.execute("DELETE FROM dovetail.run")
        try:
            async with asyncio.timeout(PATIENCE):
                while (finding := (await found(engine))["postgres.tables"]).severity is not Severity.WARNING:
                    admin.execute("SELECT pg_stat_force_next_flush()")  # statistics come when the server likes
            assert "'run'" in finding.found
        finally:
            admin.execute("ALTER TABLE dovetail.run RESET (autovacuum_enabled)")


async def test_autovacuum_switched_off(server: PostgresServer, admin: psycopg.Connection) -> None:
    admin.execute("ALTER SYSTEM SET autovacuum = off")
    admin.execute("SELECT pg_reload_conf()")
    try:
        async with asyncio.timeout(PATIENCE):
            while (await severities(server.url()))["postgres.autovacuum"] is not Severity.PROBLEM:
                pass  # the server reads its settings when it comes to it
    finally:
        admin.execute("ALTER SYSTEM RESET autovacuum")
        admin.execute("SELECT pg_reload_conf()")


async def test_few_connections_left(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "CROWDED", 0.001)
    assert (await severities(server.url()))["postgres.connections"] is Severity.WARNING


async def test_a_function_that_was_altered_is_found_and_put_back(
    server: PostgresServer, admin: psycopg.Connection
) -> None:
    async with opened(server.url()) as engine:
        admin.execute("CREATE OR REPLACE FUNCTION dovetail.is_telling() RETURNS boolean LANGUAGE sql AS 'SELECT true'")
        finding = (await found(engine))["postgres.functions"]
        assert (finding.severity, "'is_telling'" in finding.found) == (Severity.PROBLEM, True)
        assert [each.count for each in await engine.mend()] == [1]
        assert (await found(engine))["postgres.functions"].severity is Severity.OK
        assert await engine.mend() == []


async def test_a_user_who_may_not_look_is_told_so(users: dict[str, str]) -> None:
    async with opened(users["enqueuer"]) as engine:
        told = await found(engine)
    assert told["postgres.sight"].severity is Severity.NOTE
    assert (told["runs.orphaned"].severity, "may not look" in told["runs.orphaned"].found) == (Severity.NOTE, True)
    assert "claim" in told["postgres.rights"].found


async def test_a_reader_may_look_and_not_repair(users: dict[str, str]) -> None:
    async with opened(users["reader"]) as engine:
        assert (await found(engine))["runs.orphaned"].severity is Severity.OK
        assert (await engine.glance()).queues == []
        with pytest.raises(EngineUnavailable, match="no right"):
            await engine.sweep()


async def test_a_worker_has_all_the_rights_of_one(users: dict[str, str]) -> None:
    async with opened(users["worker"]) as engine:
        assert (await found(engine))["postgres.rights"].severity is Severity.OK


class Pooler(Proxy):
    """Tells its clients other process numbers than the server does, as poolers do: those are for cancelling only."""

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_reply: bool) -> None:
        while data := await source.read(CHUNK):
            if is_reply:
                data = re.sub(rb"K\x00\x00\x00\x0c.{4}", b"K\x00\x00\x00\x0c\x7f\x00\x00\x01", data, flags=re.DOTALL)
            target.write(data)
            await target.drain()


@pytest.mark.parametrize(("options", "expected"), [("", Severity.PROBLEM), ("?pooled=true", Severity.OK)])
async def test_a_pooler_that_the_url_does_not_tell_of(server: PostgresServer, options: str, expected: Severity) -> None:
    between = Pooler("127.0.0.1", server.port)
    await between.start()
    try:
        url = server.url().replace(f":{server.port}/", f":{between.port}/") + options
        assert (await severities(url))["postgres.pooler"] is expected
    finally:
        await between.stop()


async def test_a_limit_with_room_is_found_and_swept_right(server: PostgresServer, admin: psycopg.Connection) -> None:
    one = (Limit("slots", 1),)
    async with opened(server.url()) as engine:
        await engine.schedule([NewRun(new_id(), f"{n}", "task", limits=one) for n in range(2)])
        await engine.claim("worker", 2, lease=LEASE)
        admin.execute("DELETE FROM dovetail.run WHERE state = 'running'")
        admin.execute("DELETE FROM dovetail.slot")
        assert (await found(engine))["limits.stuck"].severity is Severity.WARNING
        assert (await engine.sweep()).repaired == 1
        assert (await found(engine))["limits.stuck"].severity is Severity.OK


async def test_a_window_with_room(server: PostgresServer, admin: psycopg.Connection) -> None:
    slow = (Limit("starts", 1, timedelta(hours=1)),)
    async with opened(server.url()) as engine:
        await engine.schedule([NewRun(new_id(), f"{n}", "task", limits=slow) for n in range(2)])
        await engine.claim("worker", 2, lease=LEASE)
        assert (await found(engine))["limits.stuck"].severity is Severity.OK
        admin.execute("DELETE FROM dovetail.start")
        assert (await found(engine))["limits.stuck"].severity is Severity.WARNING


async def test_a_run_whose_parent_is_gone(server: PostgresServer, admin: psycopg.Connection) -> None:
    async with opened(server.url()) as engine:
        await engine.schedule(
            [NewRun(new_id(), "parent", "task"), NewRun(new_id(), "child", "task", after=("parent",))]
        )
        admin.execute("DELETE FROM dovetail.run WHERE key = 'parent'")
        finding = (await found(engine))["runs.orphaned"]
    assert (finding.severity, "'child'" in finding.found) == (Severity.PROBLEM, True)
