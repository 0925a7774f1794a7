"""The setting of a body: what its dependencies set up before it, and tear down after it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from typing import Any

from uncalled_for import FailedDependency, resolved_dependencies

from dovetail.failures import failure_of
from dovetail.injection.quick import MISSING, Quick, is_of_shared, is_value, settled
from dovetail.tasks import Task, TaskFunction
from dovetail.worker.logs import logger


class SharedUnavailable(ExceptionGroup[Exception]):
    """What the tasks of a worker share could not be made. That is no fault of the run, and the body has not begun."""


class Setting:
    """Set up once, torn down once. What goes wrong in tearing down never undoes what the body did."""

    def __init__(self, function: TaskFunction, quick: Mapping[str, Quick] | None = None) -> None:
        self._function = function
        self._quick = quick
        self._resolved: Any = None

    @cached_property
    def stack(self) -> AsyncExitStack:
        """For whatever else is to be around the body, outside of its dependencies."""
        return AsyncExitStack()

    async def up(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values of the dependencies. What is given is not resolved; all failures are raised together."""
        if self._quick is not None:
            wanted = [(name, each) for name, each in self._quick.items() if name not in given]
            if not any(each.is_shared and each.take() is MISSING for _, each in wanted):
                return await self._take(wanted)
        self._resolved = resolved_dependencies(self._function, given)
        values = await self._resolved.__aenter__()
        _raise_together([each for each in values.values() if isinstance(each, FailedDependency)])
        return {name: value for name, value in values.items() if name not in given}

    async def _take(self, wanted: list[tuple[str, Quick]]) -> dict[str, Any]:
        """The same, for dependencies that depend on nothing."""
        values: dict[str, Any] = {}
        taken: dict[Hashable, Any] = {}
        failed: list[FailedDependency] = []
        for name, each in wanted:
            try:
                if each.identity not in taken:
                    raw = each.take()
                    is_ready = not each.is_factory or is_value(raw)
                    taken[each.identity] = raw if is_ready else await settled(raw, lambda: self.stack)
                values[name] = taken[each.identity]
            except Exception as error:
                failed.append(FailedDependency(name, error))
        _raise_together(failed)
        return values

    @property
    def has_to_come_down(self) -> bool:
        return self._resolved is not None or "stack" in vars(self)

    async def down(self, error: BaseException | None) -> None:
        for manager in (self._resolved, self.__dict__.get("stack")):
            if manager is None:
                continue
            try:
                await manager.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)
            except BaseException as failed:
                if failed is not error:
                    logger.error(
                        "a dependency of %r failed in its teardown; the outcome of the body stands",
                        self._function.__name__, exc_info=failed,
                    )  # fmt: skip


def _raise_together(failed: list[FailedDependency]) -> None:
    if failed:
        names = ", ".join(each.parameter for each in failed)
        causes = "; ".join(str(failure_of(each.error)) for each in failed)
        kind = SharedUnavailable if any(is_of_shared(each.error) for each in failed) else ExceptionGroup
        raise kind(
            f"Failed to resolve dependencies for parameter(s): {names} ({causes})", [each.error for each in failed]
        )


def still_asked(task: Task, args: tuple[Any, ...], values: dict[str, Any], extra: frozenset[str]) -> dict[str, Any]:
    """Values for parameters of the body that no positional argument has taken."""
    if not (args or extra):
        return values
    taken = {*task.names[: len(args)], *extra}
    return {name: value for name, value in values.items() if name not in taken}
