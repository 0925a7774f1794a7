"""What a worker adds to its tasks: dependencies around each of them, and what it enters for those that they use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from uncalled_for import Dependency, get_annotation_dependencies, get_dependency_parameters

from dovetail import checks
from dovetail.behaviors.limits import Keyed
from dovetail.errors import InvalidArgument, InvalidType
from dovetail.tasks import TaskFunction
from dovetail.worker.logs import logger

if TYPE_CHECKING:
    from dovetail.worker.worker import Worker

Dependencies = Mapping[str, Any] | Sequence[Any]
"""Dependencies by name, or one after the other."""


def named_dependencies(given: Dependencies | None) -> dict[str, Any]:
    """The dependencies of a worker by name. Those without one are numbered."""
    if given is None:
        return {}
    members = checks.members(given, "dependencies must be dependencies by name, or a list of them")
    if isinstance(given, Mapping):
        named: dict[Any, Any] = dict(given)
        for name in named:
            if not isinstance(name, str) or not name.isidentifier() or name.startswith("__"):
                raise InvalidArgument(
                    f"dependencies: the name {name!r} cannot be used: names are identifiers, and those that begin with"
                    " two underscores are reserved"
                )
    else:
        named = {f"__worker_dep_{number}__": each for number, each in enumerate(members)}
    for name, each in named.items():
        if not isinstance(each, Dependency):
            raise InvalidType(
                f"dependencies: {name!r} must be a Dependency instance, such as Depends(function), not {each!r}"
            )
        if isinstance(each, Keyed):
            logger.warning(
                "dependencies: %s is a rule for scheduling, and has no effect on a worker; declare it on the tasks",
                type(each).__name__,
            )
    return named


@asynccontextmanager
async def lifecycles(worker: Worker, functions: Iterable[TaskFunction]) -> AsyncGenerator[None]:
    """Inside of what the dependencies want to be entered for as long as a worker runs."""
    async with AsyncExitStack() as stack:
        for kind in _kinds(worker, functions):
            manager = kind.worker_lifecycle(worker.docket, worker)
            if manager is not None:
                await stack.enter_async_context(manager)
        yield


def _kinds(worker: Worker, functions: Iterable[TaskFunction]) -> list[Any]:
    """The kinds of dependency in use that have a lifecycle, each once, in the order they are met."""
    used: list[Any] = list(worker.dependencies.values())
    for function in list(functions):
        used += get_dependency_parameters(function).values()
        used += [each for declared in get_annotation_dependencies(function).values() for each in declared]
    kinds: list[Any] = [type(each) for each in used]
    return [kind for kind in dict.fromkeys(kinds) if hasattr(kind, "worker_lifecycle")]
