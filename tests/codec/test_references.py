"""References: an argument that stands for the result of another run."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.codec import CallTypes, Codec, codec_named
from dovetail.codec.references import MARK, Reference, references_in, resolved
from dovetail.errors import PayloadError, UndecodablePayload

REFERENCE = Reference("an id", "a key")
BY_KEY = Reference(None, "a key")


def task(value: Any, *, other: int = 0) -> Any: ...


TYPES = CallTypes.of(task)


@pytest.fixture(params=["json", "pickle"])
def codec(request: pytest.FixtureRequest) -> Codec:
    return codec_named(request.param)


@pytest.mark.parametrize("value", [REFERENCE, BY_KEY, [REFERENCE, 1], (REFERENCE, BY_KEY), {"a": [{"b": BY_KEY}]}])
def test_a_reference_comes_back(codec: Codec, value: Any) -> None:
    data = codec.dump_call(TYPES, (value,), {"other": REFERENCE})
    assert MARK in data
    assert codec.load_call(TYPES, data) == ((value,), {"other": REFERENCE})


def test_other_payloads_do_not_hold_the_mark(codec: Codec) -> None:
    assert MARK not in codec.dump_call(TYPES, ([1, "run", {"a": None}],), {})


def test_text_that_looks_like_a_reference_is_text(codec: Codec) -> None:
    looks = [{"$run": ["an id", "a key"]}, "$run"]
    (value,), _ = codec.load_call(TYPES, codec.dump_call(TYPES, (looks,), {}))
    assert value == looks
    assert list(references_in(value)) == []


def test_a_result_is_no_reference(codec: Codec) -> None:
    with pytest.raises(PayloadError, match="the result of 'task'"):
        codec.dump_result(TYPES, [REFERENCE])


@pytest.mark.parametrize("inner", [b"5", b'"key"', b"[]", b'["id"]', b'[5,"key"]', b'["id",null]', b'["a","b","c"]'])
def test_a_malformed_reference_is_refused(inner: bytes) -> None:
    with pytest.raises(UndecodablePayload, match=r"malformed \$run"):
        codec_named("json").load_call(TYPES, b'1j:{"a":[{"$run":' + inner + b"}]}")


def test_results_take_the_place_of_references() -> None:
    results = {REFERENCE: 1, BY_KEY: [2]}
    value = [REFERENCE, (BY_KEY, "x"), {"a": REFERENCE}, {REFERENCE}, frozenset({REFERENCE}), 5]
    assert resolved(value, results.__getitem__) == [1, ([2], "x"), {"a": 1}, {1}, frozenset({1}), 5]


def test_references_are_found_in_any_depth() -> None:
    assert list(references_in([{"a": (BY_KEY, {REFERENCE})}], "text", REFERENCE)) == [BY_KEY, REFERENCE, REFERENCE]
