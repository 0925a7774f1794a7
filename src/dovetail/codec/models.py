"""Pydantic models. Pydantic is imported only once an annotation or a value comes from it."""

from __future__ import annotations

import inspect
from enum import Enum
from functools import lru_cache
from typing import Any, cast, get_args

from dovetail.codec.kinds import kind_of
from dovetail.codec.refusal import Refused
from dovetail.codec.tags import SCALAR_WRITERS

_PACKAGES = frozenset({"pydantic", "pydantic_core", "pydantic_extra_types"})
_KEPT = frozenset({str, int, float, bool, type(None), *SCALAR_WRITERS})


def is_model(kind: object) -> bool:
    """Whether this class is pydantic's, or derives from one that is."""
    if not isinstance(kind, type):
        return False
    return any(base.__module__.partition(".")[0] in _PACKAGES for base in kind.__mro__)


def mentions_model(hint: Any) -> bool:
    """Whether pydantic has a part in this hint, `Annotated` metadata included."""
    kind = kind_of(hint)
    return is_model(hint) or is_model(kind) or any(map(mentions_model, get_args(hint)))


@lru_cache(maxsize=1024)
def adapter_of(kind: type) -> ModelAdapter:
    return ModelAdapter(kind)


class ModelAdapter:
    """A hint as pydantic reads it. Fields travel under their own names, whatever their aliases."""

    def __init__(self, hint: Any) -> None:
        from pydantic import TypeAdapter, ValidationError

        self._adapter: Any = TypeAdapter(hint)
        self._invalid = ValidationError
        # Before 2.11 a field that has an alias can only be read by it.
        by_name = "by_name" in inspect.signature(self._adapter.validate_python).parameters
        self._reading = {"by_alias": True, "by_name": True} if by_name else {}
        self._by_alias = not by_name

    def lower(self, value: Any) -> Any:
        tree = self._adapter.dump_python(value, by_alias=self._by_alias, round_trip=True, warnings=False)
        return _lowered(tree)

    def lower_leaf(self, value: Any) -> Any:
        return self._adapter.dump_python(value, mode="json", round_trip=True, warnings=False)

    def lift(self, tree: Any) -> Any:
        try:
            return self._adapter.validate_python(tree, **self._reading)
        except self._invalid as error:
            raise Refused(_without_values(error)) from None


def _lowered(tree: Any) -> Any:
    """The tree with every leaf that has no tag (URLs, enums, deques ...) as pydantic would put it in JSON."""
    kind = kind_of(tree)
    if kind in _KEPT:
        return tree
    if kind is dict:
        return {_lowered(key): _lowered(item) for key, item in cast("dict[Any, Any]", tree).items()}
    if kind in (list, tuple, set, frozenset):
        return cast("type[Any]", kind)(map(_lowered, tree))
    if isinstance(tree, Enum):
        return _lowered(tree.value)
    return adapter_of(kind).lower_leaf(tree)


def _without_values(error: Any) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:3])
