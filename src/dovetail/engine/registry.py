"""Finds the engine for a URL by its scheme. Engines are entry points: adding one changes nothing here."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from dovetail.clock import Clock
from dovetail.engine.interface import Engine
from dovetail.errors import InvalidType, InvalidURL

GROUP = "dovetail.engines"
SECRET = re.compile(r"passw|passphrase|pwd|secret|token", re.IGNORECASE)
"""Found in the name of an option whose value is never shown."""


def engine_for(url: str, docket: str, *, clock: Clock, durability: str, **options: Any) -> Engine:
    """The engine that keeps a docket at this URL, not open yet."""
    make: Any = _factory(_scheme(url), url)
    return make(url, docket, clock=clock, durability=durability, **options)


def redacted(url: str) -> str:
    """The URL as it may be shown: without its password, wherever in it that stands."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{url.partition('://')[0]}://***"
    if parts.query:
        parts = parts._replace(query="&".join(map(_masked, parts.query.split("&"))))
        url = _with_query(url, parts.query)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def _masked(option: str) -> str:
    name, separator, _ = option.partition("=")
    return f"{name}=***" if separator and SECRET.search(unquote(name)) else option


def _with_query(url: str, query: str) -> str:
    # Not by urlunsplit, which drops an empty host.
    before, _, rest = url.partition("?")
    _, hash_sign, fragment = rest.partition("#")
    return f"{before}?{query}{hash_sign}{fragment}"


def _scheme(url: str) -> str:
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidType(f"url must be text such as 'sqlite:///dovetail.db', not {type(url).__name__}")
    scheme, separator, _ = url.partition("://")
    if not separator or not scheme:
        raise InvalidURL(
            f"url {redacted(url)!r} names no engine; begin it with a scheme, such as 'sqlite:///dovetail.db'"
        )
    return scheme.lower()


def _factory(scheme: str, url: str) -> Any:
    known = entry_points(group=GROUP)
    for entry in known:
        if entry.name == scheme:
            return entry.load()
    schemes = ", ".join(sorted({entry.name for entry in known}))
    raise InvalidURL(f"url {redacted(url)!r}: no engine is installed for {scheme!r}; known: {schemes}")
