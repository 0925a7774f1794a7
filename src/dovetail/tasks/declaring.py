"""Declaring: what a function says of itself as a task, beyond its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from dovetail import checks
from dovetail.behaviors import Behavior
from dovetail.errors import DuplicateTask, InvalidType
from dovetail.model import Retention

F = TypeVar("F", bound=Callable[..., Any])

ATTRIBUTE = "__dovetail_task__"
Executor = Literal["process"]
"""Where a body runs that is to run neither on the worker's event loop nor in one of its threads."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What holds for a task's calls where nothing else is said."""

    name: str | None = None  # None: the function's own
    queue: str = "default"
    priority: int = 0
    behaviors: tuple[Behavior, ...] = ()
    tags: tuple[str, ...] = ()
    retention: Retention | None = None  # None: the docket's
    executor: Executor | None = None  # None: `async def` on the event loop, `def` in a thread


PLAINLY = Declaration()


@overload
def task(function: F, /) -> F: ...
@overload
def task(
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 0,
    behaviors: Iterable[Behavior] = (),
    tags: Iterable[str] = (),
    retention: timedelta | Retention | None = None,
    executor: Executor | None = None,
) -> Callable[[F], F]: ...
def task(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int = 0,
    behaviors: Iterable[Behavior] = (),
    tags: Iterable[str] = (),
    retention: timedelta | Retention | None = None,
    executor: Executor | None = None,
) -> Any:
    """Declare a function as a task. It stays the function that it is: called, it runs here and now.

        @task(name="mail.send", queue="mail", behaviors=[Retry(attempts=3)])
        async def send(address: str) -> None: ...

    What is given at `add` counts instead of what is declared here. With `executor="process"` the body runs in a process
    of its own, which can be stopped for real and may crash without harm to anything else.
    """
    declaration = Declaration(
        None if name is None else checks.text(name, "name"),
        checks.queue(queue),
        checks.whole(priority, "priority"),
        _behaviors(behaviors),
        tuple(checks.texts(tags, "tags")),
        None if retention is None else checks.retention(retention, "retention"),
        None if executor is None else checks.one_of(executor, "executor", ("process",)),
    )

    def declare(function: F) -> F:
        checks.callable_task(function, "function")
        try:
            setattr(function, ATTRIBUTE, declaration)
        except (AttributeError, TypeError):
            raise InvalidType(f"{function!r} cannot be declared as a task; wrap it in a function") from None
        return function

    return declare if function is None else declare(function)


def declaration_of(function: Any) -> Declaration:
    found = getattr(function, ATTRIBUTE, None)
    return found if isinstance(found, Declaration) else PLAINLY


def name_of(function: Any) -> str:
    """What a task is called where it was given no other name."""
    return declaration_of(function).name or function.__name__


def refuse_clash(name: str, held: Any, function: Any) -> None:
    """An error if two functions were explicitly given one name. To define a function of a module again, as reloading
    it does, is no clash."""
    if held is None or held is function:
        return
    if declaration_of(held).name is None or declaration_of(function).name is None:
        return
    if _origin(held) == _origin(function) and "<locals>" not in _origin(function):
        return
    raise DuplicateTask(
        f"two tasks are called {name!r}: {_origin(held)} and {_origin(function)}; give one another name, or register it"
        " with names=[...] to put it in the other's place"
    )


def _origin(function: Any) -> str:
    qualified = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', '?')}.{qualified}"


def _behaviors(behaviors: Any) -> tuple[Behavior, ...]:
    given = checks.members(behaviors, "behaviors must be a list of behaviors, such as [Retry(attempts=3)]", but=())
    demand = "each of behaviors must be a behavior, such as Retry(attempts=3)"
    return tuple(checks.instance(each, Behavior, demand) for each in given)
