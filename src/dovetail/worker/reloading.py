"""Reloading: which files a worker in development watches, and what has changed in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dovetail.errors import UsageError


def watched(tasks: Iterable[str]) -> list[Path]:
    """The current directory, and the packages of these collections of tasks wherever they lie."""
    found = [Path.cwd()]
    for collection in tasks:
        package = collection.partition(":")[0].partition(".")[0]
        spec = find_spec(package)
        if spec is None or package == "dovetail":
            continue
        places = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
        found += [Path(place) for place in places]
    return [path for path in dict.fromkeys(found) if not _lies_within(path, found[0])]


def _lies_within(path: Path, folder: Path) -> bool:
    return path != folder and path.is_relative_to(folder)


def changes(paths: Iterable[Path]) -> AsyncIterator[str]:
    """A line for each change of Python files below these paths."""
    try:
        import watchfiles
    except ImportError:
        raise UsageError("--reload needs watchfiles: pip install 'dovetail-tasks[reload]'") from None
    return _lines(watchfiles, paths)


async def _lines(watchfiles: Any, paths: Iterable[Path]) -> AsyncIterator[str]:
    async for changed in watchfiles.awatch(*paths, watch_filter=watchfiles.PythonFilter()):
        names = sorted({Path(path).name for _, path in changed})
        yield f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''} changed"
