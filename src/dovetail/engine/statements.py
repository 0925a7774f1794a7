"""Loads the named statements of a package's .sql files: a `-- name: x` line opens each."""

from __future__ import annotations

import re
from importlib.resources import files

_OPENING = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load(package: str, folder: str = "sql") -> dict[str, str]:
    """Every statement by its name, whichever file it stands in."""
    found: dict[str, str] = {}
    for file in sorted(files(package).joinpath(folder).iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".sql"):
            continue
        parts = _OPENING.split(file.read_text(encoding="utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"two statements of {package} are called {name!r}")
            found[name] = body.strip()
    return found
