"""What the codec knows of a task: its parameters, its result, and their annotations."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import SimpleNamespace
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from uncalled_for import Dependency, Provider

from dovetail.codec.demands import Demands
from dovetail.codec.fitting import Fit, Misfit, fit_of
from dovetail.codec.kinds import fields_of
from dovetail.codec.shapes import Shape, shape_of
from dovetail.errors import WrongArgument

Place = int | str | None


_NO_DEFAULT = object()


class Slot:
    """A place for a value, and the annotation that stands there."""

    def __init__(self, hint: Any = Any, default: Any = _NO_DEFAULT) -> None:
        self.hint = hint
        self._default = default
        self.exact = hint if _is_simple(hint) else None  # what is of this very class fits

    @functools.cached_property
    def fit(self) -> Fit | None:
        """Looks whether a value is what the annotation says. Built when a value first needs it."""
        if self.hint is Any or self.hint is object:
            return None
        try:
            return fit_of(self.hint)
        except Exception:  # a hint that nobody understands tells as much as none
            return None

    def misfit(self, value: Any) -> Misfit | None:
        if value is self._default or self.fit is None:
            return None
        try:
            return self.fit(value)
        except RecursionError:
            return None  # it holds itself, which is refused when it is written

    @functools.cached_property
    def shape(self) -> Shape | None:
        """Built when a value first needs it: most values never do."""
        if self.hint is Any or self.hint is object:
            return None
        try:
            return shape_of(self.hint)
        except Exception:  # a hint that nobody understands tells as much as none
            return None


def _is_simple(hint: Any) -> bool:
    """Whether the hint is a class without fields that could have bounds."""
    try:
        return isinstance(hint, type) and not fields_of(hint)
    except Exception:  # a metaclass may do what it likes
        return False


_UNANNOTATED = Slot()


class CallTypes:
    """The types of a task's parameters and of its result."""

    def __init__(
        self,
        name: str,
        *,
        positional: Mapping[str, Slot] | None = None,
        keyword: Mapping[str, Slot] | None = None,
        surplus: Slot = _UNANNOTATED,
        others: Slot = _UNANNOTATED,
        result: Slot = _UNANNOTATED,
        demands: Demands | None = None,
        is_known: bool = True,
    ) -> None:
        self.name = name
        self.result = result
        self.is_known = is_known
        self._positional = tuple((positional or {}).items())
        self._keyword = keyword or {}
        self._surplus = surplus
        self._others = others
        self.demands = demands
        slots = [*(positional or {}).values(), *self._keyword.values(), surplus, others]
        self._is_annotated = any(slot.hint is not Any for slot in slots)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> CallTypes:
        """The types of a function, read from its signature once."""
        try:
            return _SEEN[function]
        except KeyError:
            found = _SEEN[function] = _inspect(function)
            return found
        except TypeError:  # it cannot be hashed, or not weakly referenced
            return _inspect(function)

    @classmethod
    def unknown(cls, name: str = "a task that is not known here") -> CallTypes:
        """A task that this process has not got: every value goes by tags."""
        return cls(name, is_known=False)

    def slot(self, place: Place) -> Slot:
        """Where a value belongs: a positional argument by index, a keyword by name, the result by None."""
        if place is None:
            return self.result
        if isinstance(place, str):
            return self._keyword.get(place, self._others)
        return self._positional[place][1] if place < len(self._positional) else self._surplus

    def refuse_misfits(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise an error that names the first argument that is missing, too many or not what its annotation says."""
        if self.demands is not None and (mistake := self.demands.mistake(args, kwargs)):
            raise WrongArgument(f"{self.name!r} cannot be called with these arguments: {mistake}")
        if not self._is_annotated:
            return
        for place, value in enumerate(args):
            slot = self._positional[place][1] if place < len(self._positional) else self._surplus
            if type(value) is not slot.exact and (misfit := slot.misfit(value)):
                raise self._wrong(place, misfit)
        for name, value in kwargs.items():
            slot = self._keyword.get(name, self._others)
            if type(value) is not slot.exact and (misfit := slot.misfit(value)):
                raise self._wrong(name, misfit)

    def _wrong(self, place: Place, misfit: Misfit) -> WrongArgument:
        where = f", at {misfit.where}" if misfit.where else ""
        return WrongArgument(f"{self.describe(place)}{where}: {misfit.what}")

    def describe(self, place: Place) -> str:
        """The same place in the words of an error message."""
        if place is None:
            return f"the result of {self.name!r}"
        if isinstance(place, str):
            return f"argument {place!r} of {self.name!r}"
        if place < len(self._positional):
            return f"argument {self._positional[place][0]!r} of {self.name!r}"
        return f"positional argument {place + 1} of {self.name!r}"


_SEEN: WeakKeyDictionary[Any, CallTypes] = WeakKeyDictionary()
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_KEYWORD = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _inspect(function: Callable[..., Any]) -> CallTypes:
    name = str(getattr(function, "__name__", type(function).__qualname__))
    try:
        parameters = list(_signature(function).parameters.values())
    except (TypeError, ValueError):
        return CallTypes(name)  # a builtin that does not tell
    hints = _hints(function)
    provided = {
        each.name
        for each in parameters
        if isinstance(each.default, Dependency) or _is_provided(hints.get(each.name, Any))
    }
    slots = {
        each.name: _UNANNOTATED if each.name in provided else Slot(hints.get(each.name, Any), each.default)
        for each in parameters
    }
    by_kind = {each.kind: slots[each.name] for each in parameters}
    return CallTypes(
        name,
        positional={each.name: slots[each.name] for each in parameters if each.kind in _POSITIONAL},
        keyword={each.name: slots[each.name] for each in parameters if each.kind in _KEYWORD},
        surplus=by_kind.get(Parameter.VAR_POSITIONAL, _UNANNOTATED),
        others=by_kind.get(Parameter.VAR_KEYWORD, _UNANNOTATED),
        result=Slot(hints.get("return", Any)),
        demands=Demands(parameters, provided),
    )


def _is_provided(hint: Any) -> bool:
    """Whether the hint's metadata supplies the value, also from behind a `type` statement."""
    if not isinstance(hint, type):
        hint = getattr(hint, "__value__", hint)
    if get_origin(hint) is not Annotated:
        return False
    base, *metadata = get_args(hint)
    return any(_provides(each) for each in metadata) or _is_provided(base)


def _provides(metadata: Any) -> bool:
    kind = cast("type[Any]", metadata if isinstance(metadata, type) else type(metadata))
    return issubclass(kind, Provider)


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # A name that is imported for type checkers only must not spoil the others.
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The hints that can be resolved."""
    source = _annotated_source(function)
    try:
        return get_type_hints(source, include_extras=True)
    except Exception:
        names = getattr(inspect.unwrap(source), "__globals__", {})
        found = {name: _resolved(hint, names) for name, hint in _annotations(source).items()}
        return {name: hint for name, hint in found.items() if hint is not Any}


def _annotated_source(function: Any) -> Any:
    """The function that holds the annotations of a partial, a class or a callable object."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(function, type):
        return function.__init__
    return function if inspect.isroutine(function) else type(function).__call__


def _annotations(source: Any) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        return get_annotations(source, format=Format.FORWARDREF)
    return getattr(source, "__annotations__", {})


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """One hint on its own, or Any: evaluating an annotation may raise whatever its author wrote."""
    alone = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(alone, globalns=names, include_extras=True)["it"]
    except Exception:
        return Any
