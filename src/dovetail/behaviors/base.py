"""What a task may declare about how its runs are scheduled, run and followed up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from inspect import Parameter
from typing import Any, Protocol, Self, cast

from dovetail.clock import SYSTEM_CLOCK, Clock
from dovetail.injection.context import Dependency, current_execution
from dovetail.model import Claim, Due, Failure, NewRun, ProgressReport, Verdict

Arguments = Mapping[str, Any]
"""A call's arguments by parameter name, defaults included."""

Proceed = Callable[[], Awaitable[Any]]
"""Runs the task, or the next behavior around it."""


class Host(Protocol):
    """Whoever runs attempts: what it does for them."""

    def arguments(self, attempt: Attempt) -> Arguments: ...

    def successor(self, attempt: Attempt, due: Due, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewRun: ...

    def report(self, report: ProgressReport, /) -> Awaitable[None]: ...


@dataclass(slots=True)
class Attempt:
    """One try at a run."""

    claim: Claim
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    clock: Clock
    host: Host

    @property
    def number(self) -> int:
        return self.claim.attempt

    @property
    def arguments(self) -> Arguments:
        return self.host.arguments(self)

    def successor(
        self, due: Due, args: tuple[Any, ...] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> NewRun:
        """A run of the same task under the same key, with the same arguments unless others are given."""
        if args is None and kwargs is None:
            return self.host.successor(self, due, self.args, self.kwargs)
        return self.host.successor(self, due, args or (), kwargs or {})

    async def report(self, *, increment: int = 0, total: int | None = None, message: str | None = None) -> None:
        """Say how far the run is. An empty message takes the last one away."""
        claim = self.claim
        clear = message == ""
        await self.host.report(
            ProgressReport(claim.key, claim.id, claim.epoch, increment, total, message or None, clear_message=clear)
        )


@dataclass(slots=True)
class Outcome:
    """How an attempt ended. Exactly one of result and error counts."""

    took: timedelta
    result: Any = None
    error: BaseException | None = None
    stored: bytes | None = None  # the result, or the exception, as it will be kept
    failure: Failure | None = field(default=None)  # the error as text


class Behavior(Dependency["Behavior"]):
    """Hooks in the order of a run's life. None of them talks to an engine: each returns data.

    A behavior is declared as a parameter's default, and the parameter then receives what `bind` returns; or in a
    parameter's `Annotated` metadata, and then it wraps the call and the parameter keeps its value.
    """

    single = False
    """Whether a task may declare only one behavior of this kind, subclasses included."""

    is_told = False
    """Whether it has methods that are to be told how a body ended: see `roles`."""

    declined = False
    """Whether such a method has said that nothing goes on."""

    parameter: str | None = None
    """The parameter in whose metadata the behavior stands, if it does."""

    def copy(self) -> Self:
        """Another one that is the same: what `bind` mostly begins with."""
        # As copy.copy() does it, at a tenth of the cost: this is done for every run.
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def on(self, parameter: str) -> Self:
        """This behavior as it stands in a parameter's metadata."""
        placed = self.copy()
        placed.parameter = parameter
        return placed

    def check(self, parameters: Mapping[str, Parameter]) -> None:
        """When the task is registered: raise an error if the behavior does not fit the parameters that callers give."""

    def seed(self, now: datetime) -> Due | None:
        """When the first turn comes of a run that workers keep alive unasked; None for none."""
        return None

    def plan(self, draft: NewRun, arguments: Arguments) -> NewRun:
        """The run as it should be scheduled."""
        return draft

    def bind(self, attempt: Attempt) -> Self:
        """This behavior for one attempt: what the task's parameter receives."""
        return self

    async def around(self, proceed: Proceed) -> Any:
        """Run the task, or run it differently."""
        return await proceed()

    def recover(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        """After an error: what to do instead of failing."""
        return None

    def follow_up(self, attempt: Attempt, outcome: Outcome) -> Verdict | None:
        """When the run would settle: what to do instead, or besides."""
        return None

    # In a process of its own a body has behaviors that were bound there. What they say reaches these.

    def pack(self) -> Any:
        """For a task in a process of its own: what the behavior over there has to know of this one."""
        return None

    def unpack(self, packed: Any, tell: Callable[[Any], None]) -> None:
        """Over there, once bound: take up what was packed. What is told is heard by `heed`, at once; the attributes
        that the body has changed come back when it is over."""

    def begin(self) -> None:
        """Over there, once everything is set up: the body begins."""

    async def heed(self, told: Any) -> None:
        """The behavior over there has told this one something."""

    async def __aenter__(self) -> Self:
        """Entered by hand, a behavior is bound to the execution at hand. A worker enters only those with an
        `__aenter__` of their own."""
        execution: Any = current_execution.get(None)
        if execution is None:
            return self
        # An execution knows what a behavior asks of a claim; nobody hosts what is done by hand.
        return self.bind(Attempt(execution, execution.args, execution.kwargs, SYSTEM_CLOCK, cast("Host", None)))
