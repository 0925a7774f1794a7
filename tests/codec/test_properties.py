"""What goes in comes out equal and of the same type, or the dump names the parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.codec import CallTypes, Keyring, SigningKey, codec_named
from dovetail.errors import PayloadError
from tests.codec.universe import (
    Color,
    Level,
    Pair,
    Text,
    Visit,
    annotated,
    datetimes,
    points,
    portrait,
    text,
    there_and_back,
    types_of,
    values,
)

aliens = st.builds(object) | st.builds(Text, text) | st.sampled_from([Color.RED, Level.LOW, Pair(1), int])
mixed = st.recursive(
    values | aliens | points | st.builds(Visit, datetimes, points, extra=values | aliens),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=4,
)


def refusal_of(dump: Callable[[], bytes]) -> tuple[str, bytes]:
    try:
        return "", dump()
    except PayloadError as refused:
        return str(refused), b""


@given(values)
def test_an_unannotated_value_of_the_closed_list_comes_back(value: Any):
    assert portrait(there_and_back(value)) == portrait(value)


@pytest.mark.parametrize(("hint", "strategy"), annotated, ids=lambda each: str(each)[:30])
def test_an_annotated_value_comes_back(hint: Any, strategy: st.SearchStrategy[Any]):
    @given(strategy)
    def comes_back(value: Any):
        assert portrait(there_and_back(value, hint)) == portrait(value)

    comes_back()


@given(st.sampled_from([hint for hint, _ in annotated]), mixed)
def test_any_value_for_any_annotation_comes_back_or_is_refused_by_name(hint: Any, value: Any):
    codec, types = codec_named("json"), types_of(hint)
    refusal, data = refusal_of(lambda: codec.dump_call(types, (value,), {}))
    if refusal:
        assert refusal.startswith("argument 'it' of 'work': ")
    else:
        assert portrait(codec.load_call(types, data)) == portrait(((value,), {}))


@given(st.lists(values, max_size=4), st.dictionaries(st.text(max_size=9), values, max_size=4))
def test_a_whole_call_comes_back(args: list[Any], kwargs: dict[str, Any]):
    types = CallTypes.unknown("work")
    for codec in (codec_named("json"), codec_named("json", signing=Keyring(SigningKey("k", b"s" * 32)))):
        data = codec.dump_call(types, tuple(args), kwargs)
        assert portrait(codec.load_call(types, data)) == portrait((tuple(args), kwargs))


@given(values)
def test_a_result_comes_back(value: Any):
    codec, types = codec_named("json"), types_of(None)
    assert portrait(codec.load_result(types, codec.dump_result(types, value))) == portrait(value)
