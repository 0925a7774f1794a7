"""What an examination says of a server, brought about on a server of its own; and what a repair puts right."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail.engines.redis import RedisEngine, examining, rights
from dovetail.model import Finding, Limit, NewRun, RunQuery, Severity, State, new_id
from tests.engines.redis.engines import LEASE, engine, take
from tests.servers import redis as servers
from tests.servers.redis import Server, wait_for

HOUR = timedelta(hours=1)
LUA = Path(rights.__file__).parent / "lua"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.server("valkey", appendonly="yes", appendfsync="always", maxmemory="200mb") as server:
        yield server


@pytest.fixture(params=["valkey", "redis_6_2"])
def any_server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


async def found(opened: RedisEngine) -> dict[str, Finding]:
    return {each.check: each for each in await opened.examine()}


async def severities(url: str, durability: str = "durable") -> dict[str, Severity]:
    async with engine(url, durability=durability) as opened:
        return {check: each.severity for check, each in (await found(opened)).items()}


async def with_setting(server: Server, name: str, value: str, durability: str = "durable") -> dict[str, Severity]:
    """What is said while a setting is another."""
    with server.client() as client:
        (before,) = client.config_get(name).values()
        client.config_set(name, value)
        try:
            return await severities(server.url, durability)
        finally:
            client.config_set(name, before)


async def test_a_server_as_it_should_be(server: Server) -> None:
    assert set((await severities(server.url)).values()) == {Severity.OK}


async def test_no_append_only_file(any_server: Server) -> None:
    assert (await severities(any_server.url))["redis.persistence"] is Severity.PROBLEM
    assert (await severities(any_server.url, "process"))["redis.persistence"] is Severity.NOTE


async def test_an_append_only_file_that_reaches_the_disk_late(server: Server) -> None:
    assert (await with_setting(server, "appendfsync", "no"))["redis.persistence"] is Severity.WARNING
    assert (await with_setting(server, "appendfsync", "everysec"))["redis.persistence"] is Severity.NOTE


async def test_memory_without_a_bound_and_nearly_full(server: Server) -> None:
    assert (await with_setting(server, "maxmemory", "0"))["redis.memory"] is Severity.NOTE
    with server.client() as client:
        used = client.info("memory")["used_memory"]
    assert (await with_setting(server, "maxmemory", str(round(used * 1.2))))["redis.memory"] is Severity.WARNING
    assert (await with_setting(server, "maxmemory", str(round(used * 1.05))))["redis.memory"] is Severity.PROBLEM


async def test_a_server_that_evicts(server: Server) -> None:
    # One that was asked for more durability would not have been opened.
    told = await with_setting(server, "maxmemory-policy", "allkeys-lru", "process")
    assert told["redis.eviction"] is Severity.WARNING


async def test_a_disk_that_cannot_be_written(server: Server) -> None:
    taken = server.folder / "dump.rdb"
    taken.mkdir()  # a snapshot cannot take the place of a folder
    with server.client() as client:
        client.bgsave()
        wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        assert (await severities(server.url))["redis.disk"] is Severity.PROBLEM
        taken.rmdir()
        client.bgsave()
        wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "ok")


async def test_too_few_replicas(server: Server) -> None:
    told = await severities(server.url, "replicated")
    assert (told["redis.replicas"], told["redis.min_replicas"]) == (Severity.PROBLEM, Severity.NOTE)


async def test_scripts_that_soon_count_as_slow(server: Server) -> None:
    assert (await with_setting(server, "lua-time-limit", "100"))["redis.scripts"] is Severity.WARNING


async def test_few_clients_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "CROWDED", 0.00001)
    assert (await severities(server.url))["redis.clients"] is Severity.WARNING


async def test_a_user_who_may_not_ask_is_told_so(server: Server) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-config")
    told = await severities(server.url.replace("//", "//plain:secret@"))
    assert (told["redis.settings"], told["redis.persistence"]) == (Severity.NOTE, Severity.OK)


async def test_a_user_who_may_not_do_all_that_a_worker_does(any_server: Server) -> None:
    ours = ("~{dovetail:*", "resetchannels", "&{dovetail:*", "+@all")
    with any_server.client() as client:
        client.execute_command("ACL", "SETUSER", "ann", "reset", "on", ">secret", *ours)
        client.execute_command("ACL", "SETUSER", "bob", "reset", "on", ">secret", *ours, "-zscore", "-publish", "-acl")
    async with engine(any_server.url.replace("//", "//ann:secret@")) as opened:
        assert (await found(opened))["redis.rights"].found == "ann may do all that a worker does"
        assert await opened.residue() == {}
    async with engine(any_server.url.replace("//", "//bob:secret@")) as opened:
        finding = (await found(opened))["redis.rights"]
    assert (finding.severity, finding.found) == (
        Severity.PROBLEM,
        "this user may not run 'publish', 'zscore' on the keys and channels of the docket",
    )
    assert finding.advice.endswith("+@all ~{dovetail:* &{dovetail:*")


def test_every_command_of_the_scripts_is_asked_for() -> None:
    written = "".join(file.read_text() for file in LUA.glob("*.lua") if file.name != "rights.lua")
    called = set(re.findall(r"'([A-Z]{3,})'", written)) - {"WITHSCORES", "LIMIT", "COUNT", "NUMSUB"}
    assert {command.split()[0] for command in rights.COMMANDS} == called | {"SUBSCRIBE"}


async def test_a_cluster_that_is_whole(valkey_cluster: servers.Cluster) -> None:
    assert (await severities(valkey_cluster.url, "process"))["redis.cluster"] is Severity.OK


# Whether records and indexes agree


async def in_every_state(opened: RedisEngine) -> dict[str, str]:
    """A run in each state that has an index, and where each stands."""
    one = (Limit("slots", 1),)
    runs = [
        NewRun(new_id(), "running", "task", queue="q", limits=one),
        NewRun(new_id(), "parked", "task", queue="q", limits=one),
        NewRun(new_id(), "scheduled", "task", queue="q", due=HOUR),
        NewRun(new_id(), "over", "task", queue="q"),
    ]
    await opened.schedule(runs)
    await opened.cancel(["over"])
    await take(opened, 2)
    await opened.schedule([NewRun(new_id(), "queued", "task", queue="q")])
    return {"running": "lease:q", "parked": "parked:slots", "scheduled": "due:q", "over": "over", "queued": "ready:q"}


def raw(opened: RedisEngine, server: Server) -> tuple[Any, str]:
    return server.client(), opened._root


@pytest.mark.parametrize("lost", ["running", "parked", "scheduled", "over", "queued"])
async def test_a_record_that_stands_nowhere_is_put_back(any_server: Server, lost: str) -> None:
    async with engine(any_server.url) as opened:
        places = await in_every_state(opened)
        client, root = raw(opened, any_server)
        with client:
            client.delete(root + places[lost])
        finding = (await found(opened))["redis.indexes"]
        assert (finding.severity, finding.found[:9]) == (Severity.WARNING, "1 records")
        assert [each.count for each in await opened.mend()] == [1]
        assert (await found(opened))["redis.indexes"].severity is Severity.OK
        assert await opened.mend() == []


@pytest.mark.parametrize("index", ["all", "names", "live", "queues"])
async def test_an_index_of_all_runs_is_made_anew(any_server: Server, index: str) -> None:
    async with engine(any_server.url) as opened:
        await in_every_state(opened)
        before = {run.key: run.state for run in await opened.find(RunQuery())}
        client, root = raw(opened, any_server)
        with client:
            client.delete(root + index)
        await opened.mend()
        assert (await found(opened))["redis.indexes"].severity is Severity.OK
        assert {run.key: run.state for run in await opened.find(RunQuery())} == before
        (kept,) = await opened.schedule([NewRun(new_id(), "queued", "task")])
        assert kept.placing == "kept"


async def test_entries_without_a_record_are_removed_and_the_others_run(any_server: Server) -> None:
    async with engine(any_server.url) as opened:
        await opened.schedule([NewRun(new_id(), f"{n}", "task") for n in range(700)])
        gone = [run.id for run in await opened.find(RunQuery(limit=350))]
        client, root = raw(opened, any_server)
        with client:
            client.hdel(root + "run", *gone)
        assert "700 entries" in (await found(opened))["redis.indexes"].found  # of all, and of those that are ready
        await opened.mend()
        assert (await found(opened))["redis.indexes"].severity is Severity.OK
        assert len(await take(opened, 700)) == 150
        assert (await opened.glance()).queued == 200


async def test_a_run_that_is_put_back_starts(any_server: Server) -> None:
    async with engine(any_server.url) as opened:
        await opened.schedule([NewRun(new_id(), "a", "task")])
        client, root = raw(opened, any_server)
        with client:
            client.delete(root + "ready:default", root + "queues")
        assert await take(opened) == []
        await opened.mend()
        assert [claim.key for claim in await take(opened)] == ["a"]


async def test_a_run_whose_lease_was_lost_stays_its_workers_for_a_while(any_server: Server) -> None:
    async with engine(any_server.url) as opened:
        await opened.schedule([NewRun(new_id(), "a", "task")])
        await take(opened)
        client, root = raw(opened, any_server)
        with client:
            client.delete(root + "lease:default")
        await opened.mend()
        assert await take(opened) == []
        (run,) = (await opened.glance()).running
        assert (run.key, run.state) == ("a", State.RUNNING)


async def test_runs_without_arguments_are_told_of(any_server: Server) -> None:
    async with engine(any_server.url) as opened:
        await opened.schedule([NewRun(new_id(), "a", "task")])
        client, root = raw(opened, any_server)
        with client:
            client.delete(root + "call")
        assert (await found(opened))["redis.calls"].severity is Severity.PROBLEM


async def test_a_limit_with_room_is_found_and_swept_right(any_server: Server) -> None:
    async with engine(any_server.url) as opened:
        one = (Limit("slots", 1),)
        await opened.schedule([NewRun(new_id(), f"{n}", "task", limits=one) for n in range(2)])
        await opened.claim("worker", 2, lease=LEASE)
        client, root = raw(opened, any_server)
        with client:
            client.delete(root + "slots:slots")
        assert (await found(opened))["limits.stuck"].severity is Severity.WARNING
        assert (await opened.sweep()).repaired == 1
        assert (await found(opened))["limits.stuck"].severity is Severity.OK


async def test_a_run_whose_parent_is_gone(any_server: Server) -> None:
    async with engine(any_server.url) as opened:
        parent = new_id()
        await opened.schedule([NewRun(parent, "parent", "task"), NewRun(new_id(), "child", "task", after=("parent",))])
        client, root = raw(opened, any_server)
        with client:
            client.hdel(root + "run", parent)
        finding = (await found(opened))["runs.orphaned"]
        assert (finding.severity, "'child'" in finding.found) == (Severity.PROBLEM, True)
