"""Declarations that would be lost, or fail every run: they are refused when the task is registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast, get_type_hints

import uncalled_for
from uncalled_for import CycleError, Dependency, get_dependency_parameters

from dovetail.errors import ConflictingBehaviors, InvalidType

_CallArgument = type(cast("object", uncalled_for.CallArgument()))


class CyclicDependencies(ConflictingBehaviors, CycleError):
    """Dependencies that wait for each other."""

    code = "cyclic_dependencies"


def refuse_what_cannot_be(
    function: Callable[..., Any], signature: inspect.Signature, parameters: Mapping[str, Dependency[Any]]
) -> None:
    for name, parameter in signature.parameters.items():
        default: Any = parameter.default
        if isinstance(default, type) and issubclass(default, Dependency):
            raise InvalidType(f"the parameter {name!r} has the class {default.__name__} as its default; write {name}:"
                              f" {default.__name__} = {default.__name__}(...)")  # fmt: skip
        if name in parameters and parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConflictingBehaviors(
                f"the parameter {name!r} is positional only, so that nothing can be injected there"
            )
    _refuse_unreadable(function, signature)
    for name, dependency in parameters.items():
        _follow(dependency, name, [])
    _refuse_circles(parameters)


def _refuse_unreadable(function: Callable[..., Any], signature: inspect.Signature) -> None:
    try:
        get_type_hints(function, include_extras=True)
    except NameError as error:
        if any("Annotated" in str(each.annotation) for each in signature.parameters.values()):
            raise InvalidType(
                f"its annotations cannot be read, and what they declare would be lost: {error}. Import at run time what"
                " they name, not only for type checkers"
            ) from None
    except Exception:  # it is no function with annotations: there is nothing to lose
        return


def _follow(dependency: Any, parameter: str, path: list[Any]) -> None:
    """Follow what a dependency depends on, down to factories that depend on nothing."""
    factory = getattr(dependency, "factory", None)
    if not hasattr(dependency, "factory"):
        return
    if not callable(factory):
        raise InvalidType(f"the parameter {parameter!r} depends on {factory!r}, which cannot be called")
    if factory in path:
        names = " -> ".join(getattr(each, "__name__", repr(each)) for each in [*path, factory])
        raise CyclicDependencies(f"the parameter {parameter!r} depends on itself: {names}")
    for _, each in _asked_by(dependency, parameter):
        _follow(each, parameter, [*path, factory])


def _asked_by(dependency: Any, parameter: str) -> Iterator[tuple[str, Any]]:
    """What a dependency asks for in turn, by the name under which it does."""
    bindings: Mapping[str, Any] = getattr(dependency, "bindings", {})
    try:
        asked = get_dependency_parameters(dependency.factory)
    except (TypeError, ValueError) as error:
        raise InvalidType(
            f"the parameter {parameter!r} depends on {dependency.factory!r}, whose own parameters cannot be read"
            f" ({error}); wrap it in a function"
        ) from None
    yield from ((name, each) for name, each in asked.items() if name not in bindings)
    yield from ((name, each) for name, each in bindings.items() if isinstance(each, Dependency))


def _refuse_circles(parameters: Mapping[str, Dependency[Any]]) -> None:
    """Arguments that are asked for by the dependencies that give them."""
    wants = {name: set(_arguments(each, name)) for name, each in parameters.items()}

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            raise CyclicDependencies(f"its parameters wait for each other: {' -> '.join([*path, name])}")
        for wanted in wants.get(name, ()):
            visit(wanted, [*path, name])

    for name in wants:
        visit(name, [])


def _arguments(dependency: Any, parameter: str) -> Iterator[str]:
    """The arguments of the task that a dependency asks for, itself or through others."""
    if isinstance(dependency, _CallArgument):
        wanted: Any = dependency
        yield wanted.parameter or parameter
    elif hasattr(dependency, "factory"):
        for name, each in _asked_by(dependency, parameter):
            yield from _arguments(each, name)
