"""The runner: takes one claim to a verdict. It touches no engine and knows no behavior by name."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.behaviors import Attempt, Behavior, Outcome
from dovetail.clock import Clock, from_microseconds
from dovetail.codec import CallTypes
from dovetail.execution import Execution
from dovetail.failures import failure_of
from dovetail.injection import current_execution, resolved
from dovetail.model import Claim, Requeue, Settle, State, Verdict
from dovetail.tasks import Task, TaskFunction
from dovetail.worker.lines import Lines
from dovetail.worker.logs import logger
from dovetail.worker.roster import Reason, Tenure

if TYPE_CHECKING:
    from dovetail.docket import Docket

UNKNOWN_DELAY = timedelta(seconds=5)
"""How long a run whose task is not known here waits before another worker, or this one, may try it."""


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

    async def run(self, tenure: Tenure) -> Verdict | None:
        """The verdict on a claim, or None if it is no longer ours to judge."""
        claim = tenure.claim
        function = self._tasks.get(claim.task, self._fallback)
        if function is None:
            return self._put_back(claim)
        try:
            task = Task.of(function)
            types = task.types if claim.task in self._tasks else CallTypes.unknown()
            args, kwargs = self._codec.load_call(types, claim.payload)
        except Exception as error:
            logger.error("the run %r cannot be read: %s", claim.key, error)
            return Settle(claim, State.FAILED, failure=failure_of(error))
        return await self._attempt(tenure, task, args, kwargs)

    def _put_back(self, claim: Claim) -> Verdict:
        logger.warning(
            "the task %r of the run %r is not registered on this worker; it is put back for %s. Pass --tasks"
            " module:collection or call docket.register()",
            claim.task, claim.key, UNKNOWN_DELAY,
        )  # fmt: skip
        return Requeue(claim, claim.attempt, UNKNOWN_DELAY)

    async def _attempt(
        self, tenure: Tenure, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Verdict | None:
        claim = tenure.claim
        execution = self._execution(claim, task, args, kwargs)
        if not self._strikes.is_clear and self._strikes.is_stricken(execution):
            self._lines.stricken(execution)
            return Settle(claim, State.CANCELLED)
        current_execution.set(execution)
        attempt = Attempt(
            claim, args, kwargs, self._clock,
            partial(self._docket.drafter.follow, claim, task, retention=self._docket.retention),
        )  # fmt: skip
        self._lines.started(execution, claim)
        started = self._clock.monotonic()
        bound, wrappers, error = _bind(task, attempt)
        hooks = [*bound.values(), *wrappers]
        if error is None:
            args, kwargs = _with_behaviors(task, args, kwargs, bound)
            outcome = await self._perform(tenure, task, args, kwargs, hooks)
        else:
            outcome = Outcome(timedelta(), error=error)
        outcome.took = timedelta(seconds=self._clock.monotonic() - started)
        return self._judge(tenure, task, attempt, outcome, hooks, execution)

    def _execution(self, claim: Claim, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution[Any]:
        execution = Execution[Any](
            self._docket, task.function, args, kwargs, claim.key, claim.due, claim.attempt, claim.headers or None,
            claim.redelivered, claim.task, claim.epoch,
        )  # fmt: skip
        execution.id = claim.id
        execution.state = State.RUNNING
        execution.worker = self._worker
        execution.started_at = from_microseconds(self._clock.microseconds())
        return execution

    # Performing

    async def _perform(
        self, tenure: Tenure, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any], hooks: list[Behavior]
    ) -> Outcome:
        """Set up, run, tear down. What goes wrong in tearing down never undoes what the body did."""
        if not task.has_dependencies:
            return await self._run_body(tenure, task, args, kwargs, hooks)
        stack = AsyncExitStack()
        try:
            given = task.bind(args, kwargs) if args else kwargs
            values = await stack.enter_async_context(resolved(task.function, given))
        except BaseException as error:
            return Outcome(timedelta(), error=error)
        outcome = await self._run_body(tenure, task, args, {**kwargs, **_not_positional(task, args, values)}, hooks)
        await _tear_down(stack, outcome, task)
        return outcome

    async def _run_body(
        self, tenure: Tenure, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any], hooks: list[Behavior]
    ) -> Outcome:
        proceed: Callable[[], Any] = partial(self._call, tenure, task, args, kwargs)
        for behavior in hooks:
            if type(behavior).around is not Behavior.around:
                proceed = partial(behavior.around, proceed)
        try:
            return Outcome(timedelta(), await proceed())
        except BaseException as error:
            return Outcome(timedelta(), error=error)

    async def _call(self, tenure: Tenure, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if task.is_async:
            return await task.function(*args, **kwargs)
        return await self._call_in_thread(tenure, partial(task.function, *args, **kwargs))

    async def _call_in_thread(self, tenure: Tenure, call: Callable[[], Any]) -> Any:
        """Run a plain function in a thread. A thread cannot be stopped, so whoever cancels waits for it, except a
        worker that is out of time: a run must not start elsewhere while its first attempt is still at it."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, lambda: context.run(_captured, call))
        cancelled: asyncio.CancelledError | None = None
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError as error:
                if tenure.reason in (Reason.SHUTDOWN, Reason.LOST):
                    raise
                cancelled = error
        result, error = running.result()
        if error is not None:
            raise error
        if cancelled is not None:
            raise cancelled
        if asyncio.iscoroutine(result):
            return await result  # a plain function that returned a coroutine
        return result

    # Judging

    def _judge(
        self, tenure: Tenure, task: Task, attempt: Attempt, outcome: Outcome, hooks: list[Behavior],
        execution: Execution[Any],
    ) -> Verdict | None:  # fmt: skip
        if tenure.reason is Reason.LOST:
            return None
        if outcome.error is None:
            self._store_result(task, outcome)
        else:
            stopped = self._stopped(tenure, outcome.error)
            if stopped is not None:
                self._lines.stopped(execution, stopped)
                return stopped
            self._store_error(outcome, outcome.error)
            self._lines.failed(execution, outcome)
        verdict = self._ask(tenure, attempt, outcome, hooks) or _settle(attempt.claim, outcome)
        self._lines.ended(execution, outcome, verdict)
        return verdict

    def _ask(self, tenure: Tenure, attempt: Attempt, outcome: Outcome, hooks: list[Behavior]) -> Verdict | None:
        """What the behaviors want. A run that somebody cancelled neither goes again nor goes on."""
        if tenure.reason is Reason.STOP:
            return None
        try:
            if outcome.error is not None:
                for behavior in hooks:
                    if (verdict := behavior.recover(attempt, outcome)) is not None:
                        return verdict
            for behavior in hooks:
                if (verdict := behavior.follow_up(attempt, outcome)) is not None:
                    return verdict
        except BaseException:
            logger.exception("a behavior of the run %r could not decide; the run settles", attempt.claim.key)
        return None

    def _stopped(self, tenure: Tenure, error: BaseException) -> Verdict | None:
        """The verdict on a body that was stopped, as against one that failed."""
        claim = tenure.claim
        if tenure.reason is Reason.STOP:
            failure = None if isinstance(error, asyncio.CancelledError) else failure_of(error)
            return Settle(claim, State.CANCELLED, failure=failure)
        if not isinstance(error, asyncio.CancelledError):
            return None
        if tenure.reason is Reason.SHUTDOWN:
            return Requeue(claim, claim.attempt)  # handed back, at no cost
        return Settle(claim, State.CANCELLED)  # the body cancelled itself

    def _store_result(self, task: Task, outcome: Outcome) -> None:
        """The result as bytes. If that cannot be, the run has completed all the same, and says what was wrong."""
        if outcome.result is None:
            return
        try:
            outcome.stored = self._codec.dump_result(task.types, outcome.result)
        except BaseException as error:
            logger.error("the result of %r cannot be stored: %s", task.function.__name__, error)
            outcome.failure = failure_of(error)

    def _store_error(self, outcome: Outcome, error: BaseException) -> None:
        outcome.failure = failure_of(error)
        try:
            outcome.stored = self._codec.dump_exception(error)
        except BaseException:  # its text is kept all the same
            outcome.stored = None


