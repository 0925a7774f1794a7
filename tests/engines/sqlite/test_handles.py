"""Nobody but SQLite opens the file: closing any other handle would drop the locks that this process has on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.engines.sqlite import SqliteEngine
from dovetail.model import EventKind, Topic
from dovetail.testing.conformance.vocabulary import a_run, all_runs, keys, place
from tests.engines.sqlite.words import Opened, by_hand, outcome, url_of

# SQLite removes the log when the last process closes the file. A process that has lost its locks does not count.
VISITOR = """
db = sqlite3.connect(sys.argv[1], isolation_level=None)
say(*(key for key, in db.execute("SELECT key FROM dovetail_run ORDER BY seq")))
db.close()
"""


def seen_from_outside(path: Path) -> list[str]:
    """The keys that another process sees, which opens the file and closes it again."""
    (line,) = outcome(VISITOR, path, bare=True)
    return line.split()


async def assert_others_see_what_we_write(engine: SqliteEngine, path: Path) -> None:
    await place(engine, a_run("before"))
    assert seen_from_outside(path) == ["before"]
    await place(engine, a_run("after"))
    assert seen_from_outside(path) == ["before", "after"]


async def test_a_store_opened_twice_stays_shared(opened: Opened, path: Path) -> None:
    engine = await opened()
    await opened(lane="another")
    await assert_others_see_what_we_write(engine, path)


async def test_a_store_opened_under_two_spellings_stays_shared(opened: Opened, path: Path, folder: Path) -> None:
    engine = await opened()
    (folder / "inside").mkdir()
    await opened(folder / "inside" / ".." / path.name)
    await assert_others_see_what_we_write(engine, path)


async def test_a_store_opened_through_a_link_stays_shared(opened: Opened, path: Path, folder: Path) -> None:
    engine = await opened()
    (folder / "link").symlink_to(folder)
    await opened(folder / "link" / path.name)
    await assert_others_see_what_we_write(engine, path)


async def test_a_store_that_the_application_had_open_stays_shared(opened: Opened, path: Path) -> None:
    with by_hand(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE own (x)")
        await assert_others_see_what_we_write(await opened(), path)


async def test_two_spellings_are_one_docket(opened: Opened, path: Path, folder: Path) -> None:
    (folder / "link").symlink_to(folder)
    engine, other = await opened(), await opened(folder / "link" / path.name)
    await place(engine, a_run("a"))
    assert keys(await all_runs(other)) == ["a"]


@pytest.mark.parametrize("watching", [False, True], ids=["silent", "watching"])
async def test_closing_leaves_no_handle_behind(path: Path, opened: Opened, watching: bool) -> None:
    engine = SqliteEngine(url_of(path), "tests", clock=(await opened("memory://clock"))._clock)
    async with engine:
        await place(engine, a_run("a"))
        if watching:
            async with engine.watch(Topic(EventKind.WORK)):
                assert handles_on(path)
    assert handles_on(path) == []


def handles_on(path: Path) -> list[str]:
    """The files under this path that the process has open."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    found: list[str] = []
    for handle in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(handle.readlink()))
        except OSError:
            continue
    return [name for name in found if name.startswith(str(path))]
