"""Dependencies of which a task may have only one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from uncalled_for import Dependency, get_annotation_dependencies, get_dependency_parameters

from dovetail.errors import ConflictingBehaviors
from dovetail.tasks.declaring import declaration_of


def declared(function: Callable[..., Any]) -> list[tuple[str, Dependency[Any]]]:
    """Everything that a function's parameters ask for, and where it stands."""
    found = [(f"parameter {name!r}", each) for name, each in get_dependency_parameters(function).items()]
    for name, among in get_annotation_dependencies(function).items():
        found += [(f"parameter {name!r}", each) for each in among]
    return found + [("@task", each) for each in declaration_of(function).behaviors]


def refuse_conflicts(declared: Iterable[tuple[str, Dependency[Any]]]) -> None:
    """Raise an error if two of the same `single` kind are declared: it names the kind, and where they stand."""
    met: dict[type, tuple[str, Dependency[Any]]] = {}
    for place, dependency in declared:
        # The nearest kind first: two retries are two of Retry, and not of whatever a Retry is.
        for kind in type(dependency).__mro__:
            if not getattr(kind, "single", False):
                continue
            if kind in met:
                places = [f"{type(each).__name__} ({where})" for where, each in (met[kind], (place, dependency))]
                raise ConflictingBehaviors(
                    f"Only one {kind.__name__} dependency is allowed, but found: {', '.join(places)}"
                )
        met |= {kind: (place, dependency) for kind in type(dependency).__mro__ if getattr(kind, "single", False)}
