"""Docket: a named collection of scheduled work over one engine. What users schedule on."""

from __future__ import annotations

from dovetail.docket.grounds import DEFAULT_URL, EXECUTION_TTL
from dovetail.docket.scheduling import Scheduled
from dovetail.docket.sight import PENDING, DocketSnapshot, RunningExecution
from dovetail.docket.steering import Steering
from dovetail.model import WorkerInfo
from dovetail.schedules import Schedules
from dovetail.tasks import TaskCall

__all__ = [
    "DEFAULT_URL",
    "EXECUTION_TTL",
    "PENDING",
    "Docket",
    "DocketSnapshot",
    "RunningExecution",
    "Scheduled",
    "TaskCall",
    "WorkerInfo",
]


class Docket(Steering):
    """A named collection of scheduled work.

        async with Docket(name="emails", url="sqlite:///emails.db") as docket:
            await docket.add(greet, when=tomorrow, key="greet:ann")("ann@example.com")

    Without a URL, DOVETAIL_URL is asked, then ./dovetail.db is used. Dockets of different names never see each other.
    """

    @property
    def schedules(self) -> Schedules:
        """Calls that come again at set times, kept in the store."""
        return Schedules(self, self._task, self._put_down, self._telemetry)
