"""A process with a worker and a metrics endpoint. It does a bit of everything, then prints what it shows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from dovetail import Docket, Perpetual, Retry, Worker
from dovetail.instrumentation import metrics_server
from tests.observe.fetching import fetch
from tests.waiting import eventually

LAST = (
    "docket_tasks_perpetuated_total", "docket_tasks_failed_total", "dovetail_finish_batch_size_count",
    "docket_queue_depth", "docket_schedule_depth", "dovetail_oldest_queued_age_seconds",
    "dovetail_event_loop_lag_seconds_bucket",
)  # fmt: skip
"""What is shown last, each in its way."""


async def work() -> None: ...


async def flaky(retry: Retry = Retry(attempts=2)) -> None:
    raise ValueError("no")


async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=200), automatic=True)) -> None: ...


async def struck() -> None: ...


async def complete_page(port: int | None) -> str | None:
    """What is shown, once all of it is."""
    page = (await fetch(port, "/metrics")).body
    return page if all(f"{name}{{" in page for name in LAST) else None


async def main() -> None:
    with metrics_server("127.0.0.1", 0) as port:
        async with Docket("shop", "memory://", heartbeat_interval=timedelta(milliseconds=100)) as docket:
            for task in (work, flaky, tick, struck):
                docket.register(task)
            later = datetime.now(UTC) + timedelta(hours=1)
            await docket.strike("struck")
            await docket.add(struck)()
            await docket.add(work)()
            await docket.add(flaky)()
            await docket.replace(work, later, "later")()
            await docket.cancel("later")
            await docket.add(work, when=later)()
            worker = Worker(docket, "worker")
            running = asyncio.create_task(worker.run_forever())
            page = await eventually(lambda: complete_page(port))
            worker.stop()
            await running
    print(page)


asyncio.run(main())
