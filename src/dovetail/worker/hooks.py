"""The behaviors of one attempt, bound to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from dovetail.behaviors import Attempt, Behavior
from dovetail.tasks import Task, positional_names


class Hooks:
    """Those that stand in parameters, and those around the call. One that cannot be bound fails the attempt, and the
    others still have their say."""

    __slots__ = ("by_parameter", "error", "wrappers")

    def __init__(self, task: Task, attempt: Attempt) -> None:
        self.by_parameter: dict[str, Behavior] = {}
        self.wrappers: list[Behavior] = []
        self.error: BaseException | None = None
        given = _given(task, attempt.args, attempt.kwargs)
        if not (task.behaviors or task.wrappers or any(isinstance(each, Behavior) for each in given.values())):
            return
        # What a caller passes in a behavior's place counts instead of it.
        declared = {name: each for name, each in task.behaviors.items() if name not in given}
        declared |= {name: each for name, each in given.items() if isinstance(each, Behavior)}
        for name, each in [*declared.items(), *((None, each) for each in task.wrappers)]:
            try:
                if name is None:
                    self.wrappers.append(each.bind(attempt))
                else:
                    self.by_parameter[name] = each.bind(attempt)
            except BaseException as broken:
                self.error = self.error or broken

    def __iter__(self) -> Iterator[Behavior]:
        yield from self.by_parameter.values()
        yield from self.wrappers

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
        positional = positional_names(task.signature, len(args))
        taken = tuple(self.by_parameter.get(name, value) for name, value in zip(positional, args, strict=False))
        named = {name: each for name, each in self.by_parameter.items() if name not in positional and name not in extra}
        return (*taken, *args[len(positional) :]), {**kwargs, **named}


def _given(task: Task, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What the caller passed, by parameter."""
    return {**dict(zip(positional_names(task.signature, len(args)), args, strict=False)), **kwargs} if args else kwargs
