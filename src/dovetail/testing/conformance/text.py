"""Any text and any bytes go in and come out as they were, and mean nothing to the store."""

from __future__ import annotations

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.model import (
    Cancelled,
    EventKind,
    Failure,
    Hold,
    HoldKind,
    Limit,
    Placing,
    ProgressReport,
    Settle,
    State,
    Topic,
    WorkerInfo,
)
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    LEASE,
    a_run,
    all_runs,
    assert_leaves_nothing,
    complete,
    complete_one_by_one,
    keys,
    newest,
    place,
    requeue,
    start_one,
    take,
    take_one,
)
from dovetail.testing.conformance.watching import hear

TEXTS = {
    "space": "with space ",
    "braces": "{a}{}{{b",
    "colons": "a:b::c:",
    "globs": "*?[a-z]*",
    "percent": "%s%%_%",
    "quotes": 'it\'s "quoted" `too`; DROP TABLE runs; --',
    "backslashes": "\\n\\x00\\",
    "slashes": "../../etc/passwd",
    "nul": "before\x00after",
    "newlines": "one\ntwo\r\nthree\ttabbed",
    "controls": "\x1b[31mred\x1b[0m\x7f\x01",
    "accents": "æøå ÆØÅ ß ﬁ é e\u0301",
    "emoji": "🪵👩‍👩‍👧🇳🇴",
    "right to left": "שלום \u202e dlrow",
    "separators": "a\x1fb\x1ec\u2028d,e;f|g/h",
    "number": "00123",
    "json": '{"a": [1, null]}',
    "long": "x" * 500,
    "long and wide": "🪵" * 500,
}
EVERY_TEXT = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
EVERY_PAYLOAD = pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", bytes(range(256)), b"\xff\xfe" * 10, bytes(range(256)) * 800],
    ids=["empty", "nul", "every byte", "not text", "200 KiB"],
)


