"""What a worker has seen to its end, as it tells the store."""

import asyncio
from datetime import UTC, datetime

from dovetail import Docket
from dovetail.model import Claim, Requeue, Settle, State, WorkerInfo
from dovetail.worker.tally import MOST_QUEUES, Tally
from tests.conftest import MakeWorker
from tests.waiting import eventually

CLAIM = Claim("id", 1, "k", "t", b"", 1, datetime(2030, 1, 1, tzinfo=UTC), "mail")


def test_ends_are_counted_and_what_goes_again_is_not() -> None:
    tally = Tally()
    for verdict in (Settle(CLAIM, State.COMPLETED), Settle(CLAIM, State.FAILED), Requeue(CLAIM, 2), None):
        tally.note(verdict)
    assert (tally.ended, tally.failed) == ({"mail": 2}, 1)


def test_only_so_many_queues_are_counted_each_for_itself() -> None:
    tally = Tally()
    for n in range(MOST_QUEUES + 5):
        tally.note(Settle(CLAIM.but(queue=f"{n}"), State.FAILED))
    assert (len(tally.ended), tally.failed) == (MOST_QUEUES, MOST_QUEUES + 5)


async def one_who_has_ended(docket: Docket) -> WorkerInfo | None:
    """A worker that has told of an end."""
    return next((worker for worker in await docket.workers() if worker.ended), None)


async def test_it_is_told_with_the_heartbeat(docket: Docket, make_worker: MakeWorker) -> None:
    async def greet() -> None: ...

    await docket.add(greet, queue="mail")()
    async with make_worker() as worker:
        working = asyncio.create_task(worker.run_forever())
        said = await eventually(lambda: one_who_has_ended(docket))
        worker.stop()
        await working
    assert (dict(said.ended), said.failed, said.lease) == ({"mail": 1}, 0, worker.redelivery_timeout)
