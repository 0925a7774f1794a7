"""A worker process: what `dovetail worker` runs, with a note in the record when it is asked to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
from datetime import timedelta
from typing import Any

from dovetail import Worker
from tests.system.programs.record import note


class NotingWorker(Worker):
    def stop(self) -> None:
        super().stop()
        note("stop")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--concurrency", type=int)
    parser.add_argument("--lease", type=float)
    settings = parser.parse_args()
    chosen: dict[str, Any] = {"concurrency": settings.concurrency}
    if settings.lease is not None:
        chosen["redelivery_timeout"] = timedelta(seconds=settings.lease)
    logging.basicConfig(level=logging.INFO)
    asyncio.run(NotingWorker.run(tasks=["tests.system.programs.tasks:tasks"], **chosen))


if __name__ == "__main__":
    main()
