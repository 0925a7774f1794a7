"""Text as PostgreSQL keeps it: any but NUL, which is written as two characters of its own.

The order of texts is kept: NUL becomes \\x01\\x01 and \\x01 becomes \\x01\\x02, and nothing else begins with \\x01.
"""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.encode


def put(text: str) -> str:
    """A text as it is stored."""
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
    return text


def put_any(text: str | None) -> str | None:
    return None if text is None else put(text)


def get(text: str) -> str:
    """A stored text as it was given."""
    if "\x01" in text:
        return text.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")
    return text


def get_any(text: str | None) -> str | None:
    return None if text is None else get(text)


def put_json(value: Any) -> str:
    """A value as JSON, with every text in it as it is stored."""
    encoded = _encode(value)
    if b"\\u0000" in encoded or b"\\u0001" in encoded:
        encoded = _encode(_put_all(value))
    return encoded.decode()


def _put_all(value: Any) -> Any:
    if isinstance(value, str):
        return put(value)
    if isinstance(value, dict):
        return {key: _put_all(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_put_all(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
