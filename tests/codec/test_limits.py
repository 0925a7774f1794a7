"""Payloads are bounded when they are written and when they are read."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from dovetail.codec import CallTypes, Limits, codec_named
from dovetail.errors import InvalidArgument, PayloadError, PayloadTooLarge, UndecodablePayload
from tests.codec.universe import Box, there_and_back, types_of

TYPES = CallTypes.unknown("work")
SMALL = codec_named("json", limits=Limits(size=100, depth=5, key_length=10))


def nested(depth: int, wrap: Any = lambda inner: [inner]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPPINGS = [
    lambda inner: [inner],
    lambda inner: (inner,),
    lambda inner: {"a": inner},
    lambda inner: {1: inner},
    lambda inner: {"$a": inner},
    lambda inner: frozenset({inner}),
]


def test_the_default_size_is_256_kibibytes():
    fits = "x" * (256 * 1024 - len('{"a":[""]}'))
    assert there_and_back(fits) == fits
    with pytest.raises(PayloadTooLarge, match=r"the arguments of 'work'.*262145 bytes of the 262144 allowed"):
        there_and_back(fits + "x")


@pytest.mark.parametrize("value", ["x" * 101, ("x" * 101,), [1] * 101, [(1,)] * 101, {"a": "x" * 101}])
def test_what_is_too_large_is_refused_by_the_writer(value: Any):
    with pytest.raises(PayloadTooLarge, match=r"work.*pass where it is, or raise the payload limit"):
        SMALL.dump_call(TYPES, (value,), {})
    with pytest.raises(PayloadTooLarge, match="the result of 'work'"):
        SMALL.dump_result(TYPES, value)


def test_what_is_too_large_is_refused_by_the_reader():
    data = codec_named("json").dump_call(TYPES, ("x" * 100,), {})
    with pytest.raises(UndecodablePayload, match="of the 100 allowed"):
        SMALL.load_call(TYPES, data)


def test_a_list_that_holds_another_twice_and_so_on_is_found_out_at_once():
    for tail in (1, (1,)):
        laughs = nested(60, lambda inner: [inner, inner])
        laughs.append(tail)
        with pytest.raises(PayloadTooLarge):
            codec_named("json", limits=Limits(size=4096)).dump_call(TYPES, (laughs,), {})


@pytest.mark.parametrize("wrap", WRAPPINGS, ids=["list", "tuple", "dict", "int keys", "escaped", "frozenset"])
def test_depth_is_bounded_for_every_container(wrap: Any):
    fits = nested(64, wrap)
    assert there_and_back(fits) == fits
    with pytest.raises(PayloadError, match=r"argument 'it' of 'work'.*nested too deeply"):
        there_and_back(nested(65, wrap))


@pytest.mark.parametrize("wrap", WRAPPINGS[:5], ids=["list", "tuple", "dict", "int keys", "escaped"])
def test_the_reader_bounds_depth_too(wrap: Any):
    deep = codec_named("json", limits=Limits(depth=128))
    data = deep.dump_call(TYPES, (nested(65, wrap),), {})
    with pytest.raises(UndecodablePayload, match="nested too deeply"):
        codec_named("json").load_call(TYPES, data)
    assert deep.load_call(TYPES, data)[0] == (nested(65, wrap),)
    result = deep.dump_result(TYPES, nested(65, wrap))
    with pytest.raises(UndecodablePayload, match="nested too deeply"):
        codec_named("json").load_result(TYPES, result)


@pytest.mark.parametrize("wrap", WRAPPINGS, ids=["list", "tuple", "dict", "int keys", "escaped", "frozenset"])
def test_the_greatest_depth_works(wrap: Any):
    deep, value = codec_named("json", limits=Limits(depth=128)), nested(128, wrap)
    assert deep.load_call(TYPES, deep.dump_call(TYPES, (value,), {})) == ((value,), {})


def test_reading_near_the_end_of_the_stack_is_undecodable():
    data = codec_named("json").dump_call(TYPES, (nested(60, WRAPPINGS[1]),), {})

    def sink(levels: int) -> Any:
        return sink(levels - 1) if levels else codec_named("json").load_call(TYPES, data)

    with pytest.raises(UndecodablePayload, match=r"recursion|nested too deeply"):
        sink(sys.getrecursionlimit() - len(inspect.stack()) - 60)


def test_what_holds_itself_is_refused():
    circle: list[Any] = []
    circle.append(circle)
    for value in (circle, [circle, (1,)], {"a": circle}):
        with pytest.raises(PayloadError, match=r"argument 'it' of 'work'.*holds itself"):
            there_and_back(value)


def test_classes_are_bounded_in_depth_too():
    box = Box("innermost")
    for _ in range(40):
        box = Box("outer", [box])
    with pytest.raises(PayloadError, match=r"argument 'it' of 'work'.*nested too deeply"):
        there_and_back(box, Box)


def test_a_key_that_is_too_long_travels_as_a_pair():
    value = {"k" * 11: 1, "short": [{"m" * 11: 2}]}
    assert SMALL.load_call(TYPES, SMALL.dump_call(TYPES, (value,), {})) == ((value,), {})


def test_the_reader_bounds_keys():
    for body in ('{"a":[{"%s":1}]}', '{"k":{"%s":1}}', '{"a":[{"$tuple":[{"%s":1}]}]}'):
        with pytest.raises(UndecodablePayload, match="key that is too long"):
            SMALL.load_call(TYPES, b"1j:" + (body % ("k" * 11)).encode())


def test_a_parameter_name_is_bounded():
    with pytest.raises(PayloadError, match="an argument of 'work' has a name of more than 10 characters"):
        SMALL.dump_call(TYPES, (), {"n" * 11: 1})


def test_a_parameter_name_that_is_not_text_is_refused():
    with pytest.raises(PayloadError, match="an argument of 'work' has a name that is not valid text"):
        SMALL.dump_call(TYPES, (), {"\udcff": 1})


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 2**24 + 1}, {"depth": 0}, {"depth": 1000}, {"key_length": 0}])
def test_a_wrong_limit_is_refused(wrong: dict[str, int]):
    with pytest.raises(InvalidArgument, match=f"payload limit {next(iter(wrong))}="):
        Limits(**wrong)


def test_the_largest_size_works():
    codec = codec_named("json", limits=Limits(size=2**24))
    value = "x" * (2**24 - 100)
    assert codec.load_call(types_of(str), codec.dump_call(types_of(str), (value,), {})) == ((value,), {})
