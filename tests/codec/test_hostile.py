"""Reading never does anything worse than raise `UndecodablePayload`."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.codec import CallTypes, codec_named
from dovetail.codec.tags import SCALAR_READERS
from dovetail.errors import UndecodablePayload
from tests.codec.universe import Color, Point, Shade, Visit, portrait, values

codec = codec_named("json")
UNKNOWN = CallTypes.unknown("work")


def work(a: Point, b: Visit, c: Color | None, d: Shade, *e: list[Point], **k: dict[str, Visit]) -> Visit: ...


KNOWN = CallTypes.of(work)


def attempt(data: bytes) -> None:
    for types in (UNKNOWN, KNOWN):
        for load in (codec.load_call, codec.load_result):
            with contextlib.suppress(UndecodablePayload):
                load(types, data)


def call(body: str | bytes) -> Any:
    return codec.load_call(UNKNOWN, b"1j:" + (body if isinstance(body, bytes) else body.encode()))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes):
    attempt(data)
    attempt(b"1j:" + data)
    attempt(b'1j:{"a":[' + data + b"]}")


tags = st.sampled_from([*SCALAR_READERS, "$tuple", "$set", "$frozenset", "$dict", "$unknown", "$"])
hints = st.sampled_from(
    ["2026-01-01T00:00:00", "Europe/Berlin", "../../etc/passwd", "Europe", "", "0x1", "nan", "AAAA"]
)
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | hints,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(tags | st.text(max_size=5), inner, max_size=2)
        | st.builds(lambda tag, item: {tag: item}, tags, inner)
    ),
    max_leaves=20,
)
places = st.lists(st.integers(-2, 5) | st.text(max_size=3), max_size=3)


@given(st.lists(trees, max_size=5), st.dictionaries(st.text(max_size=3), trees, max_size=3), places)
def test_any_json(args: list[Any], kwargs: dict[str, Any], marked: list[int | str]):
    attempt(b"1j:" + json.dumps({"a": args, "k": kwargs, "t": marked}).encode())
    attempt(b"1j:" + json.dumps({"v": args, "t": bool(marked)}, separators=(",", ":")).encode())


@given(trees)
def test_whatever_can_be_read_can_be_written_and_read_again(tree: Any):
    try:
        args, _ = call(json.dumps({"a": [tree]}))
    except UndecodablePayload:
        return
    again = codec.load_call(UNKNOWN, codec.dump_call(UNKNOWN, args, {}))
    assert portrait(again) == portrait((args, {}))


@given(values, st.data())
def test_flipped_bytes(value: Any, data: st.DataObject):
    payload = bytearray(codec.dump_call(UNKNOWN, (value,), {}))
    index = data.draw(st.integers(0, len(payload) - 1))
    payload[index] ^= data.draw(st.integers(1, 255))
    attempt(bytes(payload))


def test_every_byte_flip_of_one_payload():
    payload = codec.dump_call(KNOWN, (Point(1.0), (1, {2}), Color.RED), {"x": {"$": 1}})
    for index in range(len(payload)):
        for bit in range(8):
            attempt(payload[:index] + bytes([payload[index] ^ (1 << bit)]) + payload[index + 1 :])


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"$tuple":[', '{"$dict":[[1,'])
@pytest.mark.parametrize("count", [70, 500, 5_000, 100_000 // 8])
def test_deep_nesting_is_refused_without_deep_recursion(opening: str, count: int):
    closing = {"[": "]", '{"a":': "}", '{"$tuple":[': "]}", '{"$dict":[[1,': "]]}"}[opening]
    attempt(b"1j:" + b'{"a":[' + opening.encode() * count)
    with pytest.raises(UndecodablePayload):
        call('{"a":[' + opening * count + "1" + closing * count + "]}")


@pytest.mark.parametrize(
    "body",
    [
        '{"a":[1],"a":[2]}',
        '{"a":[{"x":1,"x":2}]}',
        '{"a":[{"x":1,"\\u0078":2}]}',
        '{"k":{"x":1,"x":2}}',
        '{"a":[{"$set":[1,1]}]}',
        '{"a":[{"$set":[1,true]}]}',
        '{"a":[{"$dict":[[1,2],[1,3]]}]}',
    ],
)
def test_what_is_there_twice_is_refused(body: str):
    with pytest.raises(UndecodablePayload):
        call(body)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "null",
        '{"a":{}}',
        '{"a":[NaN]}',
        '{"a":[Infinity]}',
        '{"a":[-Infinity]}',
        '{"a":[1e999]}',
        '{"a":[ 1e999]}',
        '{"a":[ 123456789012345678901234567890]}',
        '{"a":[' + "9" * 5000 + "]}",
        '{"a":[1]}{}',
        '{"a":[1],"z":1}',
        '{"a":["\\ud800"]}',
        b'{"a":["\xed\xa0\x80"]}',
        b"\xef\xbb\xbf{}",
        '{"a":[{"$unknown":1}]}',
        '{"a":[{"$":1}]}',
        '{"a":[{"$uuid":"x","b":1}]}',
        '{"a":[{"b":1,"$uuid":"x"}]}',
        '{"a":[{"\\u0024uuid":"x"}]}',
        '{"a":[{"$uuid":1}]}',
        '{"a":[{"$tuple":{}}]}',
        '{"a":[{"$dict":{}}]}',
        '{"a":[{"$dict":[[1]]}]}',
        '{"a":[{"$dict":[[[],1]]}]}',
        '{"a":[{"$set":[[]]}]}',
        '{"a":[{"$int":"x"}]}',
        '{"a":[{"$float":"1.5"}]}',
        '{"a":[{"$float":NaN}]}',
        '{"a":[{"$bytes":"*"}]}',
        '{"a":[{"$datetime":["2026-01-01T00:00:00","No/Where",0]}]}',
        '{"a":[{"$datetime":["2026-01-01T00:00:00","../../etc/passwd",0]}]}',
        '{"a":[{"$datetime":["2026-01-01T00:00:00","Europe",0]}]}',
        '{"a":[{"$datetime":["2026-01-01T00:00:00",null,7]}]}',
        '{"a":[{"$timedelta":[1e9,0,0]}]}',
        '{"a":[{"$timedelta":[9999999999,0,0]}]}',
        '{"a":[1],"t":[1]}',
        '{"a":[1],"t":[-1]}',
        '{"a":[1],"t":[true]}',
        '{"a":[1],"t":["x"]}',
    ],
    ids=lambda body: str(body)[:40],
)
def test_what_we_never_write_is_refused(body: str | bytes):
    with pytest.raises(UndecodablePayload):
        call(body)


def test_json_written_by_others_is_read_if_it_is_clean():
    assert call(' {"k": {"b": {"$tuple": [1, 2.50]}},\n "a": ["\\u00e9"]} ') == (("é",), {"b": (1, 2.5)})


def test_nothing_in_a_payload_names_a_class():
    data = codec.dump_call(KNOWN, (Point(1.0),), {})
    assert b"Point" not in data
    assert b"universe" not in data
