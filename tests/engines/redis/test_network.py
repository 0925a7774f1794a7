"""A bad network: lost replies, cut and black-holed connections (RD6, RD7, RD19, RD21)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
from redis import exceptions as driver

from dovetail.engines.redis import RedisEngine, lane, routing
from dovetail.errors import EngineUnavailable, OutcomeUnknown
from dovetail.model import Cancelled, Claim, EventKind, Finished, Placing, ProgressReport, RunQuery, Topic, new_id
from dovetail.testing.conformance.watching import hear
from tests.engines.redis.engines import a_run, completed, engine, on, take, until_known
from tests.servers.proxy import Proxy, proxy
from tests.servers.redis import Server
from tests.waiting import PATIENCE, eventually


@pytest.fixture
async def way(valkey: Server) -> AsyncIterator[Proxy]:
    async with proxy("127.0.0.1", valkey.port) as running:
        yield running


@pytest.fixture
async def afar(valkey: Server, way: Proxy) -> AsyncIterator[RedisEngine]:
    """An engine behind the proxy, on a docket that is empty in the end."""
    docket = new_id()
    async with on(valkey, docket) as near, engine(f"redis://127.0.0.1:{way.port}", docket) as opened:
        await load_scripts(near)
        yield opened
        way.restore()


async def load_scripts(near: RedisEngine) -> None:
    """So that the first reply to be lost is that of a script, and not that it is not known yet."""
    await near.schedule([a_run("warm")])
    claims = await take(near)
    await near.report([ProgressReport("warm", increment=1)])
    await near.cancel(["warm"])
    await near.finish(completed(*claims))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a reply which never comes does not hold a test up."""
    monkeypatch.setattr(lane, "READING", 0.3)
    monkeypatch.setattr(lane, "PATIENCE", 1.0)
    monkeypatch.setattr(routing, "CONNECTING", 0.3)


class LosesOne:
    """Loses the replies to what is asked within it, once; then all is well."""

    def __init__(self, way: Proxy) -> None:
        self._way = way

    async def __aenter__(self) -> None:
        self._way.lose_replies()
        self._restoring = asyncio.create_task(self._restore(), name="restore")

    async def _restore(self) -> None:
        await self._way.swallowed.wait()
        self._way.restore()
        self._way.cut()

    async def __aexit__(self, *_: object) -> None:
        await self._restoring


# Lost replies: the server did it, and nobody heard


async def test_a_schedule_whose_reply_was_lost_places_one_run(afar: RedisEngine, way: Proxy) -> None:
    runs = [a_run() for _ in range(3)]
    async with LosesOne(way):
        placements = await afar.schedule(runs)
    assert [each.id for each in placements] == [run.id for run in runs]
    claims = await take(afar)
    assert len(claims) == 3
    await afar.finish(completed(*claims))


async def test_a_replacement_whose_reply_was_lost_replaces_once(afar: RedisEngine, way: Proxy) -> None:
    run = a_run("key")
    async with LosesOne(way):
        (placement,) = await afar.schedule([run])
    assert (placement.placing, placement.id) == (Placing.PLACED, run.id)
    await afar.finish(completed(*await take(afar)))


async def test_a_claim_whose_reply_was_lost_brings_the_same_runs(afar: RedisEngine, way: Proxy) -> None:
    runs = [a_run(crash_limit=1) for _ in range(5)]
    await afar.schedule(runs)
    async with LosesOne(way):
        claims = await take(afar, 3)
    assert [claim.id for claim in claims] == [run.id for run in runs[:3]]
    assert {claim.crashes for claim in claims} == {0}
    rest = await take(afar)
    assert [claim.id for claim in rest] == [run.id for run in runs[3:]]
    assert await afar.finish(completed(*claims, *rest)) == [Finished.DONE] * 5


async def test_a_claim_that_never_arrived_is_made_when_it_is_repeated(afar: RedisEngine, way: Proxy) -> None:
    run = a_run()
    await afar.schedule([run])
    way.cut()
    claims = await take(afar)
    assert [claim.id for claim in claims] == [run.id]
    await afar.finish(completed(*claims))


async def test_a_finish_whose_reply_was_lost_was_accepted(afar: RedisEngine, way: Proxy) -> None:
    await afar.schedule([a_run("key")])
    claims = await take(afar)
    successor = a_run("key")
    verdict = completed(*claims)[0].but(then=(successor,))
    async with LosesOne(way):
        (answer,) = await afar.finish([verdict])
    assert answer in {Finished.ALREADY, Finished.FENCED}  # the record is not kept, so nobody can tell
    again = await take(afar)
    assert [claim.id for claim in again] == [successor.id]
    await afar.finish(completed(*again))


async def test_a_report_whose_reply_was_lost_counts_once(afar: RedisEngine, way: Proxy) -> None:
    await afar.schedule([a_run("key")])
    (claim,) = await take(afar)
    reports = [ProgressReport("key", claim.id, claim.epoch, increment=1)] * 2
    async with LosesOne(way):
        assert await afar.report(reports) == [True, True]
    (run,) = await afar.find(RunQuery())
    assert run.progress is not None
    assert run.progress.current == 2
    await afar.finish(completed(claim))


