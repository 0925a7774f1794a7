"""A worker process: what `dovetail worker` runs, with a note in the record when it is asked to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
from datetime import timedelta
from typing import Any

from dovetail import Worker
from dovetail.engines.sqlite import doorbell
from dovetail.worker import intake
from tests.system.programs.record import note

HARDLY_EVER = timedelta(hours=1)


class NotingWorker(Worker):
    """Notes that it is asked to stop. May live on hints alone: it then looks at nothing by itself."""

    hints_only = False

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if self.hints_only:
            self.docket.heartbeat_interval = HARDLY_EVER

    def stop(self) -> None:
        super().stop()
        note("stop")


def live_on_hints() -> None:
    NotingWorker.hints_only = True
    intake.FALLBACK_POLL = HARDLY_EVER
    doorbell.POLL = HARDLY_EVER.total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--lease", type=float)
    parser.add_argument("--hints-only", action="store_true")
    settings = parser.parse_args()
    if settings.hints_only:
        live_on_hints()
    chosen: dict[str, Any] = {"concurrency": settings.concurrency}
    if settings.lease is not None:
        chosen["redelivery_timeout"] = timedelta(seconds=settings.lease)
    logging.basicConfig(level=logging.INFO)
    asyncio.run(NotingWorker.run(tasks=["tests.system.programs.tasks:tasks"], **chosen))


if __name__ == "__main__":
    main()
