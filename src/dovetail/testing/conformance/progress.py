"""report: how far a running run is."""

from __future__ import annotations

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import Claim, Conflict, Progress, ProgressReport
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    LEASE,
    SECOND,
    a_run,
    all_runs,
    complete,
    fail,
    newest,
    place,
    requeue,
    start,
    start_one,
    take_one,
)


def of(claim: Claim, **change: object) -> ProgressReport:
    """A report that the claim's epoch fences."""
    return ProgressReport(claim.key, claim.id, claim.epoch, **change)  # pyright: ignore[reportArgumentType]


async def progress_of(engine: Engine, key: str = "a") -> Progress:
    progress = (await newest(engine, key)).progress
    assert progress is not None
    return progress


class Progressing(Fixtures):
    async def test_a_report_is_seen(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        clock.jump(SECOND)
        assert await engine.report([of(claim, increment=3, total=10, message="halfway")]) == [True]
        assert await progress_of(engine) == Progress(3, 10, "halfway", clock.now())

    async def test_increments_add_up(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([of(claim, increment=1), of(claim, increment=2)])
        await engine.report([of(claim, increment=4)])
        assert (await progress_of(engine)).current == 7

    async def test_what_a_report_does_not_mention_stays(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([of(claim, increment=1, total=5, message="first")])
        await engine.report([of(claim, increment=1)])
        progress = await progress_of(engine)
        assert (progress.current, progress.total, progress.message) == (2, 5, "first")

    async def test_the_total_may_change(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([of(claim, total=5)])
        await engine.report([of(claim, total=9)])
        assert (await progress_of(engine)).total == 9

    async def test_a_message_may_change_and_be_cleared(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([of(claim, message="first")])
        await engine.report([of(claim, message="second")])
        assert (await progress_of(engine)).message == "second"
        await engine.report([of(claim, clear_message=True)])
        assert (await progress_of(engine)).message is None

    async def test_progress_is_of_one_run(self, engine: Engine) -> None:
        one, two = await start(engine, a_run("1"), a_run("2"))
        assert await engine.report([of(one, increment=1), of(two, increment=2)]) == [True, True]
        assert (await progress_of(engine, "1")).current == 1
        assert (await progress_of(engine, "2")).current == 2

    async def test_anyone_may_report_by_key(self, engine: Engine) -> None:
        await start_one(engine, a_run())
        assert await engine.report([ProgressReport("a", increment=2)]) == [True]
        assert (await progress_of(engine)).current == 2

    async def test_anyone_may_report_by_id(self, engine: Engine) -> None:
        older = await start_one(engine, a_run())
        newer = await start_one(engine, a_run(conflict=Conflict.KEEP_PENDING))
        assert await engine.report([ProgressReport("a", older.id, increment=2)]) == [True]
        by_id = {run.id: run.progress for run in await all_runs(engine)}
        reported = by_id[older.id]
        assert reported is not None
        assert reported.current == 2
        untouched = by_id[newer.id]
        assert untouched is None or untouched.current == 0

    async def test_a_run_that_is_not_running_takes_no_report(self, engine: Engine) -> None:
        await place(engine, a_run("pending"))
        over = await start_one(engine, a_run("over", priority=1))
        await complete(engine, over)
        reports = [ProgressReport(key, increment=1) for key in ("pending", "over", "nobody")]
        assert await engine.report(reports) == [False, False, False]
        assert [run.progress for run in await all_runs(engine)] == [None, None]

    async def test_a_refused_report_harms_no_other(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        reports = [
            of(claim, increment=1),
            of(claim.but(epoch=claim.epoch - 1), increment=1),
            of(claim, increment=1),
        ]
        assert await engine.report(reports) == [True, False, True]
        assert (await progress_of(engine)).current == 2

    async def test_reporting_nothing_is_nothing(self, engine: Engine) -> None:
        assert await engine.report([]) == []

    async def test_progress_begins_anew_when_the_run_is_claimed_again(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([of(claim, increment=9, total=10, message="nearly")])
        await requeue(engine, claim, attempt=2)
        again = await take_one(engine)
        await engine.report([of(again, increment=1)])
        progress = await progress_of(engine)
        assert (progress.current, progress.message) == (1, None)
        assert progress.total != 10

    async def test_progress_begins_anew_when_the_run_is_taken_over(self, engine: Engine, clock: VirtualClock) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([of(claim, increment=9)])
        clock.jump(LEASE + SECOND)
        again = await take_one(engine)
        await engine.report([of(again, increment=1)])
        assert (await progress_of(engine)).current == 1

    async def test_progress_is_gone_when_the_run_completes(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([of(claim, increment=1)])
        await complete(engine, claim)
        assert (await newest(engine, "a")).progress is None

    async def test_progress_is_gone_when_the_run_fails(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([of(claim, increment=1)])
        await fail(engine, claim)
        assert (await newest(engine, "a")).progress is None

    async def test_a_run_dropped_at_its_end_takes_its_progress_along(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run(retention=AT_ONCE))
        await engine.report([of(claim, increment=1)])
        await complete(engine, claim)
        assert await all_runs(engine) == []
