"""Servers that die, forget scripts, run out of memory, are busy, or become replicas (RD2, RD4, RD5, RD12 to RD15)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest

from dovetail.engines.redis import RedisEngine, durability, lane
from dovetail.errors import EngineFull, EngineUnavailable, OutcomeUnknown, UnknownParent
from dovetail.model import (
    Claim,
    EventKind,
    Finished,
    Limit,
    NewRun,
    Requeue,
    Retention,
    RunQuery,
    Settle,
    State,
    Topic,
    new_id,
)
from tests.engines.redis.engines import a_run, completed, engine, on, take, until_empty, until_known
from tests.servers import redis as servers
from tests.servers.ports import free_port
from tests.waiting import PATIENCE, eventually

KINDS = pytest.mark.parametrize("kind", ["valkey", "redis"])


@pytest.fixture
def mortal(kind: str) -> Iterator[servers.Server]:
    """A server for one test, which may do with it what it likes. Every write is on disk when it is answered."""
    with servers.server(kind, appendonly="yes", appendfsync="always") as server:
        yield server


# Killed


@KINDS
async def test_what_was_accepted_survives_a_kill_of_the_server(mortal: servers.Server) -> None:
    async with engine(mortal.url) as opened:
        runs = [a_run(f"{n}", limits=(Limit("slots", 3),), group=f"{n % 2}") for n in range(20)]
        await opened.schedule(runs)
        claims = await take(opened, 2)
        await opened.finish(completed(claims[0]))
        await asyncio.to_thread(mortal.kill)
        restarting = asyncio.create_task(asyncio.to_thread(mortal.start), name="restart")
        assert await opened.finish(completed(claims[1])) == [Finished.DONE]
        await restarting
        started = [claim.key for claim in claims]
        while more := await take(opened, 10):
            started += [claim.key for claim in more]
            assert await opened.finish(completed(*more)) == [Finished.DONE] * len(more)
        assert sorted(started, key=int) == [f"{n}" for n in range(20)]
        assert await opened.residue() == {}


@KINDS
async def test_a_server_killed_again_and_again_loses_and_doubles_nothing(mortal: servers.Server) -> None:
    accepted: list[str] = []
    over: list[str] = []
    stopping = is_all_produced = False

    async def produce(opened: RedisEngine) -> None:
        while not stopping:
            run = a_run(retention=Retention())  # kept, so that a request which is repeated is known again
            await until_known(lambda run=run: opened.schedule([run]))
            accepted.append(run.id)

    async def work(opened: RedisEngine) -> None:
        while not is_all_produced or len(over) < len(accepted):
            claims = await until_known(lambda: take(opened, 10))
            await until_known(lambda claims=claims: opened.finish(completed(*claims)))
            over.extend(claim.id for claim in claims)
            await asyncio.sleep(0)

    docket = new_id()
    async with (
        engine(mortal.url, docket) as producer,
        engine(mortal.url, docket) as worker,
        asyncio.timeout(3 * PATIENCE),
    ):
        producing, working = asyncio.create_task(produce(producer)), asyncio.create_task(work(worker))
        for _ in range(3):
            before = len(accepted)

            async def have_come(before: int = before) -> bool:
                return len(accepted) >= before + 30

            await eventually(have_come)
            await asyncio.to_thread(mortal.kill)
            await asyncio.to_thread(mortal.start)
        stopping = True
        await producing
        is_all_produced = True
        await working
        assert sorted(over) == sorted(accepted)


# Scripts


@KINDS
async def test_scripts_that_were_flushed_are_loaded_again(mortal: servers.Server) -> None:
    """RD14"""
    async with on(mortal) as opened:
        for _ in range(5):
            with mortal.client() as client:
                client.script_flush()
            await opened.schedule([a_run()])
            with mortal.client() as client:
                client.script_flush()
            await opened.finish(completed(*await take(opened)))


@pytest.mark.parametrize("kind", ["valkey"])
async def test_a_busy_server_is_waited_for(mortal: servers.Server) -> None:
    """RD13: somebody else's script keeps the server busy. Once it is killed, the call goes through."""
    with mortal.client() as client:
        client.config_set("busy-reply-threshold", 50)
    async with on(mortal) as opened:

        def keep_busy() -> None:
            with mortal.client() as client, contextlib.suppress(Exception):
                client.eval("while true do end", 0)

        busy = asyncio.create_task(asyncio.to_thread(keep_busy), name="busy")
        await asyncio.to_thread(_wait_until_busy, mortal)
        scheduling = asyncio.create_task(opened.schedule([a_run()]), name="schedule")
        done, _ = await asyncio.wait([scheduling], timeout=0.3)
        assert not done
        with mortal.client() as client:
            client.script_kill()
        await scheduling
        await busy
        await opened.finish(completed(*await take(opened)))


