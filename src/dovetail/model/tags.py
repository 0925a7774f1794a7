"""Tags: the labels of a run, which travel in one of its headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

TAGS = "dovetail-tags"
"""The header in which a run carries its tags, as a JSON array of texts."""


def tag_headers(tags: tuple[str, ...]) -> dict[str, str]:
    return {TAGS: msgspec.json.encode(tags).decode()} if tags else {}


def tags_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The tags that a run carries; none if they are not as they were written."""
    try:
        return msgspec.json.decode(headers[TAGS], type=tuple[str, ...]) if TAGS in headers else ()
    except msgspec.MsgspecError:
        return ()


def marks_of(tags: Iterable[str]) -> list[str]:
    """Texts to look for in the header of a run that carries these, once a comma stands in the place of its first
    bracket. Within a tag every quotation mark is escaped, so that none is found inside of another."""
    return ["," + msgspec.json.encode(tag).decode() for tag in tags]
