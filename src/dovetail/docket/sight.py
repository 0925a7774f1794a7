"""Reading back: one run, many, what hangs on what, and how it stands with the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail import checks, deploying, doctor, finding, graph
from dovetail.deploying import CheckReport
from dovetail.docket.grounds import Grounds
from dovetail.engine import Examines
from dovetail.engine.paging import WHOLE, pages
from dovetail.execution import Execution
from dovetail.graph import Graph
from dovetail.model import (
    PENDING,
    Finding,
    Page,
    Repair,
    Run,
    RunQuery,
    State,
    WorkerInfo,
)
from dovetail.schedules import is_tick
from dovetail.tasks import (
    TaskFunction,
)
from dovetail.why import Why
from dovetail.why.gathering import Inquiry


class RunningExecution(Execution[Any]):
    """A run in progress: on which worker, since when."""

    @classmethod
    def of(cls, execution: Execution[Any], run: Run) -> RunningExecution:
        running = cls(
            execution.docket, execution.function, execution.args, execution.kwargs, execution.key, execution.when,
            execution.attempt, function_name=execution.function_name,
        )  # fmt: skip
        running.take_in(run)
        return running

    @property
    def started(self) -> datetime | None:
        return self.started_at


@dataclass(frozen=True, slots=True)
class DocketSnapshot:
    """Everything that waits and runs, at one moment."""

    taken: datetime
    total_tasks: int
    future: Sequence[Execution[Any]]
    running: Sequence[RunningExecution]
    workers: Iterable[WorkerInfo] = field(default_factory=list[WorkerInfo])


class Sight(Grounds):
    """What can be seen of a docket."""

    async def get_execution(self, key: str) -> Execution[Any] | None:
        """The newest run of a key, or None if there is no record of one."""
        page = await self.engine.find(RunQuery.newest_of(checks.text(key, "key")))
        return self.execution_of(page.items[0]) if page.items else None

    async def find(
        self,
        *,
        states: Iterable[State | str] = (),
        tasks: Iterable[TaskFunction | str] = (),
        queues: Iterable[str] = (),
        groups: Iterable[str] = (),
        tags: Iterable[str] = (),
        key_prefix: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        error: str | None = None,
        newest_first: bool = True,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Execution[Any]]:
        """Runs of any kind that are kept, a page at a time. All that is given must hold: a run is in one of the states,
        of one of the tasks, queues and groups, and carries all the tags. The `cursor` of a page asks for the next."""
        query = finding.query_of(
            states, self._names_of(tasks), queues, groups, tags, key_prefix, created_after, created_before, error,
            newest_first, limit, cursor,
        )  # fmt: skip
        page = await self.engine.find(query)
        return Page([self.execution_of(run) for run in page], page.cursor)

    def _names_of(self, tasks: Iterable[TaskFunction | str]) -> tuple[str, ...]:
        members = checks.members(tasks, "tasks must be a list of functions or names", but=(str,))
        return tuple(checks.text(self._name_of(each, "each of tasks"), "each of tasks") for each in members)

    async def graph(self, key: str | Execution[Any], *, at_most: int = 10_000) -> Graph:
        """What hangs on what: the run of a key, all that it waits for, and all that hangs on those, to any depth."""
        checks.whole(at_most, "at_most", least=1)
        return await graph.graph(self.engine, await self._run_of(key), at_most)

    async def why(self, key: str | Execution[Any]) -> Why:
        """Why a run is not running: all causes that hold, the decisive one first. A key that nobody knows is an answer
        too."""
        meant = key if isinstance(key, Execution) else checks.text(key, "key")
        silence = self.heartbeat_interval * self.missed_heartbeats
        inquiry = Inquiry(self.engine, self.strike_list, self.execution_of, self._now, silence)
        return await inquiry.why(meant)

    async def check(self, *, limit: int | None = None, progress: Callable[[int], None] | None = None) -> CheckReport:
        """Bind all that is pending to the tasks registered here, and report what would not run: for the moment before a
        deploy. `progress` is told from time to time how many were checked."""
        return await deploying.check(self.engine, self.tasks, self.codec, self._now(), limit, progress)

    async def snapshot(self) -> DocketSnapshot:
        """Everything that waits and runs, without a cap. Schedules are listed by `schedules.list()`."""
        taken = self._now()
        pending = await self.find_all(RunQuery(states=PENDING))
        waiting = [self.execution_of(run) for run in pending if not is_tick(run)]
        runs = [run for run in await self.find_all(RunQuery(states=(State.RUNNING,))) if not is_tick(run)]
        running = [RunningExecution.of(self.execution_of(run), run) for run in runs]
        return DocketSnapshot(taken, len(waiting) + len(running), waiting, running, await self.workers())

    async def find_all(self, query: RunQuery) -> list[Run]:
        """All the pages of a query."""
        return [run async for page in pages(self.engine.find, query.but(limit=WHOLE)) for run in page]

    async def workers(self) -> Sequence[WorkerInfo]:
        """The workers heard of lately."""
        # A glance is cheap beside any number of runs, where a survey has to count them.
        seen = await (self.engine.glance() if isinstance(self.engine, Examines) else self.engine.survey())
        oldest = seen.at - self._silence
        return [worker for worker in seen.workers if worker.last_seen is None or worker.last_seen > oldest]

    async def task_workers(self, task_name: str) -> Sequence[WorkerInfo]:
        """The workers that know a task."""
        checks.text(task_name, "task_name")
        return [worker for worker in await self.workers() if task_name in worker.tasks]

    # Health

    async def examine(self, *, durability: str | None = None) -> list[Finding]:
        """What is right and wrong with the store, the workers and the runs, the gravest first, and what to do. The
        store is judged by the docket's own durability, unless another is named."""
        return await doctor.examine(self.engine, self.clock, self._silence, durability)

    async def repair(self) -> list[Repair]:
        """Put right what can be derived from what is there, and say what that was. Safe while workers run; no run is
        lost by it."""
        return await doctor.repair(self.engine, self._silence)