class Text(Fixtures):
    @EVERY_TEXT
    async def test_a_key_may_be_any_text(self, engine: Engine, clock: VirtualClock, text: str) -> None:
        await place(engine, a_run(text), a_run(text + "!"))
        (placement,) = await place(engine, a_run(text))
        assert placement.placing is Placing.KEPT
        assert (await newest(engine, text)).key == text
        claims = await take(engine)
        assert keys(claims) == [text, text + "!"]
        assert await engine.cancel([text]) == [Cancelled.STOPPING]
        await complete(engine, *claims)
        await assert_leaves_nothing(engine, clock)

    @EVERY_TEXT
    async def test_a_parents_key_may_be_any_text(self, engine: Engine, text: str) -> None:
        await place(engine, a_run(text), a_run("child", after=(text,)))
        assert await complete_one_by_one(engine) == [text, "child"]

    @EVERY_TEXT
    async def test_a_task_may_be_any_text(self, engine: Engine, text: str) -> None:
        assert (await start_one(engine, a_run(task=text))).task == text
        assert [run.task for run in await all_runs(engine, tasks=(text,))] == [text]

    @EVERY_TEXT
    async def test_a_queue_may_be_any_text(self, engine: Engine, clock: VirtualClock, text: str) -> None:
        pause = Hold(HoldKind.PAUSE, queue=text)
        await place(engine, a_run("in", queue=text), a_run("out", queue=text + "!"))
        await engine.hold([pause])
        assert await take(engine, queues=[text]) == []
        await engine.lift([pause])
        (claim,) = await take(engine, queues=[text])
        assert (claim.key, claim.queue) == ("in", text)
        assert {each.queue for each in (await engine.survey()).counts} == {text, text + "!"}
        await complete(engine, claim)
        await complete_one_by_one(engine)
        await assert_leaves_nothing(engine, clock)

    @EVERY_TEXT
    async def test_a_group_may_be_any_text(self, engine: Engine, clock: VirtualClock, text: str) -> None:
        await place(engine, *(a_run(f"a{n}", group=text) for n in range(2)), a_run("b", group=text + "!"))
        claims = await take(engine)
        assert keys(claims) == ["a0", "b", "a1"]
        assert claims[0].group == text
        assert len(await all_runs(engine, groups=(text,))) == 2
        await complete(engine, *claims)
        await assert_leaves_nothing(engine, clock)

    @EVERY_TEXT
    async def test_a_limits_key_may_be_any_text(self, engine: Engine, clock: VirtualClock, text: str) -> None:
        limits = (Limit(text, 1),)
        await place(engine, a_run("1", limits=limits), a_run("2", limits=limits))
        await place(engine, a_run("3", limits=(Limit(text + "!", 1),)))
        claims = await take(engine)
        assert keys(claims) == ["1", "3"]
        parked = await newest(engine, "2")
        assert (parked.parked_on, parked.limits) == (text, limits)
        await complete(engine, *claims)
        assert await complete_one_by_one(engine) == ["2"]
        await assert_leaves_nothing(engine, clock)

    @EVERY_TEXT
    async def test_a_windows_key_may_be_any_text(self, engine: Engine, clock: VirtualClock, text: str) -> None:
        limits = (Limit(text, 1, LEASE),)
        await place(engine, a_run("1", limits=limits), a_run("2", limits=limits))
        assert await complete_one_by_one(engine) == ["1"]
        clock.jump(LEASE)
        assert await complete_one_by_one(engine) == ["2"]
        await assert_leaves_nothing(engine, clock)

    @EVERY_TEXT
    async def test_a_worker_may_have_any_name(self, engine: Engine, text: str) -> None:
        claim = await start_one(engine, a_run(), worker=text)
        info = WorkerInfo(text, id=text, tasks=frozenset({text}), queues=(text,), host=text)
        await engine.heartbeat(info, [claim], lease=LEASE)
        (worker,) = (await engine.survey()).workers
        assert (worker.name, worker.id, worker.tasks, worker.queues) == (text, text, {text}, (text,))
        assert [run.worker for run in await all_runs(engine, worker=text)] == [text]
        await engine.heartbeat(info.but(leaving=True), [], lease=LEASE)
        assert (await engine.survey()).workers == []

    @EVERY_TEXT
    async def test_an_error_may_be_any_text(self, engine: Engine, text: str) -> None:
        failure = Failure(text, text, text)
        await requeue(engine, await start_one(engine, a_run()), attempt=2, failure=failure)
        await engine.finish([Settle(await take_one(engine), State.FAILED, failure=failure)])
        run = await newest(engine, "a")
        assert run.error == str(failure)
        assert [each.failure for each in run.errors] == [failure, failure]
        assert len(await all_runs(engine, error_contains=text)) == 1

    @EVERY_TEXT
    async def test_headers_may_be_any_text(self, engine: Engine, text: str) -> None:
        headers = {text: text, "plain": text, text + "!": ""}
        assert dict((await start_one(engine, a_run(headers=headers))).headers) == headers
        assert dict((await newest(engine, "a")).headers) == headers

    @EVERY_TEXT
    async def test_progress_may_be_any_text(self, engine: Engine, text: str) -> None:
        claim = await start_one(engine, a_run())
        await engine.report([ProgressReport("a", claim.id, claim.epoch, message=text)])
        progress = (await newest(engine, "a")).progress
        assert progress is not None
        assert progress.message == text

    @EVERY_TEXT
    async def test_a_hold_may_be_any_text(self, engine: Engine, text: str) -> None:
        hold = Hold(HoldKind.STRIKE, task=text, parameter=text, value=text.encode(), reason=text, owner=text)
        await engine.hold([hold])
        (kept,) = await engine.holds()
        assert kept.but(since=None) == hold
        await engine.lift([hold])
        assert await engine.holds() == []

    @EVERY_TEXT
    async def test_an_event_may_be_of_any_key(self, engine: Engine, text: str) -> None:
        async with engine.watch(Topic(EventKind.STATE, text)) as events:
            await place(engine, a_run(text + "!"), a_run(text))
            assert (await hear(events)).key == text

    @EVERY_PAYLOAD
    async def test_a_payload_may_be_any_bytes(self, engine: Engine, payload: bytes) -> None:
        claim = await start_one(engine, a_run(payload=payload))
        assert claim.payload == payload
        await requeue(engine, claim, payload=payload[::-1])
        assert (await take_one(engine)).payload == payload[::-1]

    @EVERY_PAYLOAD
    async def test_a_result_may_be_any_bytes(self, engine: Engine, payload: bytes) -> None:
        await complete(engine, await start_one(engine, a_run()), result=payload)
        assert (await newest(engine, "a")).result == payload

    async def test_a_long_traceback_is_no_obstacle(self, engine: Engine) -> None:
        failure = Failure("E" * 200, "m" * 10_000, "line\n" * 10_000)
        await engine.finish([Settle(await start_one(engine, a_run()), State.FAILED, failure=failure)])
        (run,) = await all_runs(engine)
        assert run.state is State.FAILED
        assert (run.error or "").startswith("E" * 200)

    async def test_priorities_may_be_large(self, engine: Engine) -> None:
        priorities = [0, -1, 1, -1_000_000, 1_000_000, 2**31 - 1, -(2**31)]
        await place(engine, *(a_run(f"{n}", priority=n) for n in priorities))
        assert [claim.priority for claim in await take(engine)] == sorted(priorities, reverse=True)

    async def test_due_times_may_be_far_away(self, engine: Engine, clock: VirtualClock) -> None:
        far = clock.now().replace(year=9000, microsecond=999_999)
        await place(engine, a_run(due=far), a_run("ancient", due=clock.now().replace(year=1971)))
        assert (await newest(engine, "a")).due == far
        assert keys(await take(engine)) == ["ancient"]