async def test_a_cancel_whose_reply_was_lost_is_done(afar: RedisEngine, way: Proxy) -> None:
    await afar.schedule([a_run("key")])
    async with LosesOne(way):
        (answer,) = await afar.cancel(["key"])
    assert answer in {Cancelled.CANCELLED, Cancelled.OVER, Cancelled.UNKNOWN}
    assert await take(afar) == []


async def test_many_lost_replies_never_double_a_run(afar: RedisEngine, way: Proxy) -> None:
    """RD6: whatever is lost, there are as many runs as ids."""
    runs = [a_run() for _ in range(60)]

    async def disturb() -> None:
        while True:
            await asyncio.sleep(0.01)
            way.lose_replies()
            await way.swallowed.wait()
            way.restore()
            way.cut()

    disturbing = asyncio.create_task(disturb(), name="disturb")
    try:
        for run in runs:
            await until_known(lambda run=run: afar.schedule([run]))
    finally:
        disturbing.cancel()
        way.restore()
    claims = await take(afar, 100)
    assert sorted(claim.id for claim in claims) == sorted(run.id for run in runs)
    await afar.finish(completed(*claims))


# Trouble that lasts


@pytest.mark.usefixtures("hasty")
async def test_what_is_not_known_is_said_to_be_unknown(afar: RedisEngine, way: Proxy, valkey: Server) -> None:
    run = a_run()
    way.lose_replies()
    with pytest.raises(OutcomeUnknown, match="asking again is safe"):
        await afar.schedule([run])
    way.restore()
    way.cut()
    await afar.schedule([run])
    claims = await take(afar)
    assert [claim.id for claim in claims] == [run.id]
    await afar.finish(completed(*claims))


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_cannot_be_reached_is_unavailable(afar: RedisEngine, way: Proxy) -> None:
    way.refuse()
    with pytest.raises((EngineUnavailable, OutcomeUnknown)):
        await afar.schedule([a_run()])
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        async with engine(f"redis://127.0.0.1:{way.port}"):
            pass


@pytest.mark.usefixtures("hasty")
async def test_an_outage_is_an_error_of_the_driver_too(afar: RedisEngine, way: Proxy) -> None:
    """For programs that have clients of their own to the server, and catch what those raise."""
    way.black_hole()
    with pytest.raises(driver.ConnectionError) as lost:
        await afar.schedule([a_run()])
    assert isinstance(lost.value, OutcomeUnknown)
    way.refuse()
    way.cut()
    with pytest.raises(driver.ConnectionError) as gone:
        await afar.survey()
    assert isinstance(gone.value, EngineUnavailable)
    assert gone.value.code == EngineUnavailable.code
    assert repr(gone.value).startswith("Unreachable(")
    assert repr(lost.value).startswith("ReplyLost(")


async def test_claims_resume_within_ten_seconds_after_a_black_hole(afar: RedisEngine, way: Proxy) -> None:
    """RD21: nothing passes, and no one is told."""
    run = a_run()
    await afar.schedule([run])
    way.black_hole()
    claiming = asyncio.create_task(take(afar), name="claim")
    await way.swallowed.wait()
    way.restore()
    began = time.monotonic()
    claims = await claiming
    assert time.monotonic() - began < 10
    assert [claim.id for claim in claims] == [run.id]
    await afar.finish(completed(*claims))


@pytest.mark.usefixtures("hasty")
async def test_a_black_hole_is_told_of_in_time(afar: RedisEngine, way: Proxy) -> None:
    way.black_hole()
    began = time.monotonic()
    with pytest.raises((EngineUnavailable, OutcomeUnknown)):
        await afar.survey()
    assert time.monotonic() - began < 8


async def test_many_calls_at_once_survive_a_cut(afar: RedisEngine, way: Proxy) -> None:
    runs = [a_run() for _ in range(50)]
    calls = asyncio.gather(*(afar.schedule([run]) for run in runs))
    await asyncio.sleep(0)
    way.cut()
    await calls
    claims = await take(afar, 100)
    assert len(claims) == 50
    await afar.finish(completed(*claims))


async def test_a_slow_network_only_takes_longer(afar: RedisEngine, way: Proxy) -> None:
    way.delay(0.05)
    await afar.schedule([a_run()])
    await afar.finish(completed(*await take(afar)))


# Hints


async def test_a_watcher_whose_connection_was_cut_is_told_to_look_again(afar: RedisEngine, way: Proxy) -> None:
    """RD19: what was told meanwhile was not heard, so everyone looks."""
    async with afar.watch(Topic(EventKind.WORK), Topic(EventKind.STATE, "key")) as events:
        way.cut()
        heard = set()
        async with asyncio.timeout(PATIENCE):
            while len(heard) < 2:
                event = await anext(events)
                heard.add(event.kind)
    assert heard == {EventKind.WORK, EventKind.STATE}


