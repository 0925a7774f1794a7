"""parents: the claim of a run that wants results brings along what its parents have returned."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import BROUGHT, Claim, Conflict, NewRun, Result, Retention
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    BOOM,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    a_run,
    assert_leaves_nothing,
    complete,
    fail,
    place,
    requeue,
    revive,
    run_of,
    start,
    start_one,
    sweep_all,
    take_one,
)


def receiver(*parents: NewRun | Claim, **fields: Any) -> NewRun:
    """A run that wants the results of others."""
    return a_run("receiver", after=tuple(each.id for each in parents), wants_results=True, **fields)


async def returned(engine: Engine, value: bytes | None, key: str = "parent", **fields: Any) -> Claim:
    """A run that has returned this."""
    parent = await start_one(engine, a_run(key, **fields))
    await complete(engine, parent, result=value)
    return parent


class Receiving(Fixtures):
    async def test_a_claim_brings_what_the_parents_have_returned(self, engine: Engine) -> None:
        first, second = a_run("first"), a_run("second", task="another")
        await place(engine, first, second, receiver(first, second))
        for claim in (await take_one(engine), await take_one(engine)):
            await complete(engine, claim, result=claim.key.encode() + b"\x00\xff")
        received = (await take_one(engine)).results
        assert set(received) == {
            Result(first.id, "task", b"first\x00\xff"),
            Result(second.id, "another", b"second\x00\xff"),
        }

    async def test_runs_of_one_claim_each_receive_their_own(self, engine: Engine) -> None:
        parents = await start(engine, *(a_run(f"p{number}") for number in range(5)))
        for parent in parents:
            await complete(engine, parent, result=parent.key.encode())
        children = [
            a_run(f"c{number}", after=(parent.id,), wants_results=True) for number, parent in enumerate(parents)
        ]
        claims = await start(engine, *children)
        assert {claim.key: claim.results for claim in claims} == {
            f"c{number}": (Result(parent.id, "task", parent.key.encode()),) for number, parent in enumerate(parents)
        }

    async def test_who_does_not_want_results_is_brought_none(self, engine: Engine) -> None:
        parent = await returned(engine, b"1")
        assert (await start_one(engine, a_run("child", after=(parent.id,)))).results == ()

    async def test_nothing_returned_is_brought_as_nothing(self, engine: Engine) -> None:
        parent = await returned(engine, None)
        assert (await start_one(engine, receiver(parent))).results == (Result(parent.id, "task", None),)

    async def test_names_of_any_kind_come_as_they_are(self, engine: Engine) -> None:
        parent = await returned(engine, b"1", key="a\x00b", task="t\x00\x01 ü")
        assert (await start_one(engine, receiver(parent))).results == (Result(parent.id, "t\x00\x01 ü", b"1"),)

    # What is not brought

    async def test_a_large_result_is_left_where_it_is(self, engine: Engine) -> None:
        large = await returned(engine, b"x" * (BROUGHT + 1), key="large")
        largest = await returned(engine, b"x" * BROUGHT, key="largest")
        assert [each.id for each in (await start_one(engine, receiver(large, largest))).results] == [largest.id]

    async def test_a_parent_that_fell_has_no_result(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await fail(engine, parent)
        assert (await start_one(engine, receiver(parent, after_failure=True))).results == ()

    async def test_a_result_that_could_not_be_stored_is_not_brought(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await complete(engine, parent, failure=BOOM)
        assert (await start_one(engine, receiver(parent))).results == ()

    # Past its retention

    @pytest.mark.parametrize("size", [1, BROUGHT + 1])
    @pytest.mark.parametrize("retention", [AT_ONCE, Retention.of(MINUTE)])
    async def test_a_result_is_kept_for_those_who_want_it(
        self, engine: Engine, clock: VirtualClock, retention: Retention, size: int
    ) -> None:
        parent = a_run("parent", retention=retention)
        await place(engine, parent, receiver(parent, due=HOUR))
        await complete(engine, await take_one(engine), result=b"x" * size)
        clock.jump(HOUR + SECOND)
        await sweep_all(engine)
        assert await run_of(engine, parent.id) is None
        child = await take_one(engine)
        assert child.results == (Result(parent.id, "task", b"x" * size),)
        await requeue(engine, child, attempt=2)
        await sweep_all(engine)
        assert (await take_one(engine)).results == child.results

    async def test_it_goes_when_the_last_who_wants_it_is_over(self, engine: Engine, clock: VirtualClock) -> None:
        parent = a_run("parent", retention=AT_ONCE)
        children = [a_run(key, after=(parent.id,), wants_results=True, retention=AT_ONCE) for key in ("b", "c")]
        await place(engine, parent, *children)
        await complete(engine, await take_one(engine), result=b"1")
        for _ in children:
            await sweep_all(engine)
            child = await take_one(engine)
            assert child.results == (Result(parent.id, "task", b"1"),)
            await complete(engine, child)
        await assert_leaves_nothing(engine, clock)

    # The newest

    async def test_a_retry_receives_the_result_again(self, engine: Engine) -> None:
        parent = await returned(engine, b"1")
        child = await start_one(engine, receiver(parent))
        await requeue(engine, child, attempt=2)
        assert (await take_one(engine)).results == child.results != ()

    async def test_one_who_takes_over_receives_the_result_again(self, engine: Engine, clock: VirtualClock) -> None:
        parent = await returned(engine, b"1", retention=Retention.of(HOUR))
        child = await start_one(engine, receiver(parent))
        clock.jump(LEASE + SECOND)
        again = await take_one(engine, worker="another")
        assert again.redelivered
        assert again.results == child.results != ()

    async def test_a_parent_that_ran_again_gives_its_new_result(self, engine: Engine) -> None:
        parent = await returned(engine, b"old")
        child = await start_one(engine, receiver(parent))
        await complete(engine, child)
        assert await revive(engine, parent.id) == [True]
        await complete(engine, await take_one(engine), result=b"new")
        assert await revive(engine, child.id) == [True]
        assert (await take_one(engine)).results == (Result(parent.id, "task", b"new"),)

    async def test_a_parent_that_runs_again_gives_none_meanwhile(self, engine: Engine) -> None:
        parent = await returned(engine, b"old")
        child = await start_one(engine, receiver(parent))
        assert await revive(engine, parent.id) == [True]
        await requeue(engine, child)
        claims = {claim.key: claim for claim in (await take_one(engine), await take_one(engine))}
        assert claims["receiver"].results == ()

    async def test_one_that_was_cancelled_with_its_parent_wants_results_once_revived(self, engine: Engine) -> None:
        parent = a_run("parent")
        await place(engine, parent, receiver(parent))
        await fail(engine, await take_one(engine))
        assert await revive(engine, parent.id) == [True]
        await complete(engine, await take_one(engine), result=b"1")
        assert (await take_one(engine)).results == (Result(parent.id, "task", b"1"),)

    async def test_what_replaced_a_parent_gives_its_result(self, engine: Engine) -> None:
        first = a_run("parent", due=MINUTE)
        second = a_run("parent", conflict=Conflict.REPLACE)
        await place(engine, first, receiver(first), second)
        await complete(engine, await take_one(engine), result=b"1")
        assert (await take_one(engine)).results == (Result(second.id, "task", b"1"),)

    async def test_a_result_outlives_a_sweep_for_as_long_as_it_is_kept(
        self, engine: Engine, clock: VirtualClock
    ) -> None:
        parent = a_run("parent", retention=Retention.of(HOUR))
        await place(engine, parent, receiver(parent, due=MINUTE))
        await complete(engine, await take_one(engine), result=b"1")
        clock.jump(MINUTE + SECOND)
        await sweep_all(engine)
        assert (await take_one(engine)).results == (Result(parent.id, "task", b"1"),)
