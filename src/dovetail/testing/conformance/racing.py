"""Many at once: whoever comes first wins, and everyone is told the same."""

from __future__ import annotations

import asyncio
from collections import Counter

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import (
    Cancelled,
    Claim,
    Conflict,
    Finished,
    Limit,
    NewRun,
    Placing,
    ProgressReport,
    Requeue,
    Settle,
    State,
)
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    LEASE,
    MINUTE,
    SECOND,
    Another,
    a_run,
    all_runs,
    beat,
    complete,
    completed,
    keys,
    newest,
    place,
    revive,
    start_one,
    take,
    take_one,
)

LIVE = (State.SCHEDULED, State.QUEUED, State.WAITING, State.RUNNING)


async def engines(engine: Engine, another: Another, count: int = 4) -> list[Engine]:
    return [engine, *[await another() for _ in range(count - 1)]]


class Racing(Fixtures):
    async def test_racing_claimers_never_share_a_run(self, engine: Engine, another: Another) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(100)))

        async def work(claimer: Engine, name: str) -> list[Claim]:
            claims: list[Claim] = []
            while brought := await take(claimer, 3, worker=name):
                claims += brought
            return claims

        claimers = await engines(engine, another)
        shares = await asyncio.gather(*(work(each, f"{n}") for n, each in enumerate(claimers)))
        claimed = [claim for share in shares for claim in share]
        assert sorted(keys(claimed)) == sorted(f"{n}" for n in range(100))
        assert await engine.finish([completed(claim) for claim in claimed]) == [Finished.DONE] * 100

    async def test_racing_claims_of_one_connection_never_share_a_run(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(40)))
        shares = await asyncio.gather(*(take(engine, 5, worker=f"{n}") for n in range(10)))
        assert sorted(keys(claim for share in shares for claim in share)) == sorted(f"{n}" for n in range(40))

    async def test_racing_claimers_never_pass_a_limit(self, engine: Engine, another: Another) -> None:
        await place(engine, *(a_run(f"{n}", limits=(Limit("slots", 3),)) for n in range(60)))
        running: set[str] = set()
        seen: Counter[str] = Counter()
        peak = 0

        async def work(claimer: Engine, name: str) -> None:
            nonlocal peak
            while sum(seen.values()) < 60:
                claims = await take(claimer, 2, worker=name)
                # A run is in this set for a part of the time that it is running: never too many, then.
                running.update(keys(claims))
                peak = max(peak, len(running))
                seen.update(keys(claims))
                await asyncio.sleep(0)
                running.difference_update(keys(claims))
                await complete(claimer, *claims)

        claimers = await engines(engine, another)
        async with asyncio.timeout(60):
            await asyncio.gather(*(work(each, f"{n}") for n, each in enumerate(claimers)))
        assert seen == Counter(f"{n}" for n in range(60))
        assert peak <= 3

    async def test_racing_claimers_never_pass_a_window(self, engine: Engine, another: Another) -> None:
        await place(engine, *(a_run(f"{n}", limits=(Limit("rate", 5, MINUTE),)) for n in range(30)))
        shares = await asyncio.gather(*(take(each, 4) for each in await engines(engine, another)))
        assert sum(len(share) for share in shares) == 5

    async def test_racing_claimers_take_a_lapsed_run_over_once(
        self, engine: Engine, another: Another, clock: VirtualClock
    ) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(10)))
        await take(engine, 10, worker="dead")
        clock.jump(LEASE + SECOND)
        shares = await asyncio.gather(*(take(each, 10) for each in await engines(engine, another)))
        claims = [claim for share in shares for claim in share]
        assert sorted(keys(claims)) == [f"{n}" for n in range(10)]
        assert {claim.crashes for claim in claims} == {1}

    async def test_racing_schedulers_of_one_key_place_one_run(self, engine: Engine, another: Another) -> None:
        many = await engines(engine, another)
        answers = await asyncio.gather(*(place(many[n % 4], a_run(payload=b"%d" % n)) for n in range(20)))
        placements = [placement for (placement,) in answers]
        assert Counter(each.placing for each in placements) == {Placing.PLACED: 1, Placing.KEPT: 19}
        assert {each.id for each in placements} == {(await newest(engine, "a")).id}
        assert len(await all_runs(engine)) == 1

    async def test_racing_replacements_leave_one_run(self, engine: Engine, another: Another) -> None:
        many = await engines(engine, another)
        runs = [a_run(conflict=Conflict.REPLACE) for _ in range(20)]
        answers = await asyncio.gather(*(place(many[n % 4], run) for n, run in enumerate(runs)))
        placings = Counter(placement.placing for (placement,) in answers)
        assert placings == {Placing.PLACED: 1, Placing.REPLACED: 19}
        assert len(await all_runs(engine)) == 1
        assert len(await take(engine)) == 1

    async def test_a_request_repeated_at_once_places_one_run(self, engine: Engine, another: Another) -> None:
        run = a_run()
        answers = await asyncio.gather(*(place(each, run) for each in await engines(engine, another)))
        assert {placement.id for (placement,) in answers} == {run.id}
        assert len(await take(engine)) == 1

    async def test_of_racing_finishers_of_one_claim_one_wins(self, engine: Engine, another: Another) -> None:
        verdict = completed(await start_one(engine, a_run()), then=(a_run("next"),))
        answers = await asyncio.gather(*(each.finish([verdict]) for each in await engines(engine, another)))
        counts = Counter(answer for (answer,) in answers)
        assert counts == {Finished.DONE: 1, Finished.ALREADY: 3}
        assert len(await all_runs(engine, keys=("next",))) == 1

    async def test_of_racing_verdicts_on_one_claim_one_wins(self, engine: Engine, another: Another) -> None:
        claim = await start_one(engine, a_run())
        verdicts = [
            completed(claim),
            Settle(claim, State.FAILED),
            Settle(claim, State.CANCELLED),
            Requeue(claim, attempt=2),
        ]
        many = await engines(engine, another)
        answers = await asyncio.gather(*(each.finish([verdict]) for each, verdict in zip(many, verdicts, strict=True)))
        assert [answer for (answer,) in answers].count(Finished.DONE) == 1
        outcomes = [State.COMPLETED, State.FAILED, State.CANCELLED, State.QUEUED]
        (winner,) = (end for end, (answer,) in zip(outcomes, answers, strict=True) if answer is Finished.DONE)
        assert (await newest(engine, "a")).state is winner

    async def test_a_cancel_and_a_claim_that_race_agree(self, engine: Engine, another: Another) -> None:
        names = [f"{n}" for n in range(40)]
        await place(engine, *(a_run(name) for name in names))
        canceller = await another()

        async def cancel_each() -> list[list[Cancelled]]:
            return await asyncio.gather(*(canceller.cancel([name]) for name in names))

        claims, answers = await asyncio.gather(take(engine, 40), cancel_each())
        started = set(keys(claims))
        for name, (answer,) in zip(names, answers, strict=True):
            assert answer is (Cancelled.STOPPING if name in started else Cancelled.CANCELLED)
        assert (await beat(engine, *claims)).stopping == {claim.id for claim in claims}

    async def test_a_heartbeat_and_a_take_over_that_race_agree(
        self, engine: Engine, another: Another, clock: VirtualClock
    ) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(10)))
        held = await take(engine, 10, worker="ann")
        clock.jump(LEASE + SECOND)
        pulse, taken = await asyncio.gather(beat(engine, *held, worker="ann"), take(await another(), 10, worker="bob"))
        assert pulse.lost <= {claim.id for claim in taken}
        late = await beat(engine, *held, worker="ann")
        assert late.lost == {claim.id for claim in taken}

    async def test_a_finish_and_a_take_over_that_race_agree(
        self, engine: Engine, another: Another, clock: VirtualClock
    ) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(10)))
        held = await take(engine, 10, worker="ann")
        clock.jump(LEASE + SECOND)
        answers, taken = await asyncio.gather(
            engine.finish([completed(claim) for claim in held]), take(await another(), 10, worker="bob")
        )
        fenced = {claim.id for claim, answer in zip(held, answers, strict=True) if answer is Finished.FENCED}
        assert fenced == {claim.id for claim in taken}

    async def test_racing_reports_all_add_up(self, engine: Engine, another: Another) -> None:
        claim = await start_one(engine, a_run())
        report = ProgressReport("a", claim.id, claim.epoch, increment=1)
        many = await engines(engine, another)
        await asyncio.gather(*(many[n % 4].report([report]) for n in range(40)))
        progress = (await newest(engine, "a")).progress
        assert progress is not None
        assert progress.current == 40

    async def test_racing_revivals_revive_once(self, engine: Engine, another: Another) -> None:
        claim = await start_one(engine, a_run())
        await engine.finish([Settle(claim, State.FAILED)])
        answers = await asyncio.gather(*(revive(each, claim.id) for each in await engines(engine, another)))
        assert sorted(answer for (answer,) in answers) == [False, False, False, True]
        assert len(await take(engine)) == 1

    async def test_parents_that_finish_at_once_wake_their_child_once(self, engine: Engine, another: Another) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(4)))
        claims = await take(engine)
        await place(engine, a_run("child", after=("0", "1", "2", "3")))
        many = await engines(engine, another)
        await asyncio.gather(*(complete(each, claim) for each, claim in zip(many, claims, strict=True)))
        assert keys(await take(engine)) == ["child"]

    async def test_a_parent_that_ends_while_its_child_is_scheduled_strands_nobody(
        self, engine: Engine, another: Another
    ) -> None:
        other = await another()
        children = [a_run(f"child {n}", after=(f"parent {n}",)) for n in range(10)]
        for n, child in enumerate(children):
            parent = await start_one(engine, a_run(f"parent {n}"))
            await asyncio.gather(complete(engine, parent), place(other, child))
            assert (await take_one(engine)).id == child.id

    async def test_several_connections_work_through_everything(self, engine: Engine, another: Another) -> None:
        """Schedulers, workers and cancellers at once; in the end each run has ended exactly once."""
        many = await engines(engine, another)
        over: Counter[str] = Counter()

        async def schedule(scheduler: Engine, runs: list[NewRun]) -> None:
            for run in runs:
                await place(scheduler, run)

        async def work(claimer: Engine, name: str) -> None:
            while sum(over.values()) < 80:
                for claim in await take(claimer, 4, worker=name):
                    over.update(await _finish(claimer, claim))
                await asyncio.sleep(0)

        async def _finish(claimer: Engine, claim: Claim) -> list[str]:
            if claim.attempt == 1 and int(claim.key) % 5 == 0:
                assert await claimer.finish([Requeue(claim, attempt=2)]) == [Finished.DONE]
                return []
            await complete(claimer, claim)
            return [claim.key]

        runs = [a_run(f"{n}", limits=(Limit(f"{n % 3}", 2),), group=f"{n % 4}") for n in range(80)]
        async with asyncio.timeout(60):
            await asyncio.gather(
                schedule(many[0], runs[:40]),
                schedule(many[1], runs[40:]),
                *(work(each, f"{n}") for n, each in enumerate(many)),
            )
        assert over == Counter(f"{n}" for n in range(80))
        assert await all_runs(engine, states=LIVE) == []
