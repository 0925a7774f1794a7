"""Where a docket lies: the server, the schema, and how it is reached."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dovetail.engine.registry import redacted
from dovetail.errors import InvalidURL

DEFAULT_SCHEMA = "dovetail"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,42}")  # names of roles and channels begin with it, and 63 is the end


@dataclass(frozen=True, slots=True)
class Location:
    """A schema of a database."""

    url: str  # as the driver takes it: without our own options
    shown: str  # as it may be shown
    schema: str = DEFAULT_SCHEMA
    pooled: bool = False  # behind a pooler that hands connections round: no LISTEN, nothing that a session keeps


def locate(url: str) -> Location:
    """`postgresql://user:password@host:port/database?schema=dovetail&pooled=true`; other options are the driver's."""
    try:
        parts = urlsplit(url)
        if "," not in parts.netloc:  # several hosts, of which the driver takes the first that will do
            _ = parts.port
    except ValueError as error:
        raise InvalidURL(f"url {redacted(url)!r} cannot be read: {error}") from error
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in options if name in ("schema", "pooled")}
    rest = urlencode([(name, value) for name, value in options if name not in ours], quote_via=quote)
    plain = urlunsplit(parts._replace(scheme="postgresql", query=rest))
    if not parts.netloc:
        # `urlunsplit` drops the empty host, which stands for the local server.
        plain = plain.replace("postgresql:/", "postgresql:///", 1) if "://" not in plain else plain
    schema = ours.get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidURL(
            f"url {redacted(url)!r}: schema must be a plain name, such as 'dovetail': lower-case letters, digits and"
            f" underscores, at most 43, not {schema!r}"
        )
    _refuse_what_the_driver_cannot_read(plain, url)
    pooled = ours.get("pooled", "false")
    if pooled not in ("true", "false"):
        raise InvalidURL(f"url {redacted(url)!r}: pooled must be true or false, not {pooled!r}")
    return Location(plain, redacted(url), schema, pooled == "true")


def _refuse_what_the_driver_cannot_read(plain: str, url: str) -> None:
    try:
        conninfo_to_dict(plain)
    except psycopg.Error as error:
        said = str(error).strip()
        if "query parameter" not in said:
            # The driver quotes what it stumbles over, and that may be the password.
            said = "write the user name and the password with %40 for @ and %25 for %"
        raise InvalidURL(f"url {redacted(url)!r} cannot be read: {said}") from None
