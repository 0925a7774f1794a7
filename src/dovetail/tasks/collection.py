"""Task collections: lists of functions that a worker is told of by name, as `module:member`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, cast

from dovetail.errors import InvalidArgument, InvalidType, UnknownMember
from dovetail.tasks.task import TaskFunction


def load_member(path: str) -> Any:
    """What `module:member` names."""
    module, separator, member = path.rpartition(":")
    if not separator or not module or not member:
        raise InvalidArgument(f"{path!r} does not name a member; write it as 'package.module:member'")
    imported = importlib.import_module(module)
    try:
        return getattr(imported, member)
    except AttributeError:
        raise UnknownMember(f"{path!r}: the module {module!r} has no member {member!r}") from None


def load_collection(path: str) -> list[TaskFunction]:
    """The functions of a collection."""
    collection = load_member(path)
    if not isinstance(collection, Iterable):
        raise InvalidType(f"{path!r} must be an iterable of functions, not {type(collection).__name__}")
    functions = list(cast("Iterable[Any]", collection))
    for function in functions:
        if not callable(function):
            raise InvalidType(f"{path!r} holds {function!r}, which is no function")
    return functions
