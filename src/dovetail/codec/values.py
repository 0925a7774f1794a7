"""One value on its way into a body and out again: by tags if they can, else by the annotation there."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dovetail.codec.kinds import name_of
from dovetail.codec.limits import Limits
from dovetail.codec.refusal import Foreign, Refused, TooLarge
from dovetail.codec.sameness import difference
from dovetail.codec.shapes import Shape
from dovetail.codec.signature import CallTypes, Place
from dovetail.codec.trees import Reader, Writer, is_plain
from dovetail.errors import PayloadError, PayloadTooLarge

_QUOTED = re.compile(r"'[^']*'")


class Values:
    """Writes and reads single values.

    What an annotation, a hash or a time zone could change is read again once it is written, to prove that it
    comes back. All else is exact by the way it is written.
    """

    __slots__ = ("_limits",)

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def write(self, signature: CallTypes, place: Place, value: Any, *, careful: bool) -> tuple[Any, bool]:
        """The tree of a value, and whether it takes the annotation to bring it back."""
        if not careful and is_plain((value,), self._limits):
            return value, False
        try:
            return self._write(signature, place, value, careful)
        except TooLarge as refused:
            raise too_large(signature.describe(place), refused) from None
        except Foreign as foreign:
            raise PayloadError(f"{signature.describe(place)}: {foreign}; {_way_out(foreign, place)}") from None
        except Exception as error:  # classes and time zones of the caller's may raise anything
            if isinstance(error, UnicodeEncodeError) and not careful:
                raise  # lone surrogates: the whole body is written again, with care
            raise PayloadError(f"{signature.describe(place)}: {_changed(value, error)}") from None

    def _write(self, signature: CallTypes, place: Place, value: Any, careful: bool) -> tuple[Any, bool]:
        writer = Writer(self._limits, careful=careful, may_refer=place is not None)
        try:
            tree = writer.write(value)
        except Foreign:
            shape = signature.slot(place).shape
            if shape is None:
                raise
            return self._write_by_annotation(shape, value, careful), True
        if writer.needs_proof:
            _verify(value, self.read(tree))
        return tree, False

    def _write_by_annotation(self, shape: Shape, value: Any, careful: bool) -> Any:
        tree = Writer(self._limits, careful=careful).write(shape.lower(value))
        _verify(value, shape.lift(self.read(tree)))
        return tree

    def read(self, tree: Any) -> Any:
        """The value that tags alone bring back."""
        return Reader(self._limits).read(tree)

    def lift(self, signature: CallTypes, place: Place, lowered: Any) -> Any:
        """The value that the annotation makes of what tags brought back."""
        if not signature.is_known:
            return lowered  # good enough to look at, and nobody can run it here
        shape = signature.slot(place).shape
        what = signature.describe(place)
        if shape is None:
            raise Refused(f"{what} was stored by its annotation, and now has none that could bring it back")
        try:
            return shape.lift(lowered)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the class is the user's, and may raise whatever it likes
            raise Refused(f"{what} does not fit its annotation any more: {_reason(error)}") from None


def _verify(sent: Any, received: Any) -> None:
    found = difference(sent, received)
    if found:
        raise Refused(found)


def _way_out(foreign: Foreign, place: Place) -> str:
    where = "what it returns" if place is None else "the parameter"
    return (
        f"annotate {where} with {name_of(foreign.kind)} if that is a dataclass, NamedTuple, enum, "
        'msgspec.Struct, attrs class or pydantic model, pass plain data, or use codec="pickle"'
    )


def _changed(value: object, error: Exception) -> str:
    return (
        f"a value of type {name_of(type(value))} cannot be stored as JSON and come back the same: "
        f'{_reason(error)}; pass plain data, or use codec="pickle"'
    )


def _reason(error: BaseException) -> str:
    """What went wrong, without the values that msgspec puts in quotes and without what user code may say."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, msgspec.MsgspecError | TypeError):
        return _QUOTED.sub("...", str(error))[:500]
    return name_of(type(error))


def too_large(what: str, refused: TooLarge) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{what}: {refused}; keep large data elsewhere and pass where it is, or raise the payload limit"
    )
