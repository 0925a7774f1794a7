"""Finds the engine for a URL by its scheme. Engines are entry points: adding one changes nothing here."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import unquote

from dovetail.clock import Clock
from dovetail.engine.interface import Engine, SignsIn
from dovetail.errors import InvalidType, InvalidURL, UsageError

GROUP = "dovetail.engines"
_OPTION = re.compile(r"([?&])([^=&#@]*)=([^&]*)")
_WORD = re.compile(r"(\s|^)(\w+)\s*=\s*('(?:[^'\\]|\\.)*'?|\S+)")
"""An option in a DSN that is no URL: `host=db password=sesame`."""
_SECRET = re.compile(r"passw|passphrase|pwd|secret|token", re.IGNORECASE)
"""Found in the name of an option whose value is never shown."""


def engine_for(
    url: str, docket: str, *, clock: Clock, durability: str, credential_provider: Any = None, **options: Any
) -> Engine:
    """The engine that keeps a docket at this URL, not open yet."""
    scheme = _scheme(url)
    make: Any = _factory(scheme, url)
    engine: Engine = make(url, docket, clock=clock, durability=durability, **options)
    # What is in memory asks nobody who they are: a program's tests may put a docket there that signs in elsewhere.
    if credential_provider is not None and scheme != "memory":
        if not isinstance(engine, SignsIn):
            raise UsageError(
                f"credential_provider needs a docket in Redis or Valkey, and this one is kept at {redacted(url)}; leave"
                " it out, and give the credentials in the URL"
            )
        engine.sign_in_with(credential_provider)
    return engine


def redacted(url: str) -> str:
    """The URL as it may be shown: without its passwords, wherever they stand, and even if they are not written as they
    should be."""
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", _WORD.sub(_masked, url))
    if any(_is_secret(option) and "@" in option[3] for option in _OPTION.finditer(rest)):
        return f"{scheme}{separator}***"  # where the password ends, and the host begins, is anybody's guess
    rest = _OPTION.sub(_masked, rest)
    credentials, at, place = rest.rpartition("@")  # the last of all: a password may hold whatever ends a host
    user, colon, _ = credentials.partition(":")
    if not at or not colon or rest.startswith("/"):
        return scheme + separator + rest
    return f"{scheme}{separator}{user}:***@{place}"


def _masked(option: re.Match[str]) -> str:
    return f"{option[1]}{option[2]}=***" if _is_secret(option) else option[0]


def _is_secret(option: re.Match[str]) -> bool:
    return _SECRET.search(unquote(option[2])) is not None


def _scheme(url: Any) -> str:
    if not isinstance(url, str):
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
