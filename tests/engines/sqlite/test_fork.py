"""A process may fork with a store open: each side goes on with connections of its own.

The fork happens in a program of its own, never in the process that runs the tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engines.sqlite.words import assert_sound, by_hand, outcome, url_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

BEGINNING = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
engine = engine_at(sys.argv[1])
path = sys.argv[1].removeprefix("sqlite:///")

def wait_for(child):
    _, status = os.waitpid(child, 0)
    say("child", os.waitstatus_to_exitcode(status))

def handles():
    return {handle for handle in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{handle}")
            and os.readlink(f"/proc/self/fd/{handle}").startswith(path)}
"""


def keys_in(path: Path) -> list[str]:
    with by_hand(path) as db:
        return [key for (key,) in db.execute("SELECT key FROM dovetail_run ORDER BY key")]


def test_a_child_goes_on_with_the_engine_it_inherited(path: Path) -> None:
    said = outcome(
        BEGINNING
        + """
with asyncio.Runner() as runner:
    runner.run(engine.__aenter__())
    runner.run(place(engine, a_run("before")))
    child = os.fork()
    if child == 0:
        with asyncio.Runner() as own:
            own.run(place(engine, a_run("child")))
            say("child sees", *keys(own.run(all_runs(engine))))
            own.run(engine.__aexit__())
        os._exit(0)
    wait_for(child)
    runner.run(place(engine, a_run("parent")))
    say("parent sees", *keys(runner.run(all_runs(engine))))
    runner.run(engine.__aexit__())
""",
        url_of(path),
    )
    assert said == ["child sees before child", "child 0", "parent sees before child parent"]
    assert keys_in(path) == ["before", "child", "parent"]
    assert_sound(path)


def test_parent_and_child_write_at_the_same_time(path: Path) -> None:
    said = outcome(
        BEGINNING
        + """
async def write(name):
    for n in range(100):
        await place(engine, a_run(f"{name} {n}"))

with asyncio.Runner() as runner:
    runner.run(engine.__aenter__())
    runner.run(place(engine, a_run("before")))
    child = os.fork()
    if child == 0:
        with asyncio.Runner() as own:
            own.run(write("child"))
        os._exit(0)
    runner.run(write("parent"))
    wait_for(child)
    say(len(runner.run(all_runs(engine))))
    runner.run(engine.__aexit__())
""",
        url_of(path),
    )
    assert said == ["child 0", "201"]
    assert_sound(path)


def test_a_child_opens_handles_of_its_own(path: Path) -> None:
    said = outcome(
        BEGINNING
        + """
with asyncio.Runner() as runner:
    runner.run(engine.__aenter__())
    runner.run(all_runs(engine))
    before = handles()
    child = os.fork()
    if child == 0:
        with asyncio.Runner() as own:
            own.run(all_runs(engine))
            say("inherited are open:", before <= handles(), "and more:", len(handles() - before) > 0)
        os._exit(0)
    wait_for(child)
    runner.run(engine.__aexit__())
""",
        url_of(path),
    )
    assert said == ["inherited are open: False and more: True", "child 0"]


def test_a_child_that_ends_takes_nothing_from_its_parent(path: Path) -> None:
    """Not by `_exit`: all that a child inherited is torn down with it."""
    said = outcome(
        BEGINNING
        + """
def visit():
    visitor = sqlite3.connect(path)
    found = visitor.execute("SELECT COUNT(*) FROM dovetail_run").fetchone()[0]
    visitor.close()
    return found

runner = asyncio.Runner()  # not closed by the child, who only inherited it
runner.run(engine.__aenter__())
runner.run(place(engine, a_run("before")))
child = os.fork()
if child == 0:
    del engine, runner
    sys.exit(0)
wait_for(child)
runner.run(place(engine, a_run("after")))
child = os.fork()
if child == 0:
    say("another process sees", visit())
    os._exit(0)
wait_for(child)
runner.run(place(engine, a_run("last")))
say("parent sees", *keys(runner.run(all_runs(engine))))
runner.run(engine.__aexit__())
runner.close()
""",
        url_of(path),
    )
    assert said == ["child 0", "another process sees 2", "child 0", "parent sees before after last"]
    assert keys_in(path) == ["after", "before", "last"]
    assert_sound(path)


def test_a_child_may_leave_what_its_parent_entered(path: Path) -> None:
    said = outcome(
        BEGINNING
        + """
with asyncio.Runner() as runner:
    runner.run(engine.__aenter__())
    child = os.fork()
    if child == 0:
        with asyncio.Runner() as own:
            own.run(engine.__aexit__())
        os._exit(0)
    wait_for(child)
    runner.run(place(engine, a_run("a")))
    say("parent sees", *keys(runner.run(all_runs(engine))))
    runner.run(engine.__aexit__())
""",
        url_of(path),
    )
    assert said == ["child 0", "parent sees a"]


def test_a_child_watches_through_a_bell_of_its_own(path: Path) -> None:
    said = outcome(
        BEGINNING
        + """
async def hear(ready):
    async with engine.watch(Topic(EventKind.WORK)) as events:
        ready()
        async with asyncio.timeout(60):
            return (await anext(events)).kind.value

with asyncio.Runner() as runner:
    runner.run(engine.__aenter__())
    watching = engine.watch(Topic(EventKind.WORK))
    events = runner.run(watching.__aenter__())
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        with asyncio.Runner() as own:
            say("child hears", own.run(hear(lambda: os.write(writable, b"!"))))
            own.run(engine.__aexit__())
        os._exit(0)
    os.read(readable, 1)
    runner.run(place(engine, a_run("a")))
    wait_for(child)
    say("parent hears", runner.run(anext(events)).kind.value)
    runner.run(watching.__aexit__(None, None, None))
    runner.run(engine.__aexit__())
""",
        url_of(path),
    )
    assert said == ["child hears work", "child 0", "parent hears work"]


def test_a_pool_of_forked_processes_works(path: Path) -> None:
    said = outcome(
        BEGINNING
        + """
import multiprocessing

def in_a_child(name):
    async def main():
        async with engine_at(sys.argv[1]) as own:
            await place(own, a_run(name))
    asyncio.run(main())
    return name

with asyncio.Runner() as runner:
    runner.run(engine.__aenter__())
    with multiprocessing.get_context("fork").Pool(3) as pool:
        say(*pool.map(in_a_child, "abcdef"))
    say(*sorted(keys(runner.run(all_runs(engine)))))
    runner.run(engine.__aexit__())
""",
        url_of(path),
    )
    assert said == ["a b c d e f", "a b c d e f"]
    assert_sound(path)
