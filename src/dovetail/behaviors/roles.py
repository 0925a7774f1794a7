"""Roles: the kinds of behavior of which a task may declare only one.

Behaviors are best written with the hooks of `Behavior`. These bases also take the methods that docket gives them:
`run` of a runtime, `handle_failure` of a failure handler, `on_complete` of a completion handler. They are called
around the body; what becomes of the run is decided by `recover` and `follow_up`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from dovetail.behaviors.base import Behavior, Proceed
from dovetail.injection.context import current_execution

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a body ended, as `handle_failure` and `on_complete` are told."""

    duration: timedelta
    result: Any = None
    exception: BaseException | None = None


class Runtime(Behavior, Generic[T]):
    """How the body is run. A subclass may define `run(execution, function, args, kwargs)`."""

    single = True
    run: Callable[..., Awaitable[Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "run" in vars(cls):
            cls.around = _run


class FailureHandler(Behavior, Generic[T]):
    """What happens after a failure. A subclass may define `handle_failure(execution, outcome)`, to be told of it."""

    single = True
    handle_failure: Callable[..., Awaitable[Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "handle_failure" in vars(cls):
            cls.around = _tell_failure


class CompletionHandler(Behavior, Generic[T]):
    """What happens at the end. A subclass may define `on_complete(execution, outcome)`, to be told of it."""

    single = True
    on_complete: Callable[..., Awaitable[Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "on_complete" in vars(cls):
            cls.around = _tell_end


async def _run(self: Runtime[Any], proceed: Proceed) -> Any:
    execution = current_execution.get()

    async def function(*args: Any, **kwargs: Any) -> Any:
        return await proceed()

    return await self.run(execution, function, execution.args, execution.kwargs)


async def _tell_failure(self: FailureHandler[Any], proceed: Proceed) -> Any:
    started = time.monotonic()
    try:
        return await proceed()
    except Exception as error:
        await self.handle_failure(current_execution.get(), _outcome(started, exception=error))
        raise


async def _tell_end(self: CompletionHandler[Any], proceed: Proceed) -> Any:
    started = time.monotonic()
    try:
        result = await proceed()
    except Exception as error:
        await self.on_complete(current_execution.get(), _outcome(started, exception=error))
        raise
    await self.on_complete(current_execution.get(), _outcome(started, result))
    return result


def _outcome(started: float, result: Any = None, exception: BaseException | None = None) -> TaskOutcome:
    return TaskOutcome(timedelta(seconds=time.monotonic() - started), result, exception)