def _given(task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What the caller passed, by parameter."""
    return {**dict(zip(task.signature.parameters, args, strict=False)), **kwargs} if args else kwargs


def _bind(task: Task, attempt: Attempt) -> tuple[dict[str, Behavior], list[Behavior], BaseException | None]:
    """The behaviors of this attempt, by parameter and around the call. One that cannot be bound fails the attempt, and
    the others still have their say. What a caller passes in a behavior's place counts instead of it."""
    given = _given(task, attempt.args, attempt.kwargs)
    if not (task.behaviors or task.wrappers or any(isinstance(each, Behavior) for each in given.values())):
        return {}, [], None
    declared = {name: each for name, each in task.behaviors.items() if name not in given}
    declared |= {name: each for name, each in given.items() if isinstance(each, Behavior)}
    bound: dict[str, Behavior] = {}
    wrappers: list[Behavior] = []
    error: BaseException | None = None
    for name, each in [*declared.items(), *((None, each) for each in task.wrappers)]:
        try:
            if name is None:
                wrappers.append(each.bind(attempt))
            else:
                bound[name] = each.bind(attempt)
        except BaseException as broken:
            error = error or broken
    return bound, wrappers, error


def _with_behaviors(
    task: Task, args: tuple[Any, ...], kwargs: dict[str, Any], bound: dict[str, Behavior]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the call, each behavior's parameter with the behavior as it is in this attempt."""
    if not bound:
        return args, kwargs
    positional = list(task.signature.parameters)[: len(args)]
    taken = tuple(bound.get(name, value) for name, value in zip(positional, args, strict=False))
    named = {name: each for name, each in bound.items() if name not in positional}
    return (*taken, *args[len(positional) :]), {**kwargs, **named}


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


def _not_positional(task: Task, args: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Any]:
    """Values for parameters that no positional argument has taken."""
    taken = set(list(task.signature.parameters)[: len(args)])
    return {name: value for name, value in values.items() if name not in taken} if args else values


async def _tear_down(stack: AsyncExitStack, outcome: Outcome, task: Task) -> None:
    error = outcome.error
    try:
        await stack.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)
    except BaseException as failed:
        if failed is error:
            return
        logger.error(
            "a dependency of %r failed in its teardown; the outcome of the body stands",
            task.function.__name__, exc_info=failed,
        )  # fmt: skip
