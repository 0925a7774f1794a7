"""Worker: a process that claims runs and runs them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Self

from uncalled_for import SharedContext

from dovetail import checks
from dovetail.clock import SystemClock, VirtualClock, from_microseconds
from dovetail.docket import Docket
from dovetail.errors import EngineUnavailable, InvalidArgument, InvalidType, OutcomeUnknown
from dovetail.execution import Execution
from dovetail.injection import current_docket, current_worker
from dovetail.middleware import Hooks, Middleware
from dovetail.model import Claim, Settle, Verdict, WorkerInfo, new_id
from dovetail.model import Pulse as Heard
from dovetail.observe.health import PATIENCE, Vitals, healthcheck_server
from dovetail.observe.prometheus import metrics_server
from dovetail.observe.tracing import in_background
from dovetail.queues import Queue, taken
from dovetail.schedules.definition import TASK as SCHEDULE
from dovetail.tasks import Task, TaskFunction, compact_signature, load_member
from dovetail.worker.additions import Dependencies, lifecycles, named_dependencies
from dovetail.worker.budget import Budget
from dovetail.worker.completing import completing
from dovetail.worker.intake import Intake
from dovetail.worker.janitor import Janitor
from dovetail.worker.lines import Lines
from dovetail.worker.listener import Listener
from dovetail.worker.logs import logger
from dovetail.worker.membership import membership
from dovetail.worker.pulse import Pulse, PulseThread
from dovetail.worker.recycling import Limits
from dovetail.worker.reporter import Reporter
from dovetail.worker.roster import Attend, Reason, Roster, Tenure
from dovetail.worker.round import Round
from dovetail.worker.runner import Runner
from dovetail.worker.seeder import RETRY, Seeder
from dovetail.worker.settler import Settler
from dovetail.worker.surveyor import Surveyor
from dovetail.worker.tally import Tally
from dovetail.worker.telemetry import Telemetry
from dovetail.worker.threads import Threads
from dovetail.worker.ticker import Ticker

Shared = tuple[dict[Any, Any], asyncio.Lock, AsyncExitStack]
"""What the tasks of one worker share: values, the lock for making them, and how they are put away."""

MESSAGE_BATCH = 1000
"""How many runs are claimed in one call, at most."""
READY_WITHIN = 20.0
"""Seconds for which a claim shows that the claim loop moves: it looks every five or so by itself."""
STUCK_AFTER = 60.0
"""Seconds without so much as a failed claim after which the claim loop counts as stuck."""
FLUSH_TIME = 5.0
"""Seconds that a worker which is out of time still gives to writing down outcomes."""


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
        if not isinstance(docket, Docket):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidType(f"docket must be a Docket, not {docket!r}")
        if fallback_task is not None:
            checks.callable_task(fallback_task, "fallback_task")
        self.docket = docket
        self.name = checks.text(name or f"{socket.gethostname()}#{os.getpid()}", "name")
        self.concurrency = checks.whole(concurrency, "concurrency", least=1)
        self.redelivery_timeout = checks.duration(redelivery_timeout, "redelivery_timeout", positive=True)
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
        self.ageing = None if ageing is None else checks.duration(ageing, "ageing", positive=True)
        self.id = new_id()
        self._stack: AsyncExitStack | None = None
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
        if not isinstance(iterations_by_key, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidType(f"iterations_by_key must map keys to numbers, not {iterations_by_key!r}")
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
        if self._stack is None:
            async with self:
                await self._run(until_finished=until_finished, budget=budget)
            return
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
        tasks: Iterable[str] = ("dovetail.tasks:standard_tasks",),
        fallback_task: str | None = None,
        message_batch: int = MESSAGE_BATCH,
        dependencies: Dependencies | str | None = None,
        queues: Sequence[str | Queue] = (),
        shutdown_grace: timedelta = timedelta(seconds=25),
        durability: str = "durable",
        codec: str | None = None,
        once: bool = False,
        middleware: Iterable[Middleware] | str = (),
        ageing: timedelta | None = None,
        max_runs: int | None = None,
        max_age: timedelta | None = None,
        max_memory: int | None = None,
        healthcheck_port: int | None = None,
        healthcheck_patience: timedelta = PATIENCE,
        metrics_port: int | None = None,
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
        async with watchable, docket, worker, membership(worker, limits):
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
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
) -> AsyncGenerator[None]:
    """The servers from which others learn how a worker is, on those ports that were given."""
    with (
        metrics_server(port=metrics_port),
        healthcheck_server(port=healthcheck_port, worker=worker, patience=patience),
    ):
        yield


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


class Crew:
    """The parts of a worker while it runs, and the order in which they stop, which is written here once."""

    def __init__(self, worker: Worker, shared: Shared, *, until_finished: bool, budget: Budget | Round | None) -> None:
        docket = worker.docket
        self._shared = shared
        self._worker = worker
        self._docket = docket
        self._clock = docket.clock
        self._grace = worker.shutdown_grace
        self._stop_requests = 0
        self._stopping = asyncio.Event()
        self._asked = asyncio.Event()
        self._hurry = asyncio.Event()
        self.finished = asyncio.Event()
        self._threads = Threads(worker.concurrency)
        lines = Lines(worker.labels())
        self._telemetry = telemetry = Telemetry(worker.labels())
        self.reporter = Reporter(docket.engine, self._clock)
        runner = Runner(
            docket, self._clock, self._threads, lines, worker.name, worker.fallback_task, worker.dependencies,
            self.reporter,
        )  # fmt: skip
        self._processes = runner.processes
        runner.middleware = worker.hooks
        runner.telemetry = telemetry
        runner.is_stopping = lambda: self._stop_requests > 0
        self.tally = Tally()
        attend = self.tally.around(runner.run)
        attend = completing(attend if budget is None else budget.around(attend), telemetry)
        self._ticker = Ticker(docket.codec, self._clock)
        attend = self._ticker.around(attend)
        if isinstance(self._clock, VirtualClock):
            attend = _accompanied(attend, self._clock)
        self.settler = Settler(docket.engine, self._clock)
        self.roster = Roster(worker.concurrency, attend, self._put, docket.name)
        self.settler.settled = self._settled
        self.settler.give_up = self._ticker.given_up
        self.intake = Intake(
            docket.engine, self.roster, self._clock, worker=worker.name, queues=worker.queues,
            lease=worker.redelivery_timeout, batch=worker.message_batch,
            reconnection_delay=worker.reconnection_delay, until_finished=until_finished,
            once=isinstance(budget, Round), shares=worker.shares, ageing=worker.ageing,
        )  # fmt: skip
        self.listener = Listener(
            docket.engine, self._clock, on_work=self.intake.hint,
            on_stop=lambda run_id: self.roster.stop(run_id, Reason.STOP),
            reconnection_delay=worker.reconnection_delay,
        )  # fmt: skip
        self.seeder = Seeder(
            docket.engine, self._clock, docket.tasks, docket.drafter, lambda: docket.retention, self._is_stricken
        )
        self.janitor = Janitor(docket.engine, self._clock, lambda: docket.heartbeat_interval * docket.missed_heartbeats)
        self._in_thread = isinstance(self._clock, SystemClock)
        self.pulse = Pulse(
            docket.engine.twin(), self.roster, self._clock, lease=worker.redelivery_timeout,
            interval=lambda: docket.heartbeat_interval, say=self._say, heard=self._heed,
        )  # fmt: skip
        self.surveyor = Surveyor(docket.engine, self._clock, telemetry, lambda: docket.heartbeat_interval)
        self.settler.telemetry = self.intake.telemetry = self.pulse.telemetry = telemetry
        self._pulse_thread = PulseThread(self.pulse, self.roster)
        self._started = from_microseconds(self._clock.microseconds())

    def stop(self) -> None:
        """Once: take in nothing more, let running work end. Twice: hand it back now."""
        self._stop_requests += 1
        self._asked.set()
        self._stopping.set()
        self.intake.stop()
        if self._stop_requests > 1:
            self._hurry.set()

    def retire(self) -> None:
        """Take in nothing more, without asking anything to hurry."""
        self._stopping.set()
        self.intake.stop()

    @property
    def is_ready(self) -> bool:
        intake, now = self.intake, self._clock.monotonic()
        if self._stopping.is_set() or not intake.has_claimed:
            return False
        return self.roster.room <= 0 or now - intake.moved < READY_WITHIN

    @property
    def is_stuck(self) -> bool:
        is_due = not self._stopping.is_set() and self.roster.room > 0
        return is_due and self._clock.monotonic() - self.intake.tried > STUCK_AFTER

    @property
    def last_claim_at(self) -> datetime | None:
        if not self.intake.has_claimed:
            return None
        ago = timedelta(seconds=self._clock.monotonic() - self.intake.moved)
        return from_microseconds(self._clock.microseconds()) - ago

    async def work(self) -> None:
        self._set_context()
        self._announce()
        self._telemetry.begin()
        try:
            with self._in_background():
                await self._learn_strikes()
            async with (
                lifecycles(self._worker, self._docket.tasks.values()),
                self._docket.hooks.lifetime(self._worker),
                self._worker.hooks.lifetime(self._worker),
                asyncio.TaskGroup() as group,
            ):
                self.roster.context = contextvars.copy_context()
                with self._in_background():
                    await self._keep_at_it(group)
        finally:
            # Only after a bug of ours is anything still at work: nobody would renew its lease.
            await self._abandon()
            self._threads.shutdown()
            await self._processes.close()
            self.finished.set()

    async def _keep_at_it(self, group: asyncio.TaskGroup) -> None:
        await self._seed()
        pulse = group.create_task(self._beat(), name="dovetail pulse")
        settling = group.create_task(self.settler.run(), name="dovetail settler")
        helpers = [group.create_task(self.listener.run(), name="dovetail listener")]
        helpers.append(group.create_task(self.janitor.run(), name="dovetail janitor"))
        helpers.append(group.create_task(self.reporter.run(), name="dovetail reporter"))
        helpers.append(group.create_task(self.surveyor.run(), name="dovetail surveyor"))
        if self._worker.schedule_automatic_tasks:
            helpers.append(group.create_task(self.seeder.run(), name="dovetail seeder"))
        await self.intake.run()
        await self._drain()
        self.settler.close()
        await self._flush(settling)
        for helper in helpers:
            helper.cancel()
        self._stop_beating()
        await pulse

    def _in_background(self) -> AbstractContextManager[None]:
        """What the parts ask of the store shows in nobody's traces, unless it is to. Bodies are not among it."""
        return in_background(traced=self._worker.enable_internal_instrumentation)

    def vitals(self) -> Vitals:
        since = self._clock.monotonic() - self.intake.moved
        return Vitals(timedelta(seconds=since), self.roster.room > 0, len(self.roster.running), self._stop_requests > 0)

    def _set_context(self) -> None:
        """This worker, its docket and what its tasks share are those of its own tasks, and not of another worker's."""
        current_docket.set(self._docket)
        current_worker.set(self._worker)
        resolved, lock, stack = self._shared
        SharedContext.resolved.set(resolved)
        SharedContext.lock.set(lock)
        SharedContext.stack.set(stack)

    async def _learn_strikes(self) -> None:
        """Know what is stricken before anything is claimed, however long that takes, or be told to stop."""
        learning = asyncio.ensure_future(self._read_strikes())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([learning, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not learning.cancel():
            learning.result()

    async def _read_strikes(self) -> None:
        while True:
            try:
                return await self._docket.strike_list.refresh()
            except (EngineUnavailable, OutcomeUnknown) as error:
                delay = self._worker.reconnection_delay
                logger.warning("the strikes cannot be read, trying again in %s: %s", delay, error)
                await self._clock.sleep(delay)

    def _is_stricken(self, name: str, function: TaskFunction) -> bool:
        """Whether a task must not be started unasked."""
        now = from_microseconds(self._clock.microseconds())
        seed = Execution[Any](self._docket, function, (), {}, name, now, function_name=name)
        return self._docket.strike_list.is_stricken(seed)

    async def _seed(self) -> None:
        """Start automatic tasks before anything is claimed: a worker that is to finish must not miss them."""
        if not self._worker.schedule_automatic_tasks or self._stop_requests:
            return
        while not await self.seeder.seed() and not self._stop_requests:
            await self._clock.sleep(RETRY)

    def _put(self, verdict: Verdict) -> None:
        self.settler.put(self._ticker.instead_of_handing_back(verdict))
        if verdict.claim.key == verdict.claim.task and isinstance(verdict, Settle) and not verdict.then:
            self.seeder.chain_ended(verdict.claim.task)

    def _settled(self, claim: Claim) -> None:
        self.roster.settled(claim)
        if claim.task == SCHEDULE:
            self.intake.hint()  # it has placed runs that are due: no need to wait until the store says so

    async def _drain(self) -> None:
        """Hand back what has not started; let running work end while there is grace, then hand it back too."""
        self.roster.release_reserve()
        if not self.roster.running:
            return
        logger.info("Shutdown requested, finishing %d running runs", len(self.roster.running))
        idle = asyncio.ensure_future(self.roster.is_idle.wait())
        hurry = asyncio.ensure_future(self._hurry.wait())
        grace = asyncio.ensure_future(self._grace_is_over())
        await asyncio.wait([idle, hurry, grace], return_when=asyncio.FIRST_COMPLETED)
        for each in (hurry, grace):
            each.cancel()
        if self.roster.running:
            logger.warning("out of time: %d runs are handed back", len(self.roster.running))
            self.roster.stop_all(Reason.SHUTDOWN)
            await asyncio.wait([idle], timeout=FLUSH_TIME)
        idle.cancel()

    async def _grace_is_over(self) -> None:
        await self._asked.wait()  # one who retires waits for as long as it takes
        await self._clock.sleep(self._grace)

    async def _abandon(self) -> None:
        bodies = [tenure.task for tenure in self.roster.running if tenure.task is not None]
        self.roster.stop_all(Reason.LOST)
        if bodies:
            await asyncio.wait(bodies, timeout=FLUSH_TIME)

    async def _flush(self, settling: asyncio.Task[None]) -> None:
        done, _ = await asyncio.wait([settling], timeout=max(FLUSH_TIME, self._grace.total_seconds()))
        if not done:
            logger.error("some outcomes could not be written; their runs start again once their leases lapse")
            settling.cancel()

    async def _beat(self) -> None:
        if self._in_thread:
            await self._pulse_thread.run()
        else:
            await self.pulse.run(asyncio.get_running_loop())

    def _stop_beating(self) -> None:
        if self._in_thread:
            self._pulse_thread.stop()
        else:
            self.pulse.stop()

    def _say(self) -> WorkerInfo:
        worker = self._worker
        return WorkerInfo(
            worker.name, tasks=frozenset(self._docket.tasks), id=worker.id, queues=worker.queues,
            concurrency=worker.concurrency, running=len(self.roster.running), host=socket.gethostname(),
            pid=os.getpid(), started=self._started, has_fallback=worker.fallback_task is not None,
            interval=self._docket.heartbeat_interval, blocked=self._pulse_thread.blocked,
            lease=worker.redelivery_timeout, grace=worker.shutdown_grace,
            ended=dict(self.tally.ended), failed=self.tally.failed,
        )  # fmt: skip

    def _heed(self, heard: Heard) -> None:
        self._docket.strike_list.notice(heard.holds)
        for run_id in heard.lost:
            self.roster.stop(run_id, Reason.LOST)
        for run_id in heard.stopping:
            self.roster.stop(run_id, Reason.STOP)

    def _announce(self) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        logger.info("Starting worker %r with the following tasks:", self._worker.name)
        for name, function in self._docket.tasks.items():
            logger.info("* %s(%s)", name, compact_signature(Task.of(function).signature))


def _accompanied(attend: Attend, clock: VirtualClock) -> Attend:
    """Let a clock that is moved know of the bodies that run."""

    async def accompany(tenure: Tenure) -> Verdict | None:
        with clock.body(tenure.claim.key):
            return await attend(tenure)

    return accompany
