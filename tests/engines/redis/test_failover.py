"""Clusters and sentinels: slots that move, masters that die (RD1, RD3, RD14, RD16, RD17, RD20)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.crc import key_slot

from dovetail.engines.redis import RedisEngine, routing
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.model import EventKind, Finished, NewRun, Settle, State, Topic, new_id
from dovetail.testing.conformance.watching import hear
from tests.engines.redis.engines import LEASE, a_run, completed, engine, take
from tests.servers import redis as servers
from tests.waiting import PATIENCE


@pytest.fixture
def mortal_cluster() -> Iterator[servers.Cluster]:
    """A cluster with replicas, for one test: it may kill what it likes."""
    with servers.cluster(with_replicas=True) as cluster:
        yield cluster


@pytest.fixture
def mortal_master() -> Iterator[servers.Watched]:
    with servers.sentinels() as watched:
        yield watched


async def persistently(schedule: RedisEngine, run: NewRun) -> None:
    """As a producer does who wants to be sure: until it is accepted."""
    while True:
        try:
            await schedule.schedule([run])
        except (EngineUnavailable, OutcomeUnknown):
            continue
        return


class Accepted(set[str]):
    """Ids that were accepted, and a way to wait for more."""

    def __init__(self) -> None:
        super().__init__()
        self.one_more = asyncio.Event()

    async def more(self, count: int) -> None:
        wanted = len(self) + count
        while len(self) < wanted:
            self.one_more.clear()
            await self.one_more.wait()


@contextlib.asynccontextmanager
async def steady_load(opened: RedisEngine) -> AsyncIterator[Accepted]:
    """Runs that come one after another while something else happens; the ids of those that were accepted."""
    accepted = Accepted()
    stopping = False

    async def produce() -> None:
        while not stopping:
            run = a_run()
            await persistently(opened, run)
            accepted.add(run.id)
            accepted.one_more.set()

    producing = asyncio.create_task(produce(), name="produce")
    try:
        yield accepted
    finally:
        stopping = True
        await producing


async def take_all(opened: RedisEngine) -> list[str]:
    """Finish everything; the ids in the order in which they came."""
    started: list[str] = []
    while claims := await take(opened, 100):
        assert set(await opened.finish(completed(*claims))) == {Finished.DONE}
        started += [claim.id for claim in claims]
    return started


# A cluster


@pytest.mark.parametrize("docket", ["plain", "a{b}c", "}{", "{", "}", "{}x", "a:b*?[c]", "\x00\n", "é🪵"])
async def test_all_keys_of_a_docket_lie_in_one_slot(valkey_cluster: servers.Cluster, docket: str) -> None:
    async with engine(valkey_cluster.url, docket + new_id()) as opened:
        runs = [a_run("{x}" + docket, queue="}{q" + docket), a_run("y", after=("{x}" + docket,), group="{g}")]
        await opened.schedule(runs)
        slots = {key_slot(key) for key in await opened.keys()}
        assert len(slots) == 1
        await take_all(opened)


async def test_a_slot_that_moves_under_load_loses_and_doubles_nothing(valkey_cluster: servers.Cluster) -> None:
    async with engine(valkey_cluster.url) as opened:
        slot = key_slot(opened._root.encode())  # pyright: ignore[reportPrivateUsage]
        owner = valkey_cluster.owner_of(slot)
        target = next(each for each in valkey_cluster.masters if each is not owner)
        async with steady_load(opened) as accepted:
            await accepted.more(20)
            await asyncio.to_thread(valkey_cluster.move_slot, slot, target)
            await accepted.more(20)
        assert valkey_cluster.owner_of(slot) is target
        started = await take_all(opened)
        assert sorted(started) == sorted(accepted)
        assert await opened.residue() == {}


async def test_a_script_does_nothing_while_its_slot_is_on_the_way(valkey_cluster: servers.Cluster) -> None:
    """Half of the docket is elsewhere then: the server refuses, and the call waits until the slot has arrived."""
    async with engine(valkey_cluster.url) as opened:
        slot = key_slot(opened._root.encode())  # pyright: ignore[reportPrivateUsage]
        run = a_run("key", group="group")
        await opened.schedule([run])
        target = next(each for each in valkey_cluster.masters if each is not valkey_cluster.owner_of(slot))
        loop, halfway, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def pause() -> None:
            loop.call_soon_threadsafe(halfway.set)
            assert go_on.wait(PATIENCE)

        moving = asyncio.create_task(asyncio.to_thread(valkey_cluster.move_slot, slot, target, while_moving=pause))
        await halfway.wait()
        claiming = asyncio.create_task(take(opened), name="claim")
        done, _ = await asyncio.wait([claiming], timeout=0.5)
        assert not done
        go_on.set()
        await moving
        claims = await claiming
        assert [claim.id for claim in claims] == [run.id]
        await opened.finish(completed(*claims))
        assert await opened.residue() == {}


async def test_a_watcher_hears_of_a_docket_that_has_moved(valkey_cluster: servers.Cluster) -> None:
    async with engine(valkey_cluster.url) as opened, opened.watch(Topic(EventKind.STATE, "key")) as events:
        slot = key_slot(opened._root.encode())  # pyright: ignore[reportPrivateUsage]
        target = next(each for each in valkey_cluster.masters if each is not valkey_cluster.owner_of(slot))
        await asyncio.to_thread(valkey_cluster.move_slot, slot, target)
        await opened.survey()  # whoever asks learns of it
        async with asyncio.timeout(PATIENCE):
            while (await anext(events)).id is not None:
                pass
        run = a_run("key")
        await opened.schedule([run])
        assert (await hear(events)).id == run.id
        await take_all(opened)


async def test_a_master_of_a_cluster_that_dies_is_followed_by_its_replica(mortal_cluster: servers.Cluster) -> None:
    async with engine(f"{mortal_cluster.url}?replicas=1", durability="replicated") as opened:
        slot = key_slot(opened._root.encode())  # pyright: ignore[reportPrivateUsage]
        owner = mortal_cluster.owner_of(slot)
        before = [a_run() for _ in range(50)]
        await opened.schedule(before)
        await asyncio.to_thread(owner.kill)
        after = a_run()
        async with asyncio.timeout(PATIENCE):
            while True:
                # Alone, the new master can confirm nothing; but it has the run.
                try:
                    await opened.schedule([after])
                except OutcomeUnknown as error:
                    if "confirmed by" in str(error):
                        break
                except EngineUnavailable:
                    continue
        async with engine(mortal_cluster.url, opened._name) as plain:  # pyright: ignore[reportPrivateUsage]
            started = await take_all(plain)
        assert set(started) == {run.id for run in [*before, after]}


# Sentinels


async def test_a_master_that_dies_is_followed_by_the_one_that_sentinels_name(mortal_master: servers.Watched) -> None:
    async with engine(mortal_master.url) as opened, opened.watch(Topic(EventKind.WORK)) as events:
        runs = [a_run() for _ in range(20)]
        await opened.schedule(runs)
        old = mortal_master.master
        with old.client() as client:
            assert client.execute_command("WAIT", 1, 30_000) == 1
        await asyncio.to_thread(old.kill)
        last = a_run()
        async with asyncio.timeout(PATIENCE):
            await persistently(opened, last)
            await anext(events)
        assert mortal_master.master is not old
        started = await take_all(opened)
        assert set(started) == {run.id for run in [*runs, last]}


async def test_a_claim_that_a_failover_has_lost_stays_void(mortal_master: servers.Watched) -> None:
    """RD3: the replica has never heard of the claim, and gives the run to another. The epochs differ all the same."""
    docket = new_id()
    async with engine(mortal_master.url, docket) as opened:
        run = a_run()
        await opened.schedule([run])
        old = mortal_master.master
        new = next(each for each in mortal_master.servers if each is not old)
        with old.client() as client:
            assert client.execute_command("WAIT", 1, 30_000) == 1
        with new.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")  # it hears no more
        (lost,) = await take(opened)
        await asyncio.to_thread(old.kill)
        async with engine(new.url, docket) as after, engine(new.url, docket) as other:
            (claim,) = await take(other)
            assert claim.id == lost.id
            assert claim.epoch != lost.epoch
            assert await after.finish([Settle(lost, State.COMPLETED)]) == [Finished.FENCED]
            assert await other.finish(completed(claim)) == [Finished.DONE]


async def test_after_a_failover_leases_have_time_to_be_renewed(mortal_master: servers.Watched) -> None:
    """RD20: the new master's clock may be another, so for one lease nobody is taken over."""
    async with engine(mortal_master.url) as opened:
        await opened.schedule([a_run()])
        short = LEASE / 1000
        (claim,) = await take(opened, lease=short)
        old = mortal_master.master
        with old.client() as client:
            assert client.execute_command("WAIT", 1, 30_000) == 1
        await asyncio.to_thread(old.kill)
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(EngineUnavailable, OutcomeUnknown):
                    claimed = await opened.claim("other", 1, lease=LEASE)
                    break
        assert claimed.claims == []
        assert claimed.wait is not None
        assert await opened.finish(completed(claim)) == [Finished.DONE]


