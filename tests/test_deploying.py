"""The deploy gate: what waits is bound to the code that is about to be deployed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import pytest

from dovetail import CheckReport, Depends, Docket, Problem
from dovetail.clock import SYSTEM_CLOCK, from_microseconds
from dovetail.codec import Keyring, SigningKey
from dovetail.errors import InvalidArgument


@dataclass
class Old:
    to: str


@dataclass
class New:
    to: str
    subject: str


async def send(to: str) -> None: ...


def changed(function: Any, name: str = "send") -> Any:
    """Another function under the name of the old one."""
    function.__name__ = name
    return function


@asynccontextmanager
async def deployed(url: str, *tasks: Any, **settings: Any) -> AsyncIterator[Docket]:
    """The docket as the next version of the program sees it."""
    async with Docket("tests", url, **settings) as docket:
        for task in tasks:
            docket.register(task)
        yield docket


def problems(report: CheckReport) -> list[tuple[str, Problem, int]]:
    return [(each.task, each.problem, each.count) for each in report.findings]


async def test_an_empty_docket_is_fit(docket: Docket) -> None:
    report = await docket.check()
    assert (report.checked, report.is_fit, report.is_whole, report.findings) == (0, True, True, ())


async def test_what_fits_is_not_reported(docket: Docket, url: str) -> None:
    later = from_microseconds(SYSTEM_CLOCK.microseconds()) + timedelta(hours=1)
    parent = await docket.add(send)("ann")
    await docket.add(send, when=later)(to="bob")
    await docket.add(send, after=[parent])("eve")
    async with deployed(url, send) as next_version:
        report = await next_version.check()
    assert (report.checked, report.is_fit) == (3, True)


async def test_a_task_that_is_gone(docket: Docket, url: str) -> None:
    for n in range(7):
        await docket.add(send, key=f"k{n}")("ann")
    async with deployed(url) as next_version:
        report = await next_version.check()
    (finding,) = report.findings
    assert (finding.task, finding.problem, finding.count) == ("send", Problem.UNKNOWN_TASK, 7)
    assert finding.keys == ("k0", "k1", "k2", "k3", "k4")
    assert (report.is_fit, report.count) == (False, 7)


async def test_arguments_that_no_longer_fit(docket: Docket, url: str) -> None:
    async def more(to: str, subject: str) -> None: ...
    async def fewer() -> None: ...
    async def renamed(recipient: str) -> None: ...
    async def other(to: int) -> None: ...
    async def optional(to: str, subject: str = "") -> None: ...

    await docket.add(send)(to="ann")
    expected = {
        more: (Problem.MISSING_ARGUMENT, "'subject' is missing"),
        fewer: (Problem.SURPLUS_ARGUMENT, "unexpected keyword argument 'to'"),
        renamed: (Problem.SURPLUS_ARGUMENT, "unexpected keyword argument 'to'"),
        other: (Problem.WRONG_ARGUMENT, "expected int, got str"),
        optional: None,
    }
    for function, problem in expected.items():
        async with deployed(url, changed(function)) as next_version:
            report = await next_version.check()
        if problem is None:
            assert report.is_fit
        else:
            assert problems(report) == [("send", problem[0], 1)]
            assert problem[1] in report.findings[0].text


async def test_a_class_that_got_a_field(docket: Docket, url: str) -> None:
    async def post(message: Old) -> None: ...
    async def changed_post(message: New) -> None: ...

    post.__annotations__["message"] = Old
    changed_post.__annotations__["message"] = New
    await docket.add(post)(Old("ann"))
    async with deployed(url, changed(changed_post, "post")) as next_version:
        report = await next_version.check()
    assert problems(report) == [("post", Problem.WRONG_ARGUMENT, 1)]
    assert "argument 'message'" in report.findings[0].text


async def test_a_payload_that_cannot_be_read(docket: Docket, url: str) -> None:
    await docket.add(send)("ann")
    ring = Keyring(SigningKey("1", "a secret of sixteen bytes or more"))
    async with deployed(url, send, signing=ring) as next_version:
        report = await next_version.check()
    assert problems(report) == [("send", Problem.UNREADABLE, 1)]


async def test_what_is_injected_is_not_missing(docket: Docket, url: str) -> None:
    async def asks(to: str, where: Annotated[str, Depends(lambda: "here")], how: str = Depends(lambda: "")) -> None: ...

    await docket.add(send)("ann")
    async with deployed(url, changed(asks)) as next_version:
        assert (await next_version.check()).is_fit


async def test_the_result_of_another_run_fits_anything(docket: Docket) -> None:
    async def number() -> int:
        return 1

    async def take(value: int) -> None: ...

    execution = await docket.add(number)()
    await docket.add(take)(execution)  # type: ignore[arg-type]
    report = await docket.check()
    assert (report.checked, report.is_fit) == (2, True)


async def test_tasks_of_dovetails_own_are_not_reported(docket: Docket, url: str) -> None:
    docket.register(send, names=["dovetail.schedule"])
    await docket.add("dovetail.schedule")("ann")
    async with deployed(url) as next_version:
        assert (await next_version.check()).is_fit


async def test_what_runs_or_is_over_is_not_checked(docket: Docket, url: str) -> None:
    await docket.add(send)("ann")
    await docket.add(send, key="cancelled")("ann")
    await docket.cancel("cancelled")
    await docket.engine.claim("worker", 1, lease=timedelta(minutes=1))
    async with deployed(url) as next_version:
        assert (await next_version.check()).checked == 0


async def test_reasons_are_grouped_by_task(docket: Docket, url: str) -> None:
    async def take(numbers: list[Any]) -> None: ...
    async def changed_take(numbers: list[int]) -> None: ...

    take.__annotations__["numbers"] = list[Any]
    changed_take.__annotations__["numbers"] = list[int]
    for place in range(3):
        await docket.add(take)([1] * place + ["x"])
    await docket.add(send)("ann")
    async with deployed(url, changed(changed_take, "take")) as next_version:
        report = await next_version.check()
    assert problems(report) == [("send", Problem.UNKNOWN_TASK, 1), ("take", Problem.WRONG_ARGUMENT, 3)]


async def test_no_more_than_so_many_are_checked(docket: Docket, url: str) -> None:
    await docket.add_many([docket.call(send)("ann") for _ in range(5)])
    told: list[int] = []
    report = await docket.check(limit=3, progress=told.append)
    assert (report.checked, report.is_whole, told) == (3, False, [3])
    report = await docket.check(limit=5)
    assert (report.checked, report.is_whole) == (5, True)
    with pytest.raises(InvalidArgument, match="limit"):
        await docket.check(limit=0)


async def test_all_pages_are_checked(docket: Docket) -> None:
    await docket.add_many([docket.call(send)("ann") for _ in range(2500)])
    told: list[int] = []
    report = await docket.check(progress=told.append)
    assert (report.checked, report.is_whole) == (2500, True)
    assert told[-1] == 2500
