"""holds: strikes that the store keeps, and pauses that it enforces."""

from __future__ import annotations

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Hold, HoldKind, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    Another,
    a_run,
    beat,
    complete,
    keys,
    place,
    start_one,
    state_of,
    take,
    wait_of,
)


def pause(queue: str = "default", **more: object) -> Hold:
    return Hold(HoldKind.PAUSE, queue=queue, **more)  # pyright: ignore[reportArgumentType]


def strike(task: str = "task", **more: object) -> Hold:
    return Hold(HoldKind.STRIKE, task=task, **more)  # pyright: ignore[reportArgumentType]


async def identities(engine: Engine) -> set[object]:
    return {hold.identity for hold in await engine.holds()}


class Holds(Fixtures):
    # Keeping

    async def test_at_first_there_are_none(self, engine: Engine) -> None:
        assert await engine.holds() == []

    async def test_a_hold_is_kept_as_it_was_given(self, engine: Engine, clock: VirtualClock) -> None:
        given = Hold(
            HoldKind.STRIKE,
            task="send",
            parameter="to",
            operator=">=",
            value=b"\x00\xff",
            reason="they asked",
            owner="ann",
            since=clock.now(),
            until=clock.now() + HOUR,
        )
        await engine.hold([given])
        assert await engine.holds() == [given]

    async def test_a_hold_is_kept_until_it_is_lifted(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.hold([strike()])
        clock.jump(1000 * HOUR)
        await engine.sweep()
        assert await identities(engine) == {strike().identity}
        await engine.lift([strike()])
        assert await engine.holds() == []

    async def test_holds_that_differ_in_any_part_are_different(self, engine: Engine) -> None:
        different = [
            pause("x"),
            pause("y"),
            strike("send"),
            strike("send", parameter="to"),
            strike("send", parameter="to", value=b"1"),
            strike("send", parameter="to", value=b"1", operator="!="),
            strike("send", parameter="to", value=b"2"),
            Hold(HoldKind.STRIKE, parameter="to", value=b"1"),
        ]
        await engine.hold(different)
        assert await identities(engine) == {hold.identity for hold in different}
        await engine.lift(different[4:5])
        assert await identities(engine) == {hold.identity for hold in different} - {different[4].identity}

    async def test_a_hold_is_told_by_what_it_is_and_not_by_its_description(self, engine: Engine) -> None:
        await engine.hold([pause(reason="lunch", owner="ann")])
        await engine.hold([pause(reason="dinner", owner="bob")])
        assert len(await engine.holds()) == 1
        await engine.lift([pause()])
        assert await engine.holds() == []

    async def test_lifting_what_was_never_laid_is_nothing(self, engine: Engine) -> None:
        await engine.hold([strike("send")])
        await engine.lift([strike("receive"), pause("send")])
        assert await identities(engine) == {strike("send").identity}

    async def test_holds_are_seen_by_all(self, engine: Engine, another: Another) -> None:
        await engine.hold([strike()])
        assert await identities(await another()) == {strike().identity}

    # Past their time

    async def test_a_hold_past_its_time_is_gone(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.hold([strike(until=clock.now() + MINUTE)])
        clock.jump(MINUTE - SECOND)
        assert await identities(engine) == {strike().identity}
        clock.jump(2 * SECOND)
        assert await engine.holds() == []

    async def test_a_pause_past_its_time_pauses_no_longer(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.hold([pause(until=clock.now() + MINUTE)])
        await place(engine, a_run())
        assert await take(engine) == []
        clock.jump(MINUTE + SECOND)
        assert keys(await take(engine)) == ["a"]

    async def test_a_hold_may_be_extended(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.hold([pause(until=clock.now() + MINUTE)])
        await engine.hold([pause(until=clock.now() + HOUR)])
        clock.jump(2 * MINUTE)
        assert await identities(engine) == {pause().identity}

    async def test_a_hold_past_its_time_may_be_laid_again(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.hold([pause(until=clock.now() + MINUTE)])
        clock.jump(HOUR)
        await engine.hold([pause()])
        assert await identities(engine) == {pause().identity}

    # Pausing

    async def test_a_paused_queue_gives_nothing(self, engine: Engine) -> None:
        await place(engine, a_run())
        await engine.hold([pause()])
        assert await take(engine) == []
        assert await take(engine, queues=["default"]) == []
        assert await state_of(engine, "a") is State.QUEUED

    async def test_a_paused_queue_takes_runs(self, engine: Engine) -> None:
        await engine.hold([pause()])
        (placement,) = await place(engine, a_run())
        assert placement.state is State.QUEUED
        assert await take(engine) == []

    async def test_a_queue_that_goes_on_gives_again(self, engine: Engine) -> None:
        await engine.hold([pause()])
        await place(engine, a_run("1"), a_run("2"))
        assert await take(engine) == []
        await engine.lift([pause()])
        assert keys(await take(engine)) == ["1", "2"]

    async def test_other_queues_go_on(self, engine: Engine) -> None:
        await engine.hold([pause("x")])
        await place(engine, a_run("x", queue="x", priority=9), a_run("y", queue="y"))
        assert keys(await take(engine)) == ["y"]

    async def test_what_becomes_due_in_a_paused_queue_waits(self, engine: Engine, clock: VirtualClock) -> None:
        await engine.hold([pause()])
        await place(engine, a_run(due=SECOND))
        clock.jump(MINUTE)
        assert await take(engine) == []
        await engine.lift([pause()])
        assert keys(await take(engine)) == ["a"]

    async def test_a_claim_says_when_a_pause_ends(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("a", queue="x"), a_run("b", queue="y"))
        await engine.hold([pause("x", until=clock.now() + HOUR), pause("y", until=clock.now() + MINUTE)])
        assert await wait_of(engine) == MINUTE
        clock.jump(MINUTE)
        assert keys(await take(engine)) == ["b"]

    async def test_a_claim_asks_only_when_its_own_queues_go_on(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, a_run("a", queue="x"), a_run("b", queue="y"))
        await engine.hold([pause("x", until=clock.now() + HOUR), pause("y", until=clock.now() + MINUTE)])
        assert (await engine.claim("worker", 1, queues=["x"], lease=LEASE)).wait == HOUR

    async def test_a_pause_without_an_end_is_nothing_to_wait_for(self, engine: Engine) -> None:
        await place(engine, a_run())
        await engine.hold([pause()])
        assert await wait_of(engine) is None

    async def test_a_pause_leaves_running_runs_alone(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.hold([pause()])
        pulse = await beat(engine, claim)
        assert (pulse.lost, pulse.stopping) == (frozenset(), frozenset())
        await complete(engine, claim)

    async def test_a_strike_is_not_for_the_store_to_judge(self, engine: Engine) -> None:
        await engine.hold([strike("task")])
        await place(engine, a_run())
        assert keys(await take(engine)) == ["a"]

    # The pulse

    async def test_the_pulse_tells_that_a_hold_was_laid_or_lifted(self, engine: Engine) -> None:
        before = (await beat(engine)).holds
        await engine.hold([strike()])
        laid = (await beat(engine)).holds
        await engine.lift([strike()])
        lifted = (await beat(engine)).holds
        assert before != laid
        assert laid != lifted

    async def test_the_pulse_tells_one_hold_from_the_next(self, engine: Engine) -> None:
        """A worker that slept through a hold being lifted and another being laid must notice."""
        await engine.hold([strike("send")])
        before = (await beat(engine)).holds
        await engine.lift([strike("send")])
        await engine.hold([strike("receive")])
        assert (await beat(engine)).holds != before

    async def test_the_pulse_is_steady_while_the_holds_are(self, engine: Engine) -> None:
        await engine.hold([strike()])
        before = (await beat(engine)).holds
        await complete(engine, await start_one(engine, a_run()))
        assert (await beat(engine)).holds == before
