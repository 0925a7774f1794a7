"""limits: a start whose body never began counts in no window."""

from __future__ import annotations

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Claim, Conflict, Finished, Limit, Requeue, Settle, State
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.limits import limited
from dovetail.testing.conformance.vocabulary import (
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    assert_leaves_nothing,
    complete,
    keys,
    place,
    requeue,
    start_one,
    state_of,
    take,
    take_one,
)
from dovetail.testing.conformance.windows import WINDOW, per_window


async def put_back(engine: Engine, claim: Claim) -> None:
    """Put a run back for a minute: its body never began."""
    await requeue(engine, claim, due=MINUTE, unbegun=True)


async def settle_unbegun(engine: Engine, claim: Claim, state: State) -> None:
    assert await engine.finish([Settle(claim, state, unbegun=True)]) == [Finished.DONE]


class Unbegun(Fixtures):
    async def test_a_run_that_is_put_back_unbegun_gives_its_start_back(self, engine: Engine) -> None:
        await put_back(engine, await start_one(engine, a_run("a", limits=(per_window(1),))))
        assert keys(await take(engine)) == []
        assert (await start_one(engine, a_run("b", limits=(per_window(1),)))).key == "b"

    async def test_a_start_given_back_wakes_the_next_in_line(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *limited(3, per_window(1)))
        (claim,) = await take(engine)
        await put_back(engine, claim)
        clock.jump(SECOND)
        assert keys(await take(engine)) == ["1"]
        clock.jump(WINDOW)
        assert keys(await take(engine)) == ["2"]

    async def test_one_that_began_keeps_its_start(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run("a", limits=(per_window(1),)))
        await requeue(engine, claim, due=MINUTE)
        await place(engine, a_run("b", limits=(per_window(1),)))
        assert await take(engine) == []

    async def test_one_that_goes_again_at_once_may_start_again(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(limits=(per_window(1),)))
        await requeue(engine, claim, unbegun=True)
        assert (await take_one(engine)).epoch > claim.epoch

    async def test_only_the_starts_of_this_claim_are_given_back(self, engine: Engine) -> None:
        """Its first attempt ran, in the very same moment."""
        claim = await start_one(engine, a_run(limits=(per_window(2),)))
        await requeue(engine, claim, attempt=2)
        await put_back(engine, await take_one(engine))
        await place(engine, *limited(2, per_window(2)))
        assert keys(await take(engine)) == ["0"]

    async def test_the_starts_of_others_stay(self, engine: Engine) -> None:
        await place(engine, *limited(2, per_window(2)))
        first, _ = await take(engine)
        await put_back(engine, first)
        await place(engine, a_run("b", limits=(per_window(2),)), a_run("c", limits=(per_window(2),)))
        assert keys(await take(engine)) == ["b"]

    async def test_one_that_was_taken_over_gives_nothing_back(self, engine: Engine, clock: VirtualClock) -> None:
        """The body may have begun before its lease lapsed. And another has started in the moment of the take-over."""
        wide = Limit("rate", 2, 10 * LEASE)
        await start_one(engine, a_run("a", limits=(wide,)))
        clock.jump(LEASE + SECOND)
        await place(engine, a_run("b", limits=(wide,)))
        taken_over, _ = await take(engine)
        assert (taken_over.key, taken_over.redelivered) == ("a", True)
        await requeue(engine, taken_over, due=10 * LEASE, unbegun=True)
        await place(engine, a_run("c", limits=(wide,)))
        assert await take(engine) == []

    async def test_a_run_that_is_over_before_it_began_gives_its_start_back(self, engine: Engine) -> None:
        for key, state in [("a", State.CANCELLED), ("b", State.FAILED)]:
            await settle_unbegun(engine, await start_one(engine, a_run(key, limits=(per_window(1),))), state)
        assert (await start_one(engine, a_run("c", limits=(per_window(1),)))).key == "c"

    async def test_one_that_was_asked_to_stop_gives_its_start_back(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run("a", limits=(per_window(1),)))
        await engine.cancel(["a"])
        await put_back(engine, claim)
        assert await state_of(engine, "a") is State.CANCELLED
        assert (await start_one(engine, a_run("b", limits=(per_window(1),)))).key == "b"

    async def test_one_that_gives_way_gives_its_start_back(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run("a", limits=(per_window(1),)))
        await place(engine, a_run("a", limits=(per_window(1),), conflict=Conflict.REPLACE))
        assert await take(engine) == []
        assert await engine.finish([Requeue(claim, 1, unbegun=True)]) == [Finished.YIELDED]
        assert keys(await take(engine)) == ["a"]

    async def test_a_window_that_drops_is_open_again(self, engine: Engine) -> None:
        await put_back(engine, await start_one(engine, a_run("a", limits=(per_window(1, drop=True),))))
        assert (await start_one(engine, a_run("b", limits=(per_window(1, drop=True),)))).key == "b"

    async def test_all_its_windows_and_slots_are_given_back(self, engine: Engine) -> None:
        limits = (Limit("slots", 1), Limit("x", 1, WINDOW), Limit("y", 1, MINUTE))
        await put_back(engine, await start_one(engine, a_run("a", limits=limits)))
        assert (await start_one(engine, a_run("b", limits=limits))).key == "b"

    async def test_a_verdict_that_is_repeated_gives_one_start_back(self, engine: Engine) -> None:
        await place(engine, *limited(2, per_window(2)))
        first, _ = await take(engine)
        verdict = Requeue(first, 1, MINUTE, unbegun=True)
        assert await engine.finish([verdict]) == [Finished.DONE]
        assert await engine.finish([verdict]) == [Finished.ALREADY]
        await place(engine, a_run("b", limits=(per_window(2),)), a_run("c", limits=(per_window(2),)))
        assert keys(await take(engine)) == ["b"]

    async def test_nothing_is_left_of_what_was_given_back(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run(limits=(per_window(1),)))
        await requeue(engine, claim, unbegun=True)
        await complete(engine, await take_one(engine))
        await assert_leaves_nothing(engine, clock)
