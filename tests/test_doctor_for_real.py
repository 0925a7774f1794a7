"""The doctor before servers and hosts that are really unwell: it names what is wrong, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dovetail import Docket, Worker
from dovetail.engines.postgres import migrating
from dovetail.engines.sqlite import connection
from dovetail.model import Finding, Severity, new_id
from tests.cli.commands import Answer, Commands, run_apart
from tests.clocks import WrongClock
from tests.servers import redis as servers
from tests.servers.postgres import PostgresServer
from tests.stores import Stores
from tests.waiting import eventually

BEAT = timedelta(milliseconds=50)
MINUTE = timedelta(minutes=1)


async def work() -> int:
    return 1


async def found(docket: Docket, check: str) -> Finding | None:
    return next((each for each in await docket.examine() if each.check == check), None)


async def is_of(docket: Docket, check: str, severity: Severity) -> Finding | None:
    """What a check says, once it says so."""
    finding = await found(docket, check)
    return finding if finding is not None and finding.severity is severity else None


# Clocks


@pytest.fixture(params=["redis", "postgres"])
def server_url(request: pytest.FixtureRequest, stores: Stores) -> Iterator[str]:
    """A store with a clock of its own."""
    with stores.place(request.param) as url:
        yield url


@pytest.mark.parametrize(("ahead", "word"), [(MINUTE, "ahead of"), (-MINUTE, "behind")])
async def test_a_host_whose_clock_is_off(server_url: str, ahead: timedelta, word: str) -> None:
    async with Docket("tests", server_url, clock=WrongClock(ahead)) as docket:
        finding = await found(docket, "clock")
    assert finding is not None
    assert finding.severity is Severity.PROBLEM
    assert f"{word} the store's" in finding.found
    assert "time server" in finding.advice


@pytest.mark.parametrize("ahead", [MINUTE, -MINUTE])
async def test_a_worker_on_a_host_whose_clock_is_off(server_url: str, ahead: timedelta) -> None:
    async with (
        Docket("tests", server_url, BEAT, clock=WrongClock(ahead)) as elsewhere,
        Docket("tests", server_url) as here,
        Worker(elsewhere, "bob") as worker,
    ):
        working = asyncio.create_task(worker.run_forever())
        finding = await eventually(lambda: is_of(here, "workers.clock", Severity.WARNING))
        clock = await found(here, "clock")
        working.cancel()
    assert "'bob'" in finding.found
    assert clock is not None
    assert clock.severity is Severity.OK


# PostgreSQL


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """One whose notification queue is as small as can be, and that removes no dead row."""
    small = ("-c", "max_notify_queue_pages=64", "-c", "autovacuum=off", "-c", "fsync=off")
    server = PostgresServer(None, *small).create().start()
    yield server
    server.remove()


@contextmanager
def listening_in_a_transaction(server: PostgresServer) -> Iterator[int]:
    """A session that hears nothing and keeps what is told: its process."""
    with psycopg.connect(server.url()) as lazy:
        lazy.execute("LISTEN anything")
        lazy.commit()
        lazy.execute("SELECT 1")
        yield lazy.info.backend_pid
        lazy.rollback()


def fill(server: PostgresServer, messages: int) -> None:
    with psycopg.connect(server.url(), autocommit=True) as loud:
        for number in range(messages):
            loud.execute("SELECT pg_notify('anything', repeat('x', 7000) || %s)", (str(number),))


async def test_a_notification_queue_that_fills_up(postgres: PostgresServer) -> None:
    async with Docket(new_id(), postgres.url()) as docket:
        with listening_in_a_transaction(postgres) as process:
            fill(postgres, 40)
            filling = await found(docket, "postgres.notifications")
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                fill(postgres, 100)
            full = await found(docket, "postgres.notifications")
            # Nobody hears of it, and it runs all the same.
            async with Worker(docket) as worker:
                working = asyncio.create_task(worker.run_forever())
                execution = await docket.add(work)()
                assert await execution.get_result(timeout=MINUTE) == 1
                working.cancel()
        await eventually(lambda: is_of(docket, "postgres.notifications", Severity.OK))
    assert filling is not None
    assert filling.severity is Severity.WARNING
    assert f"pid {process} of postgres" in filling.advice
    assert full is not None
    assert full.severity is Severity.PROBLEM
    assert "seconds late" in full.found


async def test_a_table_that_is_full_of_dead_rows(postgres: PostgresServer) -> None:
    async with Docket(new_id(), postgres.url()) as docket:
        await docket.add_many([docket.call(work)() for _ in range(6000)])
        with psycopg.connect(postgres.url(), autocommit=True) as admin:
            for _ in range(9):
                admin.execute("UPDATE dovetail.run SET due = due + 1")  # indexed: else dead rows go by themselves
            admin.execute("SELECT pg_stat_force_next_flush()")
            finding = await eventually(lambda: is_of(docket, "postgres.tables", Severity.WARNING))
            assert "'run'" in finding.found
            assert "autovacuum" in finding.advice
            assert await is_of(docket, "postgres.autovacuum", Severity.PROBLEM)
            admin.execute("VACUUM dovetail.run")
        await eventually(lambda: is_of(docket, "postgres.tables", Severity.OK))
        await docket.clear()


# Clusters


@pytest.fixture
def cluster() -> Iterator[servers.Cluster]:
    """One of its own: nodes of it are killed."""
    with servers.cluster() as cluster:
        yield cluster


def doctor(url: str, docket: str = "tests") -> Answer:
    return run_apart("doctor", "--url", url, "--docket", docket, "--durability", "process", "--json")


def said_of(answer: Answer, check: str) -> Any:
    return next((each for each in answer.json["findings"] if each["check"] == check), None)


def owner_of(cluster: servers.Cluster, docket: str) -> servers.Server:
    with cluster.masters[0].client() as client:
        return cluster.owner_of(client.execute_command("CLUSTER", "KEYSLOT", f"{{dovetail:{docket}}}"))


async def test_a_cluster_that_has_lost_another_node(cluster: servers.Cluster) -> None:
    assert said_of(doctor(cluster.url), "redis.cluster")["severity"] == "ok"
    other = next(each for each in cluster.masters if each is not owner_of(cluster, "tests"))
    other.kill()
    # The others take a while to agree that it is gone.
    said = await eventually(lambda: is_a_problem(cluster.url))
    assert "of 16384 slots are served" in said["found"]
    assert "bring back the nodes" in said["advice"]
    other.start()
    await eventually(lambda: said_of(doctor(cluster.url), "redis.cluster")["severity"] == "ok")


def is_a_problem(url: str) -> Any:
    said = said_of(doctor(url), "redis.cluster")
    return said if said is not None and said["severity"] == "problem" else None


async def test_a_cluster_that_has_lost_the_node_of_the_docket(cluster: servers.Cluster) -> None:
    owner_of(cluster, "tests").kill()
    answer = doctor(cluster.url)
    (finding,) = answer.json["findings"]
    assert (answer.code, finding["check"], finding["severity"]) == (4, "store", "problem")


async def test_a_cluster_that_answers_nobody_since_it_has_lost_a_node(cluster: servers.Cluster) -> None:
    for master in cluster.masters:
        with master.client() as client:
            client.config_set("cluster-require-full-coverage", "yes")
    next(each for each in cluster.masters if each is not owner_of(cluster, "tests")).kill()
    # Until the others agree that it is gone, all is well.
    said = await eventually(lambda: is_shut(cluster.url), within=60)
    assert "cluster-require-full-coverage no" in said["found"]


def is_shut(url: str) -> Any:
    said = said_of(doctor(url), "store")
    return said if said is not None and "the cluster has lost nodes" in said["found"] else None


# Schemas


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Lets this Dovetail be one whose schemas have a step more than those that are there."""

    def upgrade() -> None:
        number = migrating.newest() + 1
        step = tmp_path / f"{number:03}_mood.sql"
        step.write_text("ALTER TABLE run ADD COLUMN mood text;")
        before = migrating.files_of_steps()
        monkeypatch.setattr(migrating, "files_of_steps", lambda: [*before, (number, step)])
        text = "ALTER TABLE dovetail_run ADD COLUMN mood TEXT;"
        steps, names = connection.migrations(), connection.names()
        monkeypatch.setattr(connection, "migrations", lambda: [*steps, (steps[-1][0] + 1, text)])
        monkeypatch.setattr(connection, "names", lambda: [*names, (names[-1][0] + 1, step.stem)])

    return upgrade


@pytest.fixture(params=["sqlite", "postgres"])
def schema_url(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[str]:
    """A store with a schema, and nothing else in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    with stores.place("postgres") as url:
        name = f"s{new_id().replace('-', '')}"
        yield f"{url}?schema={name}"
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f"DROP SCHEMA {name} CASCADE".encode())


async def test_a_schema_that_is_older_than_this_dovetail(schema_url: str, newer: Any) -> None:
    dovetail = Commands(schema_url)
    async with Docket("tests", schema_url) as docket:
        await docket.add(work, key="kept")()
    newer()
    told = (await dovetail("doctor", "--json", code=3)).json
    (finding,) = told["findings"]
    assert (finding["check"], finding["severity"]) == ("schema", "problem")
    assert "_mood'" in finding["found"]
    assert "`dovetail migrate`" in finding["advice"]
    await dovetail.without_place("migrate", "--url", schema_url)
    told = (await dovetail("doctor", "--json", "--durability", "process", code=3)).json
    assert "schema" not in [each["check"] for each in told["findings"]]
    assert (await dovetail("show", "kept", "--json")).json["state"] == "queued"
