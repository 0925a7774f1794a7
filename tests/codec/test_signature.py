"""What the codec reads from a task's signature."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from uncalled_for import Depends

from dovetail.codec import CallTypes, codec_named
from dovetail.errors import PayloadError
from tests.codec.universe import Color, Point

if TYPE_CHECKING:
    from nowhere import Missing  # pyright: ignore[reportMissingImports]

RED, POINT = Color.RED, Point(1.0)


def sent(function: Any, *args: Any, **kwargs: Any) -> Any:
    codec, types = codec_named("json"), CallTypes.of(function)
    return codec.load_call(types, codec.dump_call(types, args, kwargs))


def current_color() -> Color:
    return RED


def paint(color: Color, /, where: Point, *more: Color, loud: bool = False, **marks: Point) -> None: ...


def test_every_kind_of_parameter_has_its_annotation():
    call = ((RED, POINT, RED, RED), {"loud": True, "x": POINT, "color": POINT})
    assert sent(paint, *call[0], **call[1]) == call
    assert sent(paint, RED, where=POINT) == ((RED,), {"where": POINT})


def test_a_call_that_does_not_bind_is_stored_all_the_same():
    def work(a: int): ...

    assert sent(work, 1, 2, (3,), b={4}) == ((1, 2, (3,)), {"b": {4}})
    assert sent(work) == ((), {})
    with pytest.raises(PayloadError, match="positional argument 2 of 'work': a value of type Color"):
        sent(work, 1, RED)
    with pytest.raises(PayloadError, match="argument 'b' of 'work': a value of type Color"):
        sent(work, 1, b=RED)


def test_an_annotation_that_cannot_be_resolved_spoils_no_other():
    def work(lost: Missing, color: Color, odd: 1 / 0) -> Missing: ...  # pyright: ignore[reportGeneralTypeIssues, reportInvalidTypeForm, reportUnknownParameterType]

    assert sent(work, (1,), RED, {2}) == (((1,), RED, {2}), {})
    with pytest.raises(PayloadError, match="argument 'lost' of 'work'"):
        sent(work, RED)


# From Python 3.13 msgspec's question whether an attribute is there is heard when the answer is an error.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_annotation_that_nobody_understands_tells_nothing():
    class Hostile(type):
        def __getattr__(cls, name: str) -> Any:
            raise RuntimeError("leave me alone")

    class Odd(metaclass=Hostile): ...

    def work(it): ...

    for hint in (Odd, 7, "unresolvable because of spaces", [Color], {}):
        work.__annotations__ = {"it": hint}
        assert sent(functools.partial(work), (1,)) == (((1,),), {})
        with pytest.raises(PayloadError):
            sent(functools.partial(work), RED)


def test_an_injected_parameter_has_no_annotation_for_callers():
    def work(color: Color = Depends(current_color), other: Annotated[Color, Depends(current_color)] = RED): ...

    assert sent(work, color="blue", other=(1,)) == ((), {"color": "blue", "other": (1,)})
    for name in ("color", "other"):
        with pytest.raises(PayloadError, match=f"argument '{name}' of 'work'"):
            sent(work, **{name: RED})


class Painter:
    def paint(self, color: Color) -> Color: ...

    @staticmethod
    def mix(color: Color) -> Color: ...

    @classmethod
    def name(cls, color: Color) -> Color: ...

    def __call__(self, color: Color) -> Color: ...


class Canvas:
    def __init__(self, color: Color) -> None:
        self.color = color


def repaint(times: int, color: Color) -> Color: ...


@functools.wraps(repaint)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return repaint(*args, **kwargs)


@pytest.mark.parametrize(
    "function",
    [Painter().paint, Painter.mix, Painter.name, Painter(), Canvas, functools.partial(repaint, 1), wrapped],
    ids=["method", "staticmethod", "classmethod", "callable object", "class", "partial", "wrapped"],
)
def test_all_kinds_of_callables_are_understood(function: Any):
    assert sent(function, color=RED) == ((), {"color": RED})


def test_builtins_without_a_signature_take_what_tags_can():
    assert sent(dict, ((1, 2),)) == ((((1, 2),),), {})
    assert sent(print, b"x", sep=(1,)) == ((b"x",), {"sep": (1,)})


def test_a_function_is_read_once_and_not_kept_alive():
    def work(color: Color): ...

    assert CallTypes.of(work) is CallTypes.of(work)
    ghost = weakref.ref(work)
    del work
    gc.collect()
    assert ghost() is None


def test_an_unhashable_callable_is_read_each_time():
    class Unhashable(Painter):
        __hash__ = None  # pyright: ignore[reportAssignmentType]

    assert sent(Unhashable(), RED) == ((RED,), {})


def test_an_unknown_task_goes_by_tags():
    codec, types = codec_named("json"), CallTypes.unknown("send_mail")
    call = ((1, (2,)), {"a": {3}})
    assert codec.load_call(types, codec.dump_call(types, *call)) == call
    with pytest.raises(PayloadError, match="positional argument 1 of 'send_mail': a value of type Color"):
        codec.dump_call(types, (RED,), {})
