"""The runner: takes one claim to a verdict. It writes to no engine and knows no behavior by name."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dovetail import middleware
from dovetail.behaviors import AdmissionBlocked, Attempt, Fail, Outcome, Snooze, TaskOutcome, blocked
from dovetail.behaviors.cron import slot_of
from dovetail.behaviors.raising import raised
from dovetail.behaviors.roles import tell
from dovetail.clock import Clock, from_microseconds
from dovetail.codec import CallTypes
from dovetail.codec.references import MARK
from dovetail.errors import EngineUnavailable, ProcessDied
from dovetail.execution import Execution
from dovetail.failures import failure_of
from dovetail.injection import ask_to_stop, current_execution
from dovetail.model import Claim, Failure, Requeue, Settle, State, Verdict
from dovetail.tasks import Task, TaskFunction
from dovetail.worker import abroad
from dovetail.worker.hooks import Hooks
from dovetail.worker.lines import Lines
from dovetail.worker.logs import logger
from dovetail.worker.processes import NotStarted, Processes
from dovetail.worker.reporter import Reporter
from dovetail.worker.results import Results
from dovetail.worker.roster import Reason, Tenure
from dovetail.worker.setbacks import Setbacks
from dovetail.worker.setting import Setting, SharedUnavailable, still_asked
from dovetail.worker.soundness import sound
from dovetail.worker.stage import Stage, Stages
from dovetail.worker.telemetry import Telemetry, carried_on

if TYPE_CHECKING:
    from dovetail.docket import Docket

UNKNOWN_DELAY = timedelta(seconds=5)
"""How long a run whose task is not known here waits before another worker, or this one, may try it."""

UNREADABLE_DELAY = timedelta(seconds=1)
"""How long a run waits whose arguments are results that could not be read."""

UNSTARTED_DELAY = timedelta(seconds=5)
"""How long a run waits for which no process could be started."""

LAST_MOMENT = 2.0
"""Seconds that a plain function has to end in once the worker is out of time, if it can be told so."""

UNTRACED: AbstractContextManager[None] = nullcontext()
"""Around an attempt that nobody records."""

STRICKEN = Failure("Stricken", "a strike forbade it when it was about to start")


class Runner:
    """Runs attempts. An attempt ends in a verdict whatever it raises."""

    def __init__(
        self,
        docket: Docket,
        clock: Clock,
        threads: Executor,
        lines: Lines,
        worker: str,
        fallback: TaskFunction | None = None,
        added: Mapping[str, Any] | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self._docket = docket
        self._tasks: Mapping[str, TaskFunction] = docket.tasks
        self._strikes = docket.strike_list
        self._codec = docket.codec
        self._clock = clock
        self._threads = threads
        self._lines = lines
        self._worker = worker
        self._fallback = fallback
        self._reporter = reporter or Reporter(docket.engine, clock)
        self._results = Results(docket.engine, docket.codec, docket.tasks)
        self._stages = Stages(docket, added or {}, self._reporter.report)
        self._setbacks = Setbacks()
        self.processes = Processes()
        self.middleware = middleware.Hooks()
        self.telemetry = Telemetry(docket.labels())
        self.is_stopping: Callable[[], bool] = lambda: False
        self.cannot_share: Callable[[], None] = lambda: None  # told when what tasks share could not be made

    async def run(self, tenure: Tenure) -> Verdict | None:
        """The verdict on a claim, or None if it is no longer ours to judge."""
        claim = tenure.claim
        function = self._tasks.get(claim.task, self._fallback)
        if function is None:
            return self._put_back(claim)
        try:
            stage = self._stages.of(function)
        except Exception as error:  # what the worker adds does not go with what the task declares
            logger.error("the run %r cannot start on this worker: %s", claim.key, error)
            self.telemetry.unstarted(claim)
            return Settle(claim, State.FAILED, failure=failure_of(error))
        try:
            types = stage.task.types if claim.task in self._tasks else CallTypes.unknown()
            args, kwargs = self._codec.load_call(types, claim.payload, claim.task)
        except Exception as error:
            logger.error("the run %r cannot be read: %s", claim.key, error)
            self.telemetry.unstarted(claim)
            return Settle(claim, State.FAILED, failure=failure_of(error))
        if MARK in claim.payload:
            try:
                args, kwargs = await self._results.fill_in(claim, args, kwargs)
            except BaseException as error:
                return self._without_results(tenure, error)
        return await self._attempt(tenure, stage, args, kwargs)

    def _without_results(self, tenure: Tenure, error: BaseException) -> Verdict | None:
        """The verdict on a run whose arguments could not be had."""
        claim = tenure.claim
        if tenure.reason is Reason.LOST:
            return None
        if (stopped := self._stopped(tenure, error)) is not None:
            return stopped
        if isinstance(error, EngineUnavailable):
            logger.warning("the results for the run %r cannot be read yet, and it is put back: %s", claim.key, error)
            return Requeue(claim, claim.attempt, UNREADABLE_DELAY)
        logger.error("the run %r cannot start: %s", claim.key, error)
        self.telemetry.unstarted(claim)
        return Settle(claim, State.FAILED, failure=failure_of(error))

    def _put_back(self, claim: Claim) -> Verdict:
        logger.warning(
            "the task %r of the run %r is not registered on this worker; it is put back for %s. Pass --tasks"
            " module:collection or call docket.register()",
            claim.task, claim.key, UNKNOWN_DELAY,
        )  # fmt: skip
        return Requeue(claim, claim.attempt, UNKNOWN_DELAY)

    async def _attempt(
        self, tenure: Tenure, stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Verdict | None:
        """An attempt, from its first line in the log to its verdict."""
        claim, task = tenure.claim, stage.task
        execution = self._execution(claim, task, args, kwargs)
        if not self._strikes.is_clear and self._strikes.is_stricken(execution):
            self._lines.stricken(execution)
            self.telemetry.stricken(claim)
            return Settle(claim, State.CANCELLED, failure=STRICKEN)
        current_execution.set(execution)
        with self.telemetry.span(execution, claim) or UNTRACED as span:
            late = cast(datetime, execution.started_at) - claim.due
            self._lines.started(execution, claim, late)
            self.telemetry.started(claim, late)
            started = self._clock.monotonic()
            attempt = Attempt(claim, args, kwargs, self._clock, stage)
            hooks = Hooks(task, attempt)
            if layers := self._docket.hooks.around_attempts + self.middleware.around_attempts:
                perform = partial(self._perform, tenure, stage, args, kwargs, hooks)
                outcome = await _performed_within(layers, execution, perform)
            else:
                outcome = await self._perform(tenure, stage, args, kwargs, hooks)
            outcome.took = timedelta(seconds=self._clock.monotonic() - started)
            if (hooks.by_parameter or hooks.wrappers) and hooks.are_told:
                await self._tell(tenure, hooks, execution, outcome)
            if self._reporter.has_heard_of(claim.id):
                with suppress(asyncio.CancelledError):  # the body is over: to stop it now comes too late
                    await self._reporter.conclude(claim.id)
            verdict = self._judge(tenure, task, attempt, outcome, hooks, execution)
            self.telemetry.ended(claim, outcome, verdict)
            return verdict if span is None else carried_on(verdict)

    def _execution(self, claim: Claim, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution[Any]:
        # Not Execution[Any](...): to subscript a class costs as much as to make one.
        execution: Execution[Any] = Execution(
            self._docket, task.function, args, kwargs, claim.key, slot_of(claim), claim.attempt, claim.headers or None,
            claim.redelivered, claim.task, claim.epoch,
        )  # fmt: skip
        execution.id = claim.id
        execution.state = State.RUNNING
        execution.worker = self._worker
        execution.started_at = from_microseconds(self._clock.microseconds())
        return execution

    # Performing. What only chooses between coroutines is none itself: each costs something for every run.

    def _perform(
        self, tenure: Tenure, stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any], hooks: Hooks
    ) -> Coroutine[Any, Any, Outcome]:
        """Run the body, and set up before it what it depends on."""
        task = stage.task
        if hooks.error is not None:
            return _failed(hooks.error)
        if task.has_dependencies or task.enters:
            return self._run_in_setting(tenure, stage, args, kwargs, hooks)
        args, kwargs = hooks.fill(task, args, kwargs, stage.extra)
        return self._run_body(tenure, task, args, kwargs, hooks)

    async def _run_in_setting(
        self, tenure: Tenure, stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any], hooks: Hooks
    ) -> Outcome:
        """Set up, run, tear down. What goes wrong in tearing down never undoes what the body did."""
        task, setting = stage.task, Setting(stage.resolver, stage.quick)
        try:
            if task.enters:
                await hooks.enter(setting.stack)
            args, kwargs = hooks.fill(task, args, kwargs, stage.extra)
            given = task.bind(args, kwargs) if args else kwargs
            values = await setting.up({**given, **hooks.by_parameter} if hooks.by_parameter else given)
        except BaseException as error:
            outcome = Outcome(timedelta(), error=error)
        else:
            asked = still_asked(task, args, values, stage.extra)
            outcome = await self._run_body(tenure, task, args, {**kwargs, **asked}, hooks)
        if setting.has_to_come_down:
            await setting.down(outcome.error)
        return outcome

    async def _run_body(
        self, tenure: Tenure, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any], hooks: Hooks
    ) -> Outcome:
        proceed = hooks.around(partial(self._call, tenure, task, args, kwargs, hooks))
        try:
            return Outcome(timedelta(), await proceed())
        except BaseException as error:
            return Outcome(timedelta(), error=error)

    def _call(
        self, tenure: Tenure, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any], hooks: Hooks
    ) -> Awaitable[Any]:
        if task.declaration.executor == "process":
            return abroad.call(self.processes, tenure, task, hooks)
        tenure.has_begun = True
        if task.is_async:
            return task.function(*args, **kwargs)
        return self._call_in_thread(tenure, partial(task.function, *args, **kwargs))

    async def _call_in_thread(self, tenure: Tenure, call: Callable[[], Any]) -> Any:
        """Run a plain function in a thread. A thread cannot be stopped, only asked to, so whoever cancels waits for it,
        except a worker that is out of time: a run must not start elsewhere while its first attempt is still at it. What
        the function did in spite of it counts."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, lambda: context.run(_captured, call))
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                can_hear = ask_to_stop()
                if tenure.reason is Reason.LOST or (tenure.reason is Reason.SHUTDOWN and not can_hear):
                    raise
                if tenure.reason is Reason.SHUTDOWN and not await _ends_soon(running):
                    raise
        result, error = running.result()
        if error is not None:
            raise error
        if asyncio.iscoroutine(result):
            return await result  # a plain function that returned a coroutine
        return result

    # Judging

    async def _tell(self, tenure: Tenure, hooks: Hooks, execution: Execution[Any], outcome: Outcome) -> None:
        """Let handlers know of an end that is not merely a stop. What they raise counts as the body's error."""
        error = outcome.error
        if tenure.reason is not None or (error is not None and not _is_failure(error)):
            return
        try:
            await tell(hooks, execution, TaskOutcome(outcome.took, outcome.result, error))
        except BaseException as broken:
            outcome.error = broken

    def _judge(
        self, tenure: Tenure, task: Task, attempt: Attempt, outcome: Outcome, hooks: Hooks,
        execution: Execution[Any],
    ) -> Verdict | None:  # fmt: skip
        if tenure.reason is Reason.LOST:
            self.telemetry.lease_lost()
            return None
        if outcome.error is None:
            self._store_result(task, outcome)
        else:
            stopped = self._stopped(tenure, outcome.error)
            if stopped is not None:
                self._lines.stopped(execution, stopped)
                return stopped
            self._store_error(outcome, outcome.error)
            self._lines.failed(execution, outcome, tenure.claim)
            if isinstance(outcome.error, ProcessDied):
                return Requeue(attempt.claim, attempt.claim.attempt, failure=outcome.failure, crashed=True)
        verdict = self._ask(tenure, attempt, outcome, hooks) or _settle(attempt.claim, outcome)
        self._lines.ended(execution, outcome, verdict)
        return verdict

    def _ask(self, tenure: Tenure, attempt: Attempt, outcome: Outcome, hooks: Hooks) -> Verdict | None:
        """What the behaviors want. A run that somebody cancelled neither goes again nor goes on."""
        if tenure.reason is Reason.STOP:
            return None
        try:
            if outcome.error is not None and raised(Fail, outcome.error) is None:
                for behavior in hooks:
                    if (verdict := behavior.recover(attempt, outcome)) is not None:
                        return sound(verdict, attempt.claim, behavior)
            for behavior in hooks:
                if (verdict := behavior.follow_up(attempt, outcome)) is not None:
                    return sound(verdict, attempt.claim, behavior)
        except BaseException:
            logger.exception("a behavior of the run %r could not decide; the run settles", attempt.claim.key)
        return None

    def _stopped(self, tenure: Tenure, error: BaseException) -> Verdict | None:
        """The verdict on a body that was stopped, as against one that failed."""
        claim = tenure.claim
        if (refusal := blocked(error)) is not None and tenure.reason is None:
            return _turned_away(claim, refusal)
        if (snooze := raised(Snooze, error)) is not None and tenure.reason is not Reason.STOP:
            return Requeue(claim, claim.attempt, snooze.due)  # no failure, and at no cost
        if isinstance(error, NotStarted):
            logger.error("the run %r is put back for %s: %s", claim.key, UNSTARTED_DELAY, error)
            return Requeue(claim, claim.attempt, UNSTARTED_DELAY)
        if isinstance(error, SharedUnavailable) and tenure.reason is not Reason.STOP:
            return self._without_shared(claim, error)
        if tenure.reason is Reason.STOP:
            failure = None if isinstance(error, asyncio.CancelledError) else failure_of(error)
            return Settle(claim, State.CANCELLED, failure=failure)
        if not isinstance(error, asyncio.CancelledError):
            return None
        if tenure.reason is Reason.SHUTDOWN or (self.is_stopping() and _was_cancelled()):
            return Requeue(claim, claim.attempt)  # handed back, at no cost
        return Settle(claim, State.CANCELLED, failure=_own_cancellation(error))

    def _without_shared(self, claim: Claim, error: SharedUnavailable) -> Verdict | None:
        """Put back at no cost, so many times; then it fails like any other."""
        self.cannot_share()
        pause = self._setbacks.pause(claim)
        if pause is None:
            return None
        logger.error("the run %r is put back, since what it shares with others cannot be made: %s", claim.key, error)
        return Requeue(claim, claim.attempt, pause, failure=failure_of(error))

    def _store_result(self, task: Task, outcome: Outcome) -> None:
        """The result as bytes. If that cannot be, the run has completed all the same, and says what was wrong."""
        if outcome.result is None:
            return
        try:
            outcome.stored = self._codec.dump_result(task.types, outcome.result)
        except BaseException as error:
            trouble = outcome.result.error if isinstance(outcome.result, abroad.Unsendable) else error
            logger.error("the result of %r cannot be stored: %s", task.function.__name__, trouble)
            outcome.failure = failure_of(trouble)

    def _store_error(self, outcome: Outcome, error: BaseException) -> None:
        outcome.failure = failure_of(error)
        try:
            outcome.stored = self._codec.dump_exception(error)
        except BaseException:  # its text is kept all the same
            outcome.stored = None