async def test_a_watcher_hears_again_after_a_cut(afar: RedisEngine, way: Proxy, valkey: Server) -> None:
    async with afar.watch(Topic(EventKind.STATE, "key")) as events:
        way.cut()
        async with asyncio.timeout(PATIENCE):
            assert (await anext(events)).id is None
        run = a_run("key")
        await afar.schedule([run])
        assert (await hear(events)).id == run.id
    await afar.finish(completed(*await take(afar)))


async def test_a_black_hole_does_not_leave_a_watcher_deaf(afar: RedisEngine, way: Proxy) -> None:
    async with afar.watch(Topic(EventKind.WORK)) as events:
        way.black_hole()
        claiming = asyncio.create_task(take(afar), name="claim")
        await way.swallowed.wait()
        way.restore()
        await claiming
        async with asyncio.timeout(PATIENCE):
            await anext(events)
            await afar.schedule([a_run()])
            await anext(events)
    await afar.finish(completed(*await take(afar)))


async def test_one_may_begin_to_watch_while_the_connection_is_cut(afar: RedisEngine, way: Proxy) -> None:
    async with afar.watch(Topic(EventKind.HOLDS)):
        way.refuse()
        watching = asyncio.create_task(_hear_of_work(afar), name="watch")
        done, _ = await asyncio.wait([watching], timeout=0.2)
        assert not done
        way.restore()
        async with asyncio.timeout(PATIENCE):
            await watching
    await afar.finish(completed(*await take(afar)))


async def _hear_of_work(afar: RedisEngine) -> None:
    async with afar.watch(Topic(EventKind.WORK)) as events:
        await afar.schedule([a_run()])
        await anext(events)


@pytest.mark.usefixtures("hasty")
async def test_a_watcher_of_a_server_that_cannot_be_reached_is_told(afar: RedisEngine, way: Proxy) -> None:
    way.refuse()
    with pytest.raises(EngineUnavailable):
        async with afar.watch(Topic(EventKind.WORK)):
            pass


# Reading


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("ask", ["find", "survey", "holds"])
async def test_a_read_that_had_no_answer_has_done_nothing(afar: RedisEngine, way: Proxy, ask: str) -> None:
    """There is no outcome to be unsure of."""
    asked = {"find": lambda: afar.find(RunQuery()), "survey": afar.survey, "holds": afar.holds}[ask]
    await asked()
    way.lose_replies()
    with pytest.raises(EngineUnavailable):
        await asked()


# A narrow way


@pytest.mark.usefixtures("hasty")
async def test_an_answer_may_take_long_as_long_as_it_comes(valkey: Server, afar: RedisEngine, way: Proxy) -> None:
    """A reply that was given up in the middle would be asked for again and again, until its runs count as poison."""
    run = a_run(payload=bytes(3_000_000), crash_limit=1)
    async with engine(valkey.url, afar._name) as near:  # pyright: ignore[reportPrivateUsage]
        await near.schedule([run])
    way.delay(0.05)
    began = time.monotonic()
    (claim,) = await take(afar)
    assert time.monotonic() - began > lane.READING
    assert (claim.id, claim.crashes) == (run.id, 0)
    way.restore()
    await afar.finish(completed(claim))


async def test_a_claim_brings_only_so_many_bytes(valkey: Server) -> None:
    async with on(valkey) as opened:
        runs = [a_run(payload=bytes(500_000), queue=f"queue {n % 2}", crash_limit=2) for n in range(9)]
        await opened.schedule(runs)
        claims: list[Claim] = []
        while len(claims) < 9:
            claimed = await opened.claim("worker", 100, lease=timedelta(seconds=30))
            assert 0 < len(claimed.claims) <= 4
            assert claimed.wait == timedelta() or len(claims) + len(claimed.claims) == 9
            claims += claimed.claims
        assert [claim.id for claim in claims] == [run.id for run in runs]
        assert await opened.finish(completed(*claims)) == [Finished.DONE] * 9


async def test_one_call_is_never_too_large_to_be_claimed(valkey: Server) -> None:
    async with on(valkey) as opened:
        await opened.schedule([a_run(payload=bytes(5_000_000)) for _ in range(2)])
        for _ in range(2):
            (claim,) = await take(opened)
            await opened.finish(completed(claim))


# Closing


async def test_what_was_being_opened_when_an_engine_was_closed_does_not_stay_open(way: Proxy) -> None:
    opened = engine(f"redis://127.0.0.1:{way.port}")
    async with opened:
        way.cut()
        await eventually(lambda: _has(way.connections, 0, exactly=True))
        way.delay(0.05)  # so that the connection is made only after all is closed
        asking = [asyncio.create_task(opened.holds(), name=f"ask {n}") for n in range(3)]
        await eventually(lambda: _has(way.connections, 1))
    await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(task.exception(), EngineUnavailable) for task in asking)
    await eventually(lambda: _has(way.connections, 0, exactly=True))


async def _has(count: Callable[[], int], number: int, *, exactly: bool = False) -> bool:
    return count() == number if exactly else count() >= number
