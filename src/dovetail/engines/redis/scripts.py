"""The Lua scripts: put together from their parts, and known to the server by their digest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

_NEEDS = re.compile(r"^-- needs: (.*)$", re.MULTILINE)

WHEN_FULL = frozenset({"cancel", "claim", "clear", "discard", "finish", "heartbeat", "lift", "mend", "report", "sweep"})
"""Scripts that have to run when memory is full: they are how it gets empty again."""
READING = frozenset({"examine", "find", "glance", "holds", "rights", "standing", "survey"})


@dataclass(frozen=True, slots=True)
class Script:
    """One verb, as it is sent to a server."""

    name: str
    source: bytes
    digest: bytes


@cache
def script(name: str, *, flags: bool) -> Script:
    """A script by its name. Redis before 7 knows no flags."""
    body = _read(name)
    needs = _NEEDS.search(body)
    parts = [_read("prelude"), *(_read(part) for part in (needs[1].split() if needs else ())), body]
    opening = _opening(name) if flags else ""
    source = (opening + "\n".join(parts)).encode()
    return Script(name, source, sha1(source).hexdigest().encode())  # noqa: S324 - the server's own way to name scripts


def _opening(name: str) -> str:
    flag = "allow-oom" if name in WHEN_FULL else "no-writes" if name in READING else ""
    return f"#!lua flags={flag}\n" if flag else "#!lua\n"


def _read(name: str) -> str:
    return files("dovetail.engines.redis").joinpath(f"lua/{name}.lua").read_text(encoding="utf-8")
