"""The pytest plugin, in a pytest of its own."""

import pytest

AUTO = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"
STRICT = "asyncio_mode = strict\nasyncio_default_fixture_loop_scope = function"

OPTIONS = ["-q", *(f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest", "randomly", "xdist"))]
"""Without the plugins that take their time to load."""


@pytest.fixture(autouse=True)
def folder(pytester: pytest.Pytester) -> None:
    configure(pytester, AUTO)


def configure(pytester: pytest.Pytester, settings: str) -> None:
    pytester.makeini(f"[pytest]\n{settings}\nfilterwarnings = error")


def run(pytester: pytest.Pytester, test: str, *options: str) -> pytest.RunResult:
    """Run a test; the tasks that it may use stand above it."""
    pytester.makepyfile("import pytest\nfrom datetime import timedelta\nfrom dovetail import *\n" + TASKS + test)
    return pytester.runpytest_inprocess(*OPTIONS, *options)


TASKS = """
ran = []

async def note(what):
    ran.append(what)

async def tick(perpetual: Perpetual = Perpetual(every=timedelta(hours=1), automatic=True)):
    ran.append("tick")
"""


def test_a_docket_and_a_clock(pytester: pytest.Pytester) -> None:
    test = """
async def test(dovetail_docket, dovetail_clock, dovetail_url):
    assert dovetail_docket.clock is dovetail_clock
    assert dovetail_docket.url == dovetail_url
    await dovetail_docket.add(note)("it")
    from dovetail.testing import assert_scheduled, drain
    await assert_scheduled(dovetail_docket, note, "it")
    assert await drain(dovetail_docket) == 1
    assert ran == ["it"]
"""
    run(pytester, test).assert_outcomes(passed=1)


def test_a_worker_in_the_background(pytester: pytest.Pytester) -> None:
    test = """
from dovetail.model import RunQuery

@pytest.fixture
def dovetail_docket(dovetail_docket):
    dovetail_docket.register(tick)
    return dovetail_docket

async def test(dovetail_docket, dovetail_clock, dovetail_worker):
    await dovetail_docket.add(note, when=dovetail_clock.now() + timedelta(days=1))("it")
    await dovetail_clock.advance(timedelta(hours=23))
    assert ran == 24 * ["tick"]
    await dovetail_clock.advance(timedelta(hours=1))
    assert sorted(ran) == ["it", *25 * ["tick"]]

async def test_another_docket_knows_nothing_of_it(dovetail_docket):
    assert await dovetail_docket.find_all(RunQuery()) == []
"""
    run(pytester, test).assert_outcomes(passed=2)


def test_a_worker_that_is_still_busy_is_stopped(pytester: pytest.Pytester) -> None:
    test = """
import asyncio

async def test_stuck(dovetail_docket, dovetail_worker):
    started = asyncio.Event()

    async def stuck():
        started.set()
        await asyncio.Event().wait()

    await dovetail_docket.add(stuck)()
    await started.wait()

async def test_unbegun(dovetail_docket, dovetail_worker):
    pass
"""
    run(pytester, test, "--timeout=20").assert_outcomes(passed=2)


def test_the_strict_mode_of_pytest_asyncio(pytester: pytest.Pytester) -> None:
    configure(pytester, STRICT)
    test = """
@pytest.mark.asyncio
async def test(dovetail_docket, dovetail_clock, dovetail_worker, dovetail_leak_check):
    await dovetail_docket.add(note)("it")
    await dovetail_clock.settle()
    assert ran == ["it"]
"""
    run(pytester, test).assert_outcomes(passed=1)


def test_a_fixture_that_is_overridden_is_what_the_others_build_on(pytester: pytest.Pytester) -> None:
    test = """
from datetime import UTC, datetime
from dovetail.testing import VirtualClock

@pytest.fixture
def dovetail_clock():
    return VirtualClock(datetime(2031, 5, 4, tzinfo=UTC))

@pytest.fixture
def docket(dovetail_docket):
    return dovetail_docket

async def test(docket):
    execution = await docket.add(note)("it")
    assert execution.when == datetime(2031, 5, 4, tzinfo=UTC)
"""
    run(pytester, test).assert_outcomes(passed=1)


def test_plain_names_are_left_to_the_user(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test(docket): ...")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'docket' not found*"])


def test_a_leak_in_the_docket_is_an_error(pytester: pytest.Pytester) -> None:
    test = """
async def test_leaking(dovetail_docket, dovetail_leak_check):
    await dovetail_docket.add(note, key="left")("it")

async def test_clean(dovetail_docket, dovetail_worker, dovetail_leak_check):
    await dovetail_docket.add(note)("it")

async def test_unchecked(dovetail_docket):
    await dovetail_docket.add(note)("it")
"""
    result = run(pytester, test)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*1 runs are left on the docket 'tests':*", "*note key='left' queued*"])


def test_a_leak_in_the_process_is_an_error(pytester: pytest.Pytester) -> None:
    test = """
kept = []

async def test_leaking(dovetail_docket, dovetail_leak_check):
    docket = Docket("other", "memory://other")
    kept.append(docket)
    await docket.__aenter__()

async def test_clean(dovetail_docket, dovetail_leak_check):
    await kept.pop().__aexit__(None, None, None)
"""
    result = run(pytester, test)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*left behind: *the thread dovetail-writer*"])


def test_it_can_be_turned_off(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test(dovetail_clock): ...", "-p", "no:dovetail")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'dovetail_clock' not found*"])


def test_a_run_without_its_fixtures_loads_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test():
            assert "dovetail.testing.plugin" in sys.modules
            assert "dovetail.docket" not in sys.modules
        """
    )
    pytester.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=1)


def test_without_pytest_asyncio_only_what_is_not_async_can_be_used(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")
    test = "def test(dovetail_clock, dovetail_url): assert dovetail_url.startswith('memory://')"
    run(pytester, test, "-p", "no:asyncio").assert_outcomes(passed=1)


def test_two_plugins_that_run_coroutines_are_told_apart(pytester: pytest.Pytester) -> None:
    test = """
@pytest.fixture
def anyio_backend():
    return "asyncio"

def test(anyio_backend, dovetail_docket):
    ...
"""
    result = run(pytester, test)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*anyio runs this test and pytest-asyncio the fixtures*"])
