"""The JSON bodies: `{"a": [...], "k": {...}, "t": [...]}` for a call, `{"v": ..., "t": true}` for a result.

`a` and `k` are the positional and keyword arguments, `v` is the value. What is empty is left out. `t` says
which places (an index, a name) hold what only their annotation brings back; all others go by tags.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar, cast

import msgspec

from dovetail.codec.refusal import Refused

_LONGEST_PLAIN_INT = 20


class Call(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The arguments of a call."""

    a: tuple[Any, ...] = ()
    k: dict[str, Any] = {}
    t: tuple[int | str, ...] = ()


class Result(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What a task returned."""

    v: Any
    t: bool = False


Body = TypeVar("Body", Call, Result)

encode = msgspec.json.Encoder().encode
_decoders = {kind: msgspec.json.Decoder(cast("type[Any]", kind)).decode for kind in (Call, Result)}


def decode(kind: type[Body], data: bytes) -> tuple[Body, bool]:
    """The body, and whether it is written just as we write it.

    Such a body has no repeated keys: writing it again would not give the same bytes. Any other is read once
    more, slowly and strictly.
    """
    try:
        body = _decoders[kind](data)
        if encode(body) == data:
            return body, True
        return _decode_strictly(kind, data), False
    except msgspec.ValidationError as error:
        raise Refused(f"it has not the form of a {kind.__name__.lower()}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise Refused("it is not valid JSON") from error
    except RecursionError as error:
        raise Refused("it is nested too deeply") from error


def _decode_strictly(kind: type[Body], data: bytes) -> Body:
    tree = json.loads(
        data.decode("utf-8"),
        object_pairs_hook=_unrepeated,
        parse_constant=_not_a_number,
        parse_int=_plain_int,
    )
    return msgspec.convert(tree, kind)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused("it holds an object with repeated keys")
    return found


def _not_a_number(_: str) -> NoReturn:
    raise Refused("it holds a number that JSON has not")


def _plain_int(text: str) -> int:
    if len(text) > _LONGEST_PLAIN_INT:
        raise Refused("it holds an integer beyond 64 bits without its tag")
    return int(text)
