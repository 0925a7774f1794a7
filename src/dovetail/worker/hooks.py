"""The behaviors of one attempt, bound to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from dovetail.behaviors import Attempt, Behavior
from dovetail.tasks import Task


class Hooks:
    """Those that stand in parameters, and those around the call. One that cannot be bound fails the attempt, and the
    others still have their say."""

    __slots__ = ("by_parameter", "error", "wrappers")

    def __init__(self, task: Task, attempt: Attempt) -> None:
        self.by_parameter: dict[str, Behavior] = {}
        self.wrappers: list[Behavior] = []
        self.error: BaseException | None = None
        passed = _has_behavior(attempt.args) or _has_behavior(attempt.kwargs.values())
        if not (task.behaviors or task.wrappers or passed):
            return
        given = _given(task, attempt.args, attempt.kwargs)
        declared = task.behaviors
        if passed or not given.keys().isdisjoint(declared):
            # What a caller passes in a behavior's place counts instead of it.
            declared = {name: each for name, each in declared.items() if name not in given}
            declared |= {name: each for name, each in given.items() if isinstance(each, Behavior)}
        for name, each in declared.items():
            if (bound := self._bound(each, attempt)) is not None:
                self.by_parameter[name] = bound
        for each in task.wrappers:
            if (bound := self._bound(each, attempt)) is not None:
                self.wrappers.append(bound)

    def _bound(self, behavior: Behavior, attempt: Attempt) -> Behavior | None:
        try:
            return behavior.bind(attempt)
        except BaseException as broken:
            self.error = self.error or broken
            return None

    def __iter__(self) -> Iterator[Behavior]:
        yield from self.by_parameter.values()
        yield from self.wrappers

    @property
    def are_told(self) -> bool:
        """Whether one of them has methods that are to be told how the body ended."""
        return any(each.is_told for each in self)

    async def enter(self, stack: AsyncExitStack) -> None:
        """Enter the behaviors that are context managers of their own."""
        for name, each in list(self.by_parameter.items()):
            if type(each).__aenter__ is not Behavior.__aenter__:
                self.by_parameter[name] = await stack.enter_async_context(each)
        for each in self.wrappers:
            if type(each).__aenter__ is not Behavior.__aenter__:
                await stack.enter_async_context(each)

    def around(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The call, inside whatever is to be around it."""
        for behavior in self:
            if type(behavior).around is not Behavior.around:
                call = partial(behavior.around, call)
        return call

    def fill(
        self, task: Task, args: tuple[Any, ...], kwargs: dict[str, Any], extra: frozenset[str]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call, each behavior's parameter with the behavior as it is in this attempt."""
        if not self.by_parameter:
            return args, kwargs
        positional = task.names[: len(args)]
        if not extra and self.by_parameter.keys().isdisjoint(positional):
            return args, {**kwargs, **self.by_parameter}
        taken = tuple(self.by_parameter.get(name, value) for name, value in zip(positional, args, strict=False))
        named = {name: each for name, each in self.by_parameter.items() if name not in positional and name not in extra}
        return (*taken, *args[len(positional) :]), {**kwargs, **named}


def _has_behavior(values: Iterable[Any]) -> bool:
    for value in values:  # noqa: SIM110 - this is done for every run, and a generator costs
        if isinstance(value, Behavior):
            return True
    return False


def _given(task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What the caller passed, by parameter."""
    return {**dict(zip(task.names, args, strict=False)), **kwargs} if args else kwargs
