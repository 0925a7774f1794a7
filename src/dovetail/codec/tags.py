"""The closed list of tags: how a value that JSON does not know is written, `{"$uuid": "..."}`, and read.

    $datetime $time   ISO 8601 text; or [text, zone, fold], where the zone is the name of a ZoneInfo, an
                      offset in microseconds if it has any, or null
    $date $uuid       text                      $decimal   text, NaN and signed zero included
    $timedelta        [days, seconds, microseconds]
    $bytes $bytearray base64                    $str       base64, for text with lone surrogates
    $int              hexadecimal, beyond 64 bits           $float     "nan", "inf" or "-inf"
    $complex          [real, imaginary]         $path $pureposixpath $purewindowspath   text
    $tuple $set $frozenset   [values]           $dict      [[key, value], ...]
    $run              [id or null, key], the result of another run

A dict is a plain JSON object if its keys are short strings that do not begin with "$"; any other is a
`$dict`, so that nothing a caller passes can be taken for a tag.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dovetail.codec.references import TAG, read_reference
from dovetail.codec.refusal import Refused

SMALLEST_INT = -(2**63)
LARGEST_INT = 2**64 - 1
ALWAYS_PLAIN = frozenset({str, bool, type(None)})


def is_tag(key: str) -> bool:
    return key[:1] == "$"


# Writing. Each of these gives what stands beside the tag.


def _write_moment(value: datetime | time) -> Any:
    zone = value.tzinfo
    if type(zone) is ZoneInfo and zone.key:
        return [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]
    offset = value.utcoffset()
    if offset is None and zone is not None:
        raise Refused("a time whose tzinfo has no UTC offset cannot be stored as JSON")
    if offset is not None and offset.microseconds:
        # `fromisoformat` takes an offset of less than a second for UTC.
        return [value.replace(tzinfo=None).isoformat(), offset // timedelta(microseconds=1), value.fold]
    return [value.isoformat(), None, value.fold] if value.fold else value.isoformat()


def _write_timedelta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _write_bytes(value: bytes | bytearray) -> str:
    return b64encode(value).decode("ascii")


def write_text(value: str) -> Any:
    """The text itself, or a tag if it holds lone surrogates, as undecodable file names do."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"$str": _write_bytes(value.encode("utf-8", "surrogatepass"))}
    return value


def write_int(value: int) -> Any:
    return value if SMALLEST_INT <= value <= LARGEST_INT else {"$int": hex(value)}


def write_float(value: float) -> Any:
    return value if value - value == 0.0 else {"$float": str(value)}


def _write_complex(value: complex) -> list[Any]:
    return [write_float(value.real), write_float(value.imag)]


def _write_path(value: object) -> Any:
    return write_text(str(value))


SCALAR_WRITERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    datetime: ("$datetime", _write_moment),
    date: ("$date", date.isoformat),
    time: ("$time", _write_moment),
    timedelta: ("$timedelta", _write_timedelta),
    UUID: ("$uuid", str),
    Decimal: ("$decimal", str),
    bytes: ("$bytes", _write_bytes),
    bytearray: ("$bytearray", _write_bytes),
    complex: ("$complex", _write_complex),
    type(Path()): ("$path", _write_path),
    PurePosixPath: ("$pureposixpath", _write_path),
    PureWindowsPath: ("$purewindowspath", _write_path),
}


# Reading. Each of these is given what stands beside the tag, which may be anything.


def _text(inner: Any) -> str:
    if type(inner) is not str:
        raise ValueError("text expected")
    return inner


def _list(inner: Any, length: int) -> list[Any]:
    if type(inner) is not list or len(cast("list[Any]", inner)) != length:
        raise ValueError("a list expected")
    return cast("list[Any]", inner)


def _ints(inner: Any, length: int) -> list[int]:
    numbers = _list(inner, length)
    if any(type(number) is not int for number in numbers):
        raise ValueError("integers expected")
    return numbers


def _beside(tag: str, inner: Any) -> Any:
    """What stands beside a tag within a tag."""
    if type(inner) is not dict or len(cast("dict[str, Any]", inner)) != 1:
        raise ValueError("a tag expected")
    return cast("dict[str, Any]", inner)[tag]


def _read_moment(inner: Any, parse: Callable[[str], Any]) -> Any:
    if type(inner) is str:
        return parse(inner)
    text, zone, fold = _list(inner, 3)
    value = parse(_text(text))
    if type(fold) is not int:
        raise ValueError("a fold expected")
    return value.replace(fold=fold) if zone is None else value.replace(tzinfo=_read_zone(zone), fold=fold)


def _read_zone(inner: Any) -> tzinfo:
    if type(inner) is int:
        return timezone(timedelta(microseconds=inner))
    try:
        return ZoneInfo(_text(inner))
    except (ZoneInfoNotFoundError, OSError) as error:
        raise Refused("it names a time zone that is not known here; is tzdata installed?") from error


def _read_datetime(inner: Any) -> datetime:
    return _read_moment(inner, datetime.fromisoformat)


def _read_time(inner: Any) -> time:
    return _read_moment(inner, time.fromisoformat)


def _read_timedelta(inner: Any) -> timedelta:
    days, seconds, microseconds = _ints(inner, 3)
    return timedelta(days, seconds, microseconds)


def _read_bytes(inner: Any) -> bytes:
    return b64decode(_text(inner), validate=True)


def _read_text(inner: Any) -> str:
    return _read_bytes(inner).decode("utf-8", "surrogatepass")


def _read_int(inner: Any) -> int:
    return int(_text(inner), 16)


def _read_float(inner: Any) -> float:
    if inner not in ("nan", "inf", "-inf"):
        raise ValueError("nan, inf or -inf expected")
    return float(inner)


def _read_complex(inner: Any) -> complex:
    real, imaginary = (_read_part(part) for part in _list(inner, 2))
    return complex(real, imaginary)


def _read_part(part: Any) -> float:
    return part if type(part) is float else _read_float(_beside("$float", part))


def _path_text(inner: Any) -> str:
    return inner if type(inner) is str else _read_text(_beside("$str", inner))


SCALAR_READERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": _read_datetime,
    "$date": lambda inner: date.fromisoformat(_text(inner)),
    "$time": _read_time,
    "$timedelta": _read_timedelta,
    "$uuid": lambda inner: UUID(_text(inner)),
    "$decimal": lambda inner: Decimal(_text(inner)),
    "$bytes": _read_bytes,
    "$bytearray": lambda inner: bytearray(_read_bytes(inner)),
    "$str": _read_text,
    "$int": _read_int,
    "$float": _read_float,
    "$complex": _read_complex,
    "$path": lambda inner: Path(_path_text(inner)),
    "$pureposixpath": lambda inner: PurePosixPath(_path_text(inner)),
    "$purewindowspath": lambda inner: PureWindowsPath(_path_text(inner)),
    TAG: read_reference,
}


def read_scalar(tag: str, inner: Any) -> Any:
    reader = SCALAR_READERS.get(tag)
    if reader is None:
        raise Refused("it holds a tag that is not on the list")
    try:
        return reader(inner)
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise Refused(f"it holds a malformed {tag}") from error