async def _failed(error: BaseException) -> Outcome:
    return Outcome(timedelta(), error=error)


async def _performed_within(
    layers: Sequence[middleware.Layer], execution: Execution[Any], perform: Callable[[], Awaitable[Outcome]]
) -> Outcome:
    """The same, with middleware around it, which sees results and exceptions."""

    async def proceed() -> Any:
        outcome = await perform()
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    try:
        return Outcome(timedelta(), await middleware.attempt(layers, execution, proceed))
    except BaseException as error:
        return Outcome(timedelta(), error=error)


async def _ends_soon(running: asyncio.Future[Any]) -> bool:
    """Whether a function that was asked to end does so, while there is still time to write down what it says."""
    await asyncio.wait([running], timeout=LAST_MOMENT)
    return running.done()


def _is_failure(error: BaseException) -> bool:
    """Whether an error is the body's own, as against one that says that it did not run, or not now."""
    if not isinstance(error, Exception) or isinstance(error, (NotStarted, ProcessDied)):
        return False
    return blocked(error) is None and raised(Snooze, error) is None


def _own_cancellation(error: asyncio.CancelledError) -> Failure:
    """What is recorded of a body that cancelled itself."""
    failure = failure_of(error)
    return failure if failure.message else failure.but(message="the body raised it, and nobody had cancelled the run")


def _was_cancelled() -> bool:
    """Whether somebody cancelled the asyncio task that this is, as against a body that raised by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _turned_away(claim: Claim, refusal: AdmissionBlocked) -> Verdict:
    delay = refusal.goes_again_after
    if delay is None:
        return Settle(claim, State.CANCELLED, failure=failure_of(refusal))
    return Requeue(claim, claim.attempt, delay)


Captured = tuple[Any, BaseException | None]


def _captured(call: Callable[[], Any]) -> Captured:
    """What a call returned, or raised. Some exceptions mean something else to a future or to a coroutine that waits for
    it, so none goes that way."""
    try:
        return call(), None
    except BaseException as error:
        return None, error


def _settle(claim: Claim, outcome: Outcome) -> Settle:
    state = State.COMPLETED if outcome.error is None else State.FAILED
    return Settle(claim, state, outcome.stored, outcome.failure)
