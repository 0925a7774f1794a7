"""What a task in a process of its own must be: found there by its name, and without what only the worker has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

from uncalled_for import Dependency, get_dependency_parameters

from dovetail.behaviors import Behavior
from dovetail.errors import CannotCross

REMEDY = 'take it out, or leave out executor="process"'


def refuse_what_cannot_cross(
    function: Callable[..., Any],
    parameters: Mapping[str, Dependency[Any]],
    metadata: Mapping[str, list[Dependency[Any]]],
) -> None:
    """Raise an error that names what another process could not find, or could not have."""
    _refuse_what_cannot_be_found(function)
    for name, dependency in parameters.items():
        for each in _asked(dependency):
            _refuse_the_workers(name, each)
    for name, among in metadata.items():
        for each in among:
            if not isinstance(each, Behavior):
                raise CannotCross(
                    f"the parameter {name!r} has {type(each).__name__} in its metadata, which a process of its own does"
                    " not resolve; make it the default of a parameter"
                )


def _refuse_what_cannot_be_found(function: Any) -> None:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module == "__main__":
        raise CannotCross(
            "it is defined in the program that was started, which another process cannot import; put it into a module"
        )
    if "<" in name:
        raise CannotCross(
            f"{name} is defined within a function, where another process cannot find it; define it in a module"
        )
    if located(module, name) is not function:
        raise CannotCross(
            f"{module}.{name} is not this function, so that another process would find something else; give it a name"
            " of its own in its module"
        )


def located(module: str | None, name: str) -> Any:
    """What a module that is imported has under a name, or None."""
    return reduce(lambda found, part: getattr(found, part, None), name.split("."), sys.modules.get(module or ""))


def _asked(dependency: Any) -> Iterator[Any]:
    """A dependency, and all that it depends on."""
    yield dependency
    bindings: Mapping[str, Any] = getattr(dependency, "bindings", {})
    inner = get_dependency_parameters(dependency.factory) if hasattr(dependency, "factory") else {}
    for name, each in inner.items():
        if name not in bindings:
            yield from _asked(each)
    for each in bindings.values():
        if isinstance(each, Dependency):
            yield from _asked(each)


def _refuse_the_workers(parameter: str, dependency: Any) -> None:
    if getattr(dependency, "is_the_workers", False):
        raise CannotCross(
            f"the parameter {parameter!r} asks for {dependency.name}, which only the worker's own process has; {REMEDY}"
        )
    if hasattr(dependency, "worker_lifecycle"):
        raise CannotCross(
            f"the parameter {parameter!r} asks for {type(dependency).__name__}, which is set up in the worker's own"
            f" process (it has a worker_lifecycle); {REMEDY}"
        )
