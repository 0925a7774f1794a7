"""Roles: the kinds of behavior of which a task may declare only one.

Behaviors are best written with the hooks of `Behavior`. These bases also take the methods that docket gives them:
`run` of a runtime, `handle_failure` of a failure handler, `on_complete` of a completion handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from dovetail.behaviors.base import Behavior, Proceed
from dovetail.behaviors.raising import Fail, raised
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

    def __init_subclass__(cls, *, native: bool = False, **kwargs: Any) -> None:
        """`native` says that `run` stands there for subclasses to call: the hooks do the work."""
        super().__init_subclass__(**kwargs)
        if "run" in vars(cls) and not native:
            cls.around = _run

    async def run(
        self, execution: Any, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return await function(*args, **kwargs)


class FailureHandler(Behavior, Generic[T]):
    """What happens after a failure. A subclass may define `handle_failure(execution, outcome)`: it is told of the
    failure, and answers whether the run goes on."""

    single = True

    def __init_subclass__(cls, *, native: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.is_told = cls.is_told or ("handle_failure" in vars(cls) and not native)

    async def handle_failure(self, execution: Any, outcome: TaskOutcome) -> bool:
        return False


class CompletionHandler(Behavior, Generic[T]):
    """What happens at the end. A subclass may define `on_complete(execution, outcome)`: it is told of a success, or of
    a failure after which the run does not go on, and answers whether something follows."""

    single = True

    def __init_subclass__(cls, *, native: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.is_told = cls.is_told or ("on_complete" in vars(cls) and not native)

    async def on_complete(self, execution: Any, outcome: TaskOutcome) -> bool:
        return False


async def tell(behaviors: Iterable[Behavior], execution: Any, outcome: TaskOutcome) -> None:
    """Tell the handlers among behaviors how a body ended: the completion handler only if the run is over."""
    handlers = list(behaviors)
    goes_on = False
    if outcome.exception is not None and raised(Fail, outcome.exception) is None:
        for each in handlers:
            if isinstance(each, FailureHandler):
                each.declined = not await each.handle_failure(execution, outcome)
                goes_on = goes_on or not each.declined
    if goes_on:
        return
    for each in handlers:
        if isinstance(each, CompletionHandler):
            each.declined = not await each.on_complete(execution, outcome)


async def _run(self: Runtime[Any], proceed: Proceed) -> Any:
    execution = current_execution.get()

    async def function(*args: Any, **kwargs: Any) -> Any:
        return await proceed()

    return await self.run(execution, function, execution.args, execution.kwargs)