def _wait_until_busy(server: servers.Server) -> None:
    def is_busy() -> bool:
        with server.client() as client:
            try:
                client.ping()
            except Exception as error:
                return "BUSY" in str(error).upper()
            return False

    servers.wait_for(is_busy)


@KINDS
async def test_a_server_that_became_a_replica_is_not_written_to(
    mortal: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "PATIENCE", 0.5)
    async with on(mortal) as opened:
        with mortal.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", free_port())
        with pytest.raises(EngineUnavailable):
            await opened.schedule([a_run()])
        with mortal.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        await opened.schedule([a_run()])
        await opened.finish(completed(*await take(opened)))


@KINDS
async def test_a_server_without_enough_replicas_is_waited_for(
    mortal: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a matter of time: nothing in the store is damaged."""
    async with on(mortal) as opened:
        await opened.schedule([a_run()])
        with mortal.client() as client:
            client.config_set("min-replicas-to-write", 1)
        monkeypatch.setattr(lane, "PATIENCE", 0.3)
        with pytest.raises(EngineUnavailable, match="too few replicas"):
            await opened.schedule([a_run()])
        with pytest.raises(EngineUnavailable, match="too few replicas"):
            await take(opened)
        monkeypatch.setattr(lane, "PATIENCE", PATIENCE)
        claiming = asyncio.create_task(take(opened), name="claim")
        done, _ = await asyncio.wait([claiming], timeout=0.1)
        assert not done
        with mortal.client() as client:
            client.config_set("min-replicas-to-write", 0)
        await opened.finish(completed(*await claiming))


@KINDS
async def test_a_server_that_takes_no_more_clients_is_waited_for(
    mortal: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "PATIENCE", 0.3)
    with mortal.client() as client:
        client.ping()
        client.config_set("maxclients", 1)
        with pytest.raises(EngineUnavailable):
            async with engine(mortal.url):
                pass
        client.config_set("maxclients", 100)


# Memory


@KINDS
async def test_when_memory_is_full_work_ends_and_none_is_taken_on(mortal: servers.Server) -> None:
    """RD5: finish, renew and claim go on; schedule is refused."""
    async with on(mortal) as opened:
        await opened.schedule([a_run(f"{n}", limits=(Limit("slots", 5),)) for n in range(10)])
        claims = await take(opened, 5)
        with mortal.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", 1)
        with pytest.raises(EngineFull, match="memory is full"):
            await opened.schedule([a_run()])
        with pytest.raises(EngineFull):
            await opened.schedule([a_run("key")])
        assert await opened.finish(completed(*claims)) == [Finished.DONE] * 5
        more = await take(opened, 5)
        assert len(more) == 5
        failing = [Settle(claim, State.FAILED) for claim in more]
        assert await opened.finish(failing) == [Finished.DONE] * 5
        with mortal.client() as client:
            client.config_set("maxmemory", 0)
        await opened.schedule([a_run()])
        await opened.finish(completed(*await take(opened)))


@KINDS
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
async def test_a_server_that_evicts_keys_is_refused(mortal: servers.Server, policy: str) -> None:
    """RD4"""
    with mortal.client() as client:
        client.config_set("maxmemory-policy", policy)
    with pytest.raises(EngineUnavailable, match="noeviction"):
        async with engine(mortal.url, durability="durable"):
            pass
    async with engine(mortal.url, durability="process"):
        pass


async def test_a_server_without_an_append_only_file_is_warned_of(
    valkey: servers.Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "_warned_of", set[str]())
    with caplog.at_level(logging.WARNING, logger="dovetail.redis"):
        for _ in range(2):
            async with engine(valkey.url, durability="durable"):
                pass
    (record,) = caplog.records
    assert "append-only file" in record.getMessage()


@KINDS
async def test_a_server_with_an_append_only_file_is_not_warned_of(
    mortal: servers.Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine(mortal.url, durability="durable"):
        pass
    assert caplog.records == []


async def test_what_no_replica_has_confirmed_is_not_called_done(valkey: servers.Server) -> None:
    """RD1"""
    async with on(valkey) as plain, engine(valkey.url, plain._name, "replicated") as opened:  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(OutcomeUnknown, match="confirmed by 0 of 1 replicas"):
            await opened.schedule([a_run()])
        await plain.finish(completed(*await take(plain)))


# What is left


async def test_a_docket_that_is_done_goes_by_itself(valkey: servers.Server) -> None:
    """RD22, RD23: no worker need be there to sweep it."""
    kept = Retention.of(timedelta(milliseconds=200))
    async with on(valkey) as opened:
        limits = (Limit("slots", 1), Limit("rate", 9, timedelta(milliseconds=100)))
        await opened.schedule([a_run("parent", retention=kept, limits=limits)])
        await opened.schedule([a_run("child", retention=kept, after=("parent",), group="group")])
        while claims := await take(opened):
            failure = [Settle(claim, State.COMPLETED, b"result") for claim in claims]
            await opened.finish(failure)
        await until_empty(opened)


async def test_what_was_doomed_goes_by_itself(valkey: servers.Server) -> None:
    kept = Retention.of(timedelta(milliseconds=200))
    async with on(valkey) as opened:
        await opened.schedule([a_run("parent", retention=kept)])
        await opened.schedule([a_run("child", retention=kept, after=("parent",))])
        await opened.schedule([a_run("grandchild", retention=kept, after=("child",))])
        await opened.finish([Settle(claim, State.FAILED) for claim in await take(opened)])
        await until_empty(opened)


async def test_a_result_that_is_wanted_outlives_its_retention(valkey: servers.Server) -> None:
    async with on(valkey) as opened:
        await opened.schedule([a_run("parent"), a_run("child", after=("parent",), wants_results=True)])
        await opened.finish([Settle(claim, State.COMPLETED, b"result") for claim in await take(opened)])
        for attempt in (2, 3):
            await opened.sweep()
            (child,) = await take(opened)
            assert [result.value for result in child.results] == [b"result"]
            await opened.finish([Requeue(child, attempt)])
        await opened.finish(completed(*await take(opened)))
        await until_empty(opened)


async def test_a_run_that_others_hang_on_after_its_end_goes_by_itself(valkey: servers.Server) -> None:
    kept = Retention.of(timedelta(milliseconds=300))
    async with on(valkey) as opened:
        await opened.schedule([a_run("parent", retention=kept)])
        await opened.finish(completed(*await take(opened)))
        await opened.schedule([a_run("child", retention=kept, after=("parent",))])
        await opened.finish(completed(*await take(opened)))
        await until_empty(opened)


async def test_a_docket_that_is_done_goes_by_itself_though_something_was_refused(valkey: servers.Server) -> None:
    kept = Retention.of(timedelta(milliseconds=300))
    async with on(valkey) as opened:
        await opened.schedule([a_run("done", retention=kept)])
        await opened.finish(completed(*await take(opened)))
        with pytest.raises(UnknownParent):
            await opened.schedule([a_run("good"), a_run("bad", after=("nobody",))])
        await until_empty(opened)


async def test_a_docket_with_live_runs_does_not_go(valkey: servers.Server) -> None:
    kept = Retention.of(timedelta(milliseconds=50))
    async with on(valkey) as opened:
        await opened.schedule([a_run("first", retention=kept)])
        await opened.finish(completed(*await take(opened)))
        live = a_run("second", due=timedelta(milliseconds=300))
        await opened.schedule([live])
        with valkey.client() as client:
            ttls = {client.pttl(key) for key in await opened.keys()}
        assert ttls == {-1}
        claims: list[Claim] = []

        async def has_come() -> bool:
            claims.extend(await take(opened))
            return bool(claims)

        await eventually(has_come)
        assert [claim.id for claim in claims] == [live.id]
        await opened.finish(completed(*claims))
        await until_empty(opened)


async def test_records_past_their_retention_go_as_others_come(valkey: servers.Server) -> None:
    brief = Retention.of(timedelta(milliseconds=1))
    async with on(valkey) as opened:
        waiting = a_run("waiting", due=timedelta(hours=1))
        await opened.schedule([waiting])
        for _ in range(30):
            await opened.schedule([a_run(retention=brief)])
            await opened.finish(completed(*await take(opened)))
        with valkey.client() as client:
            assert client.zcard(f"{opened._root}all") < 10  # pyright: ignore[reportPrivateUsage]
        await opened.cancel(["waiting"])

        async def is_swept() -> bool:
            return not (await opened.sweep()).more and not await opened.residue()

        await eventually(is_swept)


async def test_a_store_that_was_flushed_starts_anew(valkey: servers.Server) -> None:
    """RD24: what was there is gone; what comes runs, and old claims are void."""
    docket = new_id()
    async with engine(valkey.url, docket) as opened:
        await opened.schedule([a_run()])
        (claim,) = await take(opened)
        with valkey.client() as client:
            client.delete(*await opened.keys())
        assert await opened.finish(completed(claim)) == [Finished.FENCED]
        await opened.schedule([a_run()])
        await opened.finish(completed(*await take(opened)))
        assert await opened.residue() == {}


# Bounds


@pytest.mark.parametrize("kind", ["valkey"])
async def test_ten_thousand_runs_due_at_one_moment_take_no_long_script(mortal: servers.Server) -> None:
    """RD13, by work done and not by time: no call moves more than its bound."""
    async with on(mortal) as opened:
        due = timedelta(milliseconds=50)
        runs = [a_run(due=due) for _ in range(3000)]
        await opened.schedule(runs)
        started = 0
        while started < 3000:
            claims = await take(opened, 1000)
            assert len(claims) <= 150
            started += len(claims)
            await opened.finish(completed(*claims))


async def test_dockets_of_one_server_do_not_meddle(valkey: servers.Server) -> None:
    async with on(valkey, "a" + new_id()) as one, on(valkey, "b" + new_id()) as two:
        await one.schedule([a_run("key")])
        assert await take(two) == []
        assert (await two.find(RunQuery())).items == []
        await one.finish(completed(*await take(one)))


async def test_a_prefix_keeps_dockets_of_one_name_apart(valkey: servers.Server) -> None:
    docket = new_id()
    async with engine(f"{valkey.url}?prefix=x{{y}}", docket) as one, engine(valkey.url, docket) as two:
        await one.schedule([a_run()])
        assert all(key.startswith(b"x%7By%7D{dovetail:") for key in await one.keys())
        assert await take(two) == []
        await one.finish(completed(*await take(one)))
        assert await one.residue() == {}


# Loops


async def test_an_engine_may_be_used_from_another_event_loop(valkey: servers.Server) -> None:
    async with on(valkey) as opened:

        async def schedule() -> None:
            async with opened.watch(Topic(EventKind.WORK)) as events:
                await opened.schedule([a_run()])
                await anext(events)

        await asyncio.to_thread(asyncio.run, schedule())
        gc.collect()  # what was left open would be complained of now
        await opened.finish(completed(*await take(opened)))


async def test_many_adds_at_once_share_round_trips(valkey: servers.Server) -> None:
    async with on(valkey) as opened:
        await opened.survey()
        with valkey.client() as client:
            before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
            await asyncio.gather(*(opened.schedule([a_run()]) for _ in range(200)))
            after = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert after - before < 10
        while claims := await take(opened, 200):
            await opened.finish(completed(*claims))


async def test_one_that_is_refused_among_many_at_once_harms_no_other(valkey: servers.Server) -> None:
    async with on(valkey) as opened:
        groups: list[list[NewRun]] = [[a_run()] for _ in range(20)]
        groups[7] = [a_run("good"), a_run("bad", after=("nobody",))]
        answers = await asyncio.gather(*(opened.schedule(group) for group in groups), return_exceptions=True)
        assert [n for n, answer in enumerate(answers) if isinstance(answer, UnknownParent)] == [7]
        claims = await take(opened, 100)
        assert len(claims) == 19
        await opened.finish(completed(*claims))


# Altered by hand


@pytest.mark.parametrize("state", ["queued", "scheduled", "running", "parked"])
async def test_a_record_that_somebody_removed_stops_no_other(valkey: servers.Server, state: str) -> None:
    async with on(valkey) as opened:
        limits = (Limit("slots", 1),) if state == "parked" else ()
        holder = a_run("holder", limits=limits, priority=1)
        victim = a_run("victim", limits=limits, due=timedelta(milliseconds=1 if state == "scheduled" else 0))
        claims: list[Claim] = []
        if state == "parked":
            await opened.schedule([holder])
            claims += await take(opened)
        await opened.schedule([victim])
        if state in ("running", "parked"):
            await take(opened, lease=timedelta(milliseconds=1))
        with valkey.client() as client:
            for name, *members in (("run", victim.id), ("call", victim.id), ("live", "victim")):
                client.hdel(f"{opened._root}{name}", *members)  # pyright: ignore[reportPrivateUsage]
            client.zrem(f"{opened._root}all", victim.id)  # pyright: ignore[reportPrivateUsage]
            client.delete(f"{opened._root}names")  # pyright: ignore[reportPrivateUsage]
        await opened.finish(completed(*claims))
        good = a_run(limits=limits)

        async def has_come() -> bool:
            claims.extend(await take(opened))
            return claims[-1:] != [] and claims[-1].id == good.id

        await opened.schedule([good])
        await eventually(has_come)
        await opened.finish(completed(claims[-1]))


# Many queues


@pytest.mark.parametrize("want", [1, 7, 100])
async def test_runs_of_many_queues_come_in_one_order(valkey: servers.Server, want: int) -> None:
    async with on(valkey) as opened:
        runs = [a_run(queue=f"queue {n % 60}", priority=n * 7 % 5) for n in range(240)]
        await opened.schedule(runs)
        expected = sorted(runs, key=lambda run: (-run.priority, run.id))
        claims: list[Claim] = []
        while more := await take(opened, want):
            claims += more
        assert [(claim.priority, claim.id) for claim in claims] == [(run.priority, run.id) for run in expected]
        await opened.finish(completed(*claims))


async def test_runs_that_wait_for_room_in_many_queues_come_as_there_is_some(valkey: servers.Server) -> None:
    async with on(valkey) as opened:
        runs = [a_run(queue=f"queue {n % 50}", limits=(Limit("slots", 3),)) for n in range(200)]
        await opened.schedule(runs)
        started: list[str] = []
        while len(started) < len(runs):
            claims = await take(opened, 5)
            assert len(claims) <= 3
            started += [claim.id for claim in claims]
            await opened.finish(completed(*claims))
        assert sorted(started) == sorted(run.id for run in runs)


@pytest.mark.parametrize("kind", ["valkey"])
async def test_a_claim_reads_of_many_queues_no_more_than_it_needs(mortal: servers.Server) -> None:
    """By work done and not by time: the commands within the script, and the members that they return."""
    async with on(mortal) as opened:
        await opened.schedule([a_run(queue=f"queue {n % 100}") for n in range(3000)])
        with mortal.client() as client:
            client.config_resetstat()
            claims = await take(opened, 100)
            stats = client.info("all")
        assert len(claims) == 100
        assert stats["cmdstat_zrange"]["calls"] < 500
        while claims:
            await opened.finish(completed(*claims))
            claims = await take(opened, 150)


@pytest.mark.parametrize("kind", ["run", "call"])
@pytest.mark.parametrize("newest_first", [True, False])
async def test_records_that_are_gone_are_passed_over_by_those_who_look(
    valkey: servers.Server, kind: str, newest_first: bool
) -> None:
    """More of them than one script looks at: evicted, or removed by hand."""
    async with engine(valkey.url) as opened, asyncio.timeout(PATIENCE):
        runs = [a_run() for _ in range(1100)]
        await opened.schedule(runs)
        gone = runs[:600] if not newest_first else runs[500:]
        with valkey.client() as client:
            client.hdel(f"{opened._root}{kind}", *(run.id for run in gone))  # pyright: ignore[reportPrivateUsage]
        page = await opened.find(RunQuery(limit=10, newest_first=newest_first))
        rest = [run.id for run in runs if run not in gone]
        assert [run.id for run in page.items] == (rest[::-1] if newest_first else rest)[:10]
        counted = sum(each.count for each in (await opened.survey()).counts)
        assert counted == (len(rest) if kind == "run" else len(runs))
        with valkey.client() as client:
            client.delete(*await opened.keys())


async def test_a_docket_whose_records_are_all_gone_can_be_looked_at(valkey: servers.Server) -> None:
    async with engine(valkey.url) as opened, asyncio.timeout(PATIENCE):
        await opened.schedule([a_run() for _ in range(1100)])
        with valkey.client() as client:
            client.delete(f"{opened._root}run", f"{opened._root}call")  # pyright: ignore[reportPrivateUsage]
        assert (await opened.find(RunQuery(tasks=("task",)))).items == []
        assert (await opened.survey()).counts == []
        with valkey.client() as client:
            client.delete(*await opened.keys())


@pytest.mark.parametrize("kind", ["valkey"])
async def test_many_that_finish_at_once_wake_the_next_without_looking_for_each(mortal: servers.Server) -> None:
    """By work done and not by time."""
    async with on(mortal) as opened:
        runs = [a_run(limits=(Limit("slots", 100),)) for _ in range(300)]
        await opened.schedule(runs)
        claims = await take(opened, 150)
        assert await take(opened, 150) == []
        with mortal.client() as client:
            client.config_resetstat()
            await opened.finish(completed(*claims))
            assert client.info("commandstats")["cmdstat_zrange"]["calls"] < 30
        started = [claim.id for claim in claims]
        while claims := await take(opened, 150):
            started += [claim.id for claim in claims]
            await opened.finish(completed(*claims))
        assert started == [run.id for run in runs]
