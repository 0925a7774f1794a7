"""A short way for dependencies that depend on nothing: they are had by asking for them.

Most are of that kind: a plain factory, a context value, something shared that is there already. For these the whole
machinery of resolution, with its frames and caches, costs more than the run itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from traceback import walk_tb
from typing import Any, cast

import uncalled_for
from uncalled_for import SharedContext, get_annotation_dependencies, get_dependency_parameters

from dovetail.injection.context import ContextValue

_Depends: Any = type(uncalled_for.Depends(lambda: None))
_Shared: Any = type(uncalled_for.Shared(lambda: None))

REMEMBERED = 1000
MISSING: Any = object()
"""What says that something is not there, or not yet."""


class Quick:
    """One dependency: how it is had, and what it has in common with others that have the same value."""

    __slots__ = ("identity", "is_factory", "is_shared", "take")

    def __init__(
        self, take: Callable[[], Any], identity: Hashable, *, is_factory: bool = False, is_shared: bool = False
    ) -> None:
        self.take = take
        self.identity = identity
        self.is_factory = is_factory  # what it returns may have to be awaited or entered
        self.is_shared = is_shared  # it may not be there yet


def quick_dependencies(function: Callable[..., Any], but: Callable[[Any], bool]) -> dict[str, Quick] | None:
    """What a function asks for, `but` for some, if all of it can be had the short way; else None."""
    if not all(but(each) for among in get_annotation_dependencies(function).values() for each in among):
        return None
    found = {name: _quick(each) for name, each in get_dependency_parameters(function).items() if not but(each)}
    return None if None in found.values() else {name: each for name, each in found.items() if each is not None}


def _quick(dependency: Any) -> Quick | None:
    if isinstance(dependency, ContextValue):
        value = cast("ContextValue[Any]", dependency)
        return Quick(value.read, value)
    if type(dependency) is _Shared:
        factory = dependency.factory
        return Quick(lambda: SharedContext.resolved.get().get(factory, MISSING), dependency, is_shared=True)
    if type(dependency) is not _Depends or dependency.bindings or get_dependency_parameters(dependency.factory):
        return None
    return Quick(dependency.factory, dependency.factory, is_factory=True)


def is_of_shared(error: BaseException) -> bool:
    """Whether an error was raised in the making of something shared, however deep down that was asked for."""
    making = _Shared.__aenter__.__code__
    return any(frame.f_code is making for frame, _ in walk_tb(error.__traceback__))


_UNREADY: Any = (AbstractAsyncContextManager, AbstractContextManager, Awaitable)
_values: dict[type, bool] = {}


def is_value(answer: object) -> bool:
    """Whether a factory's answer is the value itself, and need not be awaited or entered. Asked for every run, so that
    the answer is remembered by type."""
    kind = type(answer)
    known = _values.get(kind)
    if known is None:
        if len(_values) >= REMEMBERED:
            _values.clear()
        known = _values[kind] = not issubclass(kind, _UNREADY)
    return known


async def settled(answer: Any, stack: Callable[[], AsyncExitStack]) -> Any:
    """The value that a factory's answer stands for."""
    value: Any = answer
    if isinstance(answer, AbstractAsyncContextManager):
        return await stack().enter_async_context(value)
    if isinstance(answer, AbstractContextManager):
        return stack().enter_context(value)
    if isinstance(answer, Awaitable):
        return await value
    return value
