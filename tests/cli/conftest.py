"""Fixtures: a store that a command of its own process can open, and commands on it."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.commands import Commands
from tests.stores import Stores


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as pytest's own is not: the sockets that wake other processes lie in it."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def url(request: pytest.FixtureRequest, stores: Stores, folder: Path) -> Iterator[str]:
    """A store that no other test knows; in place of memory, which is one process's own, a file."""
    kind = getattr(request, "param", "memory")
    if kind == "memory":
        yield f"sqlite:///{folder / 'store.db'}"
        return
    with stores.place(kind) as url:
        yield url


@pytest.fixture
def dovetail(url: str) -> Commands:
    return Commands(url)
