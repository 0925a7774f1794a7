"""Worker: a process that claims runs and runs them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Self

from uncalled_for import SharedContext

from dovetail import checks
from dovetail.docket import Docket
from dovetail.errors import InvalidArgument, UsageError
from dovetail.injection import current_docket, current_worker
from dovetail.middleware import Hooks, Middleware
from dovetail.model import new_id
from dovetail.observe.health import PATIENCE, Vitals, healthcheck_server
from dovetail.observe.prometheus import metrics_server
from dovetail.queues import Queue, taken
from dovetail.tasks import TaskFunction, load_member
from dovetail.worker.additions import Dependencies, named_dependencies
from dovetail.worker.budget import Budget
from dovetail.worker.crew import Crew, Shared
from dovetail.worker.logs import logger
from dovetail.worker.membership import membership
from dovetail.worker.recycling import Limits
from dovetail.worker.round import Round

MESSAGE_BATCH = 1000
"""How many runs are claimed in one call, at most."""


class Worker:
    """Claims runs of a docket and runs them, `concurrency` at a time.

    async with Worker(docket, concurrency=20) as worker:
        await worker.run_forever()
    """

    def __init__(
        self,
        docket: Docket,
        name: str | None = None,
        concurrency: int = 10,
        redelivery_timeout: timedelta = timedelta(seconds=10),
        reconnection_delay: timedelta = timedelta(seconds=5),
        minimum_check_interval: timedelta = timedelta(milliseconds=250),
        scheduling_resolution: timedelta = timedelta(milliseconds=250),
        schedule_automatic_tasks: bool = True,
        enable_internal_instrumentation: bool = False,
        fallback_task: TaskFunction | None = None,
        dependencies: Dependencies | None = None,
        message_batch: int = MESSAGE_BATCH,
        *,
        queues: Sequence[str | Queue] = (),
        shutdown_grace: timedelta = timedelta(seconds=25),
        middleware: Iterable[Middleware] = (),
        ageing: timedelta | None = None,
    ) -> None:
        checks.instance(docket, Docket, "docket must be a Docket")
        if fallback_task is not None:
            checks.callable_task(fallback_task, "fallback_task")
        self.docket = docket
        self.name = checks.text(name or f"{socket.gethostname()}#{os.getpid()}", "name")
        self.concurrency = checks.whole(concurrency, "concurrency", least=1)
        self.redelivery_timeout = checks.window(redelivery_timeout, "redelivery_timeout")
        self.reconnection_delay = checks.duration(reconnection_delay, "reconnection_delay")
        # docket polls at these two; here a slot that frees, a due time and new work each wake the worker.
        self.minimum_check_interval = checks.duration(minimum_check_interval, "minimum_check_interval")
        self.scheduling_resolution = checks.duration(scheduling_resolution, "scheduling_resolution")
        self.schedule_automatic_tasks = schedule_automatic_tasks
        self.enable_internal_instrumentation = enable_internal_instrumentation
        self.fallback_task = fallback_task
        self.dependencies = named_dependencies(dependencies)
        self.message_batch = checks.whole(message_batch, "message_batch", least=1)
        self.queues, self.shares = taken(queues)
        self.shutdown_grace = checks.duration(shutdown_grace, "shutdown_grace")
        self.hooks = Hooks(middleware)
        self.ageing = None if ageing is None else checks.window(ageing, "ageing")
        self.id = new_id()
        self._stack: AsyncExitStack | None = None
        self._is_running = False
        self._crew: Crew | None = None
        self._shared: Shared

    def __repr__(self) -> str:
        return f"<Worker {self.name!r} of {self.docket!r}>"

    def labels(self) -> dict[str, str]:
        return {**self.docket.labels(), "docket.worker": self.name}

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(SharedContext())
        self._shared = (SharedContext.resolved.get(), SharedContext.lock.get(), SharedContext.stack.get())
        self._tokens = (current_docket.set(self.docket), current_worker.set(self))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._crew is not None:
            self._crew.stop()
            await self._crew.finished.wait()
        stack, self._stack = self._stack, None
        with suppress(ValueError):  # left in another context than it was entered in
            current_docket.reset(self._tokens[0])
            current_worker.reset(self._tokens[1])
        if stack is not None:
            await stack.aclose()

    # Running

    async def run_forever(self) -> None:
        """Run until stopped. Cancelling the awaiting task is a graceful stop."""
        await self._run()

    async def run_until_finished(self) -> None:
        """Run until nothing is left on the docket: nothing due, nothing scheduled, nothing running.

        Queues that are paused without an end, or that this worker does not take, are not waited for.
        """
        await self._run(until_finished=True)

    async def run_at_most(self, iterations_by_key: Mapping[str, int]) -> None:
        """Run until finished, but run each of these keys at most so many times."""
        checks.instance(iterations_by_key, Mapping, "iterations_by_key must map keys to numbers")
        for key, count in iterations_by_key.items():
            checks.text(key, "each key of iterations_by_key")
            checks.whole(count, f"iterations_by_key[{key!r}]", least=0)
        await self._run(until_finished=True, budget=Budget(iterations_by_key))

    async def run_once(self) -> int:
        """Run what is due, and what that brings about for now; how many attempts that were.

        A key has one run in a round: the next one of a perpetual task is left, even if it is due.
        """
        turn = Round()
        await self._run(budget=turn)
        logger.info("nothing more is due; %d attempts were made", turn.ran)
        return turn.ran

    def stop(self) -> None:
        """Begin a graceful stop; a second call hands running work back at once."""
        if self._crew is not None:
            self._crew.stop()

    def retire(self) -> None:
        """Take in nothing more, and end once running work has, however long that takes."""
        if self._crew is not None:
            self._crew.retire()

    @property
    def is_ready(self) -> bool:
        """Whether the worker takes in work: its claim loop has moved of late, or all its slots are taken."""
        return self._crew is not None and self._crew.is_ready

    @property
    def is_stuck(self) -> bool:
        """Whether the claim loop should move and has not for a long time, not even to say that the store is away."""
        return self._crew is not None and self._crew.is_stuck

    @property
    def last_claim_at(self) -> datetime | None:
        """When the store last answered a claim; None before the first answer, and when the worker does not run."""
        return None if self._crew is None else self._crew.last_claim_at

    @property
    def attempts_made(self) -> int:
        """How many runs it has attended to since it was started."""
        return 0 if self._crew is None else self._crew.roster.attended

    def vitals(self) -> Vitals | None:
        """How it stands with the worker; None while it does not run. May be asked from another thread."""
        crew = self._crew
        return None if crew is None else crew.vitals()

    async def _run(self, *, until_finished: bool = False, budget: Budget | Round | None = None) -> None:
        if self._is_running:
            raise UsageError(
                f"the worker {self.name!r} runs already; stop it first, or make another one for the docket"
            )
        self._is_running = True
        try:
            async with self if self._stack is None else nullcontext():
                await self._work(until_finished, budget)
        finally:
            self._is_running = False

    async def _work(self, until_finished: bool, budget: Budget | Round | None) -> None:
        crew = self._crew = Crew(self, self._shared, until_finished=until_finished, budget=budget)
        working = asyncio.create_task(crew.work(), name=f"{self.docket.name} - worker:{self.name}")
        try:
            await _outlasting_cancellation(working, crew)
        finally:
            self._crew = None

    @classmethod
    async def run(
        cls,
        docket_name: str | None = None,
        url: str | None = None,
        name: str | None = None,
        concurrency: int = 10,
        redelivery_timeout: timedelta = timedelta(seconds=10),
        reconnection_delay: timedelta = timedelta(seconds=5),
        minimum_check_interval: timedelta = timedelta(milliseconds=100),
        scheduling_resolution: timedelta = timedelta(milliseconds=250),
        schedule_automatic_tasks: bool = True,
        enable_internal_instrumentation: bool = False,
        until_finished: bool = False,
        healthcheck_port: int | None = None,
        metrics_port: int | None = None,
        tasks: Iterable[str] = ("dovetail.tasks:standard_tasks",),
        fallback_task: str | None = None,
        message_batch: int = MESSAGE_BATCH,
        dependencies: Dependencies | str | None = None,
        queues: Sequence[str | Queue] = (),
        shutdown_grace: timedelta = timedelta(seconds=25),
        durability: str | None = None,
        codec: str | None = None,
        once: bool = False,
        middleware: Iterable[Middleware] | str = (),
        ageing: timedelta | None = None,
        max_runs: int | None = None,
        max_age: timedelta | None = None,
        max_memory: int | None = None,
        healthcheck_patience: timedelta = PATIENCE,
    ) -> None:
        """A whole worker process: opens the docket, imports the tasks, and stops gracefully on SIGTERM and SIGINT.

        A second signal hands running work back at once. After so many runs, at that age, or with so many MiB of memory
        it makes room for another process: it takes in nothing more, and ends once running work has. With ports it
        answers for its health and shows its metrics.
        """
        limits = Limits.of(max_runs, max_age, max_memory)
        if once and until_finished:
            raise InvalidArgument("once and until_finished are two different ends; ask for one of them")
        docket = Docket(
            docket_name, url, enable_internal_instrumentation=enable_internal_instrumentation, durability=durability,
            codec=codec,
        )  # fmt: skip
        for path in checks.texts(tasks, "tasks"):
            docket.register_collection(path)
        worker = cls(
            docket, name, concurrency, redelivery_timeout, reconnection_delay, minimum_check_interval,
            scheduling_resolution, schedule_automatic_tasks, enable_internal_instrumentation,
            load_member(fallback_task) if fallback_task else None,
            load_member(dependencies) if isinstance(dependencies, str) and dependencies else dependencies or None,
            message_batch, queues=queues, shutdown_grace=shutdown_grace,
            middleware=load_member(middleware) if isinstance(middleware, str) else middleware, ageing=ageing,
        )  # fmt: skip
        watchable = _watchable(worker, metrics_port, healthcheck_port, healthcheck_patience)
        async with watchable as watching, docket, worker, membership(worker, limits, watching.close):
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, _stop_for, worker, number)
            try:
                if once:
                    await worker.run_once()
                else:
                    await (worker.run_until_finished() if until_finished else worker.run_forever())
            finally:
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.remove_signal_handler(number)


@asynccontextmanager
async def _watchable(
    worker: Worker, metrics_port: int | None, healthcheck_port: int | None, patience: timedelta
) -> AsyncGenerator[ExitStack]:
    """The servers from which others learn how a worker is, on those ports that were given. They may be closed early."""
    with ExitStack() as watching:
        watching.enter_context(metrics_server(port=metrics_port))
        watching.enter_context(healthcheck_server(port=healthcheck_port, worker=worker, patience=patience))
        yield watching


def _stop_for(worker: Worker, number: signal.Signals) -> None:
    logger.info("Received %s, initiating graceful shutdown; once more to hand running work back", number.name)
    worker.stop()


async def _outlasting_cancellation(working: asyncio.Task[None], crew: Crew) -> None:
    """Wait for the crew. To be cancelled is to be asked to stop: the wait goes on until everything is put down."""
    while not working.done():
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            if working.cancelled():
                raise
            current = asyncio.current_task()
            if current is not None:
                current.uncancel()
            crew.stop()
    await working
