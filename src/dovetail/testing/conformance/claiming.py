"""claim: which runs, in which order, and when to look again."""

from __future__ import annotations

from datetime import timedelta

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Claim, Hold, HoldKind, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    LEASE,
    MINUTE,
    MOMENT,
    SECOND,
    a_run,
    complete,
    keys,
    newest,
    place,
    requeue,
    start_one,
    state_of,
    take,
    take_once,
    take_one,
    wait_of,
)


class Claiming(Fixtures):
    # What a claim is

    async def test_a_claim_carries_the_run(self, engine: Engine, clock: VirtualClock) -> None:
        run = a_run(
            task="send",
            payload=b"arguments",
            queue="mail",
            priority=2,
            group="acme",
            attempt=3,
            headers={"traceparent": "00-1"},
        )
        await place(engine, run)
        (claim,) = await take_once(engine)
        assert claim == Claim(
            id=run.id,
            epoch=claim.epoch,
            key="a",
            task="send",
            payload=b"arguments",
            attempt=3,
            due=clock.now(),
            queue="mail",
            priority=2,
            group="acme",
            redelivered=False,
            crashes=0,
            headers={"traceparent": "00-1"},
        )

    async def test_a_claimed_run_is_running_under_a_lease(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run(), worker="ann")
        run = await newest(engine, "a")
        assert (run.state, run.worker, run.epoch) == (State.RUNNING, "ann", claim.epoch)
        assert (run.started, run.lease_until) == (clock.now(), clock.now() + LEASE)

    async def test_a_run_is_claimed_once(self, engine: Engine) -> None:
        await place(engine, a_run())
        assert keys(await take_once(engine, worker="ann")) == ["a"]
        assert await take_once(engine, worker="bob") == []

    async def test_each_claim_raises_the_epoch(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        epochs = [claim.epoch]
        for _ in range(3):
            await requeue(engine, claim)
            claim = await take_one(engine)
            epochs.append(claim.epoch)
        assert epochs == sorted(set(epochs))

    # How many

    async def test_a_claim_brings_at_most_what_was_wanted(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(5)))
        assert [len(await take_once(engine, want)) for want in (2, 1, 10, 1)] == [2, 1, 2, 0]

    async def test_wanting_none_brings_none(self, engine: Engine) -> None:
        await place(engine, a_run())
        assert await take_once(engine, 0) == []
        assert await state_of(engine, "a") is State.QUEUED

    async def test_wanting_less_than_none_brings_none(self, engine: Engine) -> None:
        await place(engine, a_run())
        assert await take_once(engine, -1) == []
        assert await state_of(engine, "a") is State.QUEUED

    # The order

    async def test_higher_priority_comes_first(self, engine: Engine) -> None:
        await place(engine, a_run("low", priority=-1), a_run("high", priority=10), a_run("middle"))
        assert keys(await take_once(engine)) == ["high", "middle", "low"]

    async def test_earlier_due_comes_first(self, engine: Engine, clock: VirtualClock) -> None:
        now = clock.now()
        await place(engine, a_run("c", due=now), a_run("a", due=now - MINUTE), a_run("b", due=now - MOMENT))
        assert keys(await take_once(engine)) == ["a", "b", "c"]

    async def test_the_older_id_comes_first(self, engine: Engine) -> None:
        first, second, third = a_run("1"), a_run("2"), a_run("3")
        await place(engine, third, first, second)
        assert keys(await take_once(engine)) == ["1", "2", "3"]

    async def test_priority_outweighs_due_time(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("old", due=clock.now() - HOUR), a_run("urgent", priority=1))
        assert keys(await take_once(engine)) == ["urgent", "old"]

    async def test_the_order_holds_from_call_to_call(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(6)))
        assert [keys(await take_once(engine, 2)) for _ in range(3)] == [["0", "1"], ["2", "3"], ["4", "5"]]

    async def test_the_order_holds_across_queues(self, engine: Engine) -> None:
        await place(engine, a_run("a", queue="x", priority=1), a_run("b", queue="y", priority=2))
        assert keys(await take_once(engine, 1)) == ["b"]

    # The time

    async def test_a_future_run_waits_for_its_time(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(due=MINUTE))
        clock.jump(MINUTE - MOMENT)
        assert await take_once(engine) == []
        clock.jump(MOMENT)
        assert keys(await take_once(engine)) == ["a"]

    async def test_what_has_become_due_joins_within_the_call(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("later", due=MINUTE, priority=1), a_run("last", due=2 * MINUTE))
        clock.jump(90 * SECOND)
        await place(engine, a_run("now"))
        assert keys(await take_once(engine)) == ["later", "now"]

    async def test_what_became_due_first_comes_first(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"{n}", due=n * SECOND) for n in (3, 1, 2)))
        clock.jump(MINUTE)
        assert keys(await take_once(engine, 2)) == ["1", "2"]

    # The queues

    async def test_only_the_named_queues_are_claimed_from(self, engine: Engine) -> None:
        await place(engine, *(a_run(queue, queue=queue) for queue in ("x", "y", "z")))
        assert sorted(keys(await take(engine, queues=["x", "z"]))) == ["x", "z"]
        assert await state_of(engine, "y") is State.QUEUED

    async def test_a_queue_that_nobody_uses_gives_nothing(self, engine: Engine) -> None:
        await place(engine, a_run())
        assert await take(engine, queues=["elsewhere"]) == []

    async def test_naming_no_queue_means_all(self, engine: Engine) -> None:
        await place(engine, *(a_run(queue, queue=queue) for queue in ("x", "y", "default")))
        assert sorted(keys(await take_once(engine))) == ["default", "x", "y"]

    async def test_a_future_run_of_another_queue_is_not_brought(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("x", queue="x", due=SECOND), a_run("y", queue="y", due=SECOND))
        clock.jump(SECOND)
        assert keys(await take(engine, queues=["y"])) == ["y"]

    # When to look again

    async def test_an_empty_store_knows_nothing_to_wait_for(self, engine: Engine) -> None:
        assert await wait_of(engine) is None

    async def test_a_store_where_all_is_over_knows_nothing_to_wait_for(self, engine: Engine) -> None:
        await complete(engine, await start_one(engine, a_run()))
        assert await wait_of(engine) is None

    async def test_the_wait_is_for_the_next_future_run(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("a", due=MINUTE), a_run("b", due=HOUR))
        assert await wait_of(engine) == MINUTE
        clock.jump(20 * SECOND)
        assert await wait_of(engine) == 40 * SECOND

    async def test_the_wait_is_for_the_next_lease_to_lapse(self, engine: Engine, clock: VirtualClock) -> None:
        await start_one(engine, a_run())
        clock.jump(10 * SECOND)
        assert await wait_of(engine) == LEASE - 10 * SECOND

    async def test_the_wait_is_for_whatever_comes_first(self, engine: Engine) -> None:
        await start_one(engine, a_run("a"))
        await place(engine, a_run("b", due=LEASE - SECOND))
        assert await wait_of(engine) == LEASE - SECOND

    async def test_a_lapsed_lease_of_another_queue_is_no_reason_to_look(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await start_one(engine, a_run(queue="other"))
        clock.jump(2 * LEASE)
        claimed = await engine.claim("worker", 1, queues=["mine"], lease=LEASE)
        assert (claimed.claims, claimed.wait) == ([], None)

    async def test_a_lapsed_lease_of_a_paused_queue_is_no_reason_to_look(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        await start_one(engine, a_run(queue="paused"))
        await engine.hold([Hold(HoldKind.PAUSE, queue="paused")])
        clock.jump(2 * LEASE)
        assert await wait_of(engine) is None

    async def test_a_worker_that_waits_as_told_finds_the_run(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run(due=MINUTE + MOMENT))
        wait = await wait_of(engine)
        assert wait is not None
        clock.jump(max(wait, timedelta()))
        assert keys(await take_once(engine)) == ["a"]
