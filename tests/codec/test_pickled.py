"""The pickle codec: chosen by both sides, or not at all."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from dovetail.codec import CallTypes, Limits, codec_named
from dovetail.errors import PayloadError, PayloadTooLarge, UndecodablePayload, UsageError
from tests.codec.universe import Point, there_and_back

pytest.importorskip("cloudpickle")

TYPES = CallTypes.unknown("work")
pickled, plain = codec_named("pickle"), codec_named("json")


class Gone(Exception):
    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} {code}")


class Kept(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Bomb:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return _explode, (self.error,)


def _explode(error: BaseException) -> None:
    raise error


def test_any_object_travels():
    def local(x: int) -> int:
        return x + 1

    received = there_and_back([local, Point(1), {"a": (1,)}], codec=pickled)
    assert received[0](1) == 2
    assert received[1:] == [Point(1), {"a": (1,)}]
    assert pickled.load_result(TYPES, pickled.dump_result(TYPES, Point(1))) == Point(1)


def test_json_payloads_are_read_by_the_pickle_codec():
    call = (((1,), {2}), {"a": b"x"})
    assert pickled.load_call(TYPES, plain.dump_call(TYPES, *call)) == call
    assert pickled.load_result(TYPES, plain.dump_result(TYPES, (1,))) == (1,)


def test_pickle_payloads_are_refused_by_the_json_codec():
    for load, data in (
        (plain.load_call, pickled.dump_call(TYPES, (1,), {})),
        (plain.load_result, pickled.dump_result(TYPES, 1)),
    ):
        with pytest.raises(UndecodablePayload, match='codec="pickle" on docket and worker'):
            load(TYPES, data)


def test_what_does_not_pickle_is_refused_by_name():
    lock = threading.Lock()
    with pytest.raises(PayloadError, match="argument 'b' of 'work': a value of type lock cannot be pickled"):
        pickled.dump_call(TYPES, (1,), {"b": lock})
    with pytest.raises(PayloadError, match="positional argument 2 of 'work'"):
        pickled.dump_call(TYPES, (1, lock), {})
    with pytest.raises(PayloadError, match="the result of 'work'"):
        pickled.dump_result(TYPES, lock)


def test_size_is_bounded():
    small = codec_named("pickle", limits=Limits(size=100))
    with pytest.raises(PayloadTooLarge, match="the arguments of 'work'"):
        small.dump_call(TYPES, ("x" * 100,), {})
    with pytest.raises(PayloadTooLarge, match="the result of 'work'"):
        small.dump_result(TYPES, "x" * 100)
    with pytest.raises(UndecodablePayload, match="of the 100 allowed"):
        small.load_call(TYPES, pickled.dump_call(TYPES, ("x" * 100,), {}))
    assert small.dump_exception(ValueError("x" * 100)) is None


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), RecursionError()], ids=repr)
def test_unpickling_that_raises_is_undecodable(error: BaseException):
    data = pickled.dump_call(TYPES, (Bomb(error),), {})
    with pytest.raises(UndecodablePayload, match=f"does not unpickle here .{type(error).__name__}"):
        pickled.load_call(TYPES, data)


@pytest.mark.parametrize("body", [b"", b"N.", b"junk", b"\x80\x05)}\x86."[:-1], b"(I1\nI2\nt."])
def test_a_body_that_is_no_call_is_undecodable(body: bytes):
    with pytest.raises(UndecodablePayload):
        pickled.load_call(TYPES, b"1p:" + body)


def test_an_exception_comes_back_as_it_was():
    error = Kept("disk")
    error.add_note("look at the cable")
    data = pickled.dump_exception(error)
    assert data is not None
    received = pickled.load_exception(data)
    assert type(received) is Kept
    assert (received.args, received.name, received.__notes__) == (("disk",), "disk", ["look at the cable"])


@pytest.mark.parametrize("error", [Gone("disk", 7), ValueError(threading.Lock()), ValueError(Bomb(SystemExit()))])
def test_an_exception_that_would_not_come_back_is_not_kept(error: BaseException):
    assert pickled.dump_exception(error) is None


def test_an_exception_group_comes_back():
    data = pickled.dump_exception(ExceptionGroup("two", [ValueError(1), KeyError(2)]))
    assert data is not None
    received = pickled.load_exception(data)
    assert isinstance(received, ExceptionGroup)
    assert [type(each) for each in received.exceptions] == [ValueError, KeyError]


def test_what_is_no_exception_is_not_raised_as_one():
    for data in (pickled.dump_result(TYPES, 1), plain.dump_result(TYPES, 1), b"junk"):
        with pytest.raises(UndecodablePayload, match="an exception cannot be read"):
            pickled.load_exception(data)


def test_json_keeps_no_exceptions():
    data = pickled.dump_exception(ValueError("x"))
    assert data is not None
    assert plain.dump_exception(ValueError("x")) is None
    with pytest.raises(UndecodablePayload, match='codec="pickle"'):
        plain.load_exception(data)


def test_without_cloudpickle_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(UsageError, match=r'pip install "dovetail-tasks\[pickle\]"'):
        codec_named("pickle")