# Hosts that hang


@contextlib.contextmanager
def hung() -> Iterator[int]:
    """The port of somebody who lets everyone in, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_a_sentinel_that_hangs_does_not_keep_the_others_from_being_asked(
    watched_by_sentinels: servers.Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "CONNECTING", 0.9)
    with hung() as first, hung() as second:
        silent = f"127.0.0.1:{first},127.0.0.1:{second},"
        url = watched_by_sentinels.url.replace("://", f"://{silent}", 1)
        async with engine(url) as opened:
            assert not (await opened.survey()).workers


async def test_a_node_that_hangs_does_not_keep_the_others_from_being_asked(
    valkey_cluster: servers.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "CONNECTING", 0.9)
    with hung() as first, hung() as second:
        silent = f"127.0.0.1:{first},127.0.0.1:{second},"
        url = valkey_cluster.url.replace("://", f"://{silent}", 1)
        async with engine(url) as opened:
            assert not (await opened.survey()).workers


@pytest.mark.parametrize("kind", ["unknown-endpoint", "hostname"])
async def test_a_node_that_does_not_know_its_name_is_where_it_was_asked(
    valkey_cluster: servers.Cluster, kind: str
) -> None:
    for node in valkey_cluster.nodes:
        with node.client() as client:
            client.config_set("cluster-preferred-endpoint-type", kind)
    try:
        async with engine(valkey_cluster.url) as opened:
            assert not (await opened.survey()).workers
    finally:
        for node in valkey_cluster.nodes:
            with node.client() as client:
                client.config_set("cluster-preferred-endpoint-type", "ip")
