"""find: every run that is kept, filtered and paged."""

from __future__ import annotations

import pytest

from dovetail.clock import VirtualClock
from dovetail.engine import Engine
from dovetail.errors import InvalidArgument
from dovetail.model import Conflict, Failure, Limit, Run, RunQuery, Settle, State, tag_headers
from dovetail.testing.conformance.fixtures import Fixtures
from dovetail.testing.conformance.vocabulary import (
    AT_ONCE,
    HOUR,
    LEASE,
    MINUTE,
    MOMENT,
    SECOND,
    Another,
    a_run,
    all_runs,
    complete,
    fail,
    keys,
    place,
    requeue,
    start,
    start_one,
    take,
    take_one,
)


async def found(engine: Engine, **query: object) -> list[str]:
    """The keys of the runs that the query finds."""
    return keys(await all_runs(engine, **query))


async def one_of_each_state(engine: Engine) -> None:
    """Runs that are called after the state they are in."""
    await complete(engine, await start_one(engine, a_run("completed")))
    await fail(engine, await start_one(engine, a_run("failed")))
    await place(engine, a_run("cancelled"))
    await engine.cancel(["cancelled"])
    await start_one(engine, a_run("running"))
    await place(engine, a_run("scheduled", due=HOUR), a_run("waiting", after=("scheduled",)), a_run("queued"))


async def failed_with(engine: Engine, key: str, message: str) -> None:
    claim = await start_one(engine, a_run(key))
    await engine.finish([Settle(claim, State.FAILED, failure=Failure("ValueError", message))])


class Finding(Fixtures):
    # Everything

    async def test_nothing_is_found_in_an_empty_store(self, engine: Engine) -> None:
        page = await engine.find(RunQuery())
        assert (page.items, page.cursor) == ([], None)

    async def test_every_run_that_is_kept_is_found(self, engine: Engine) -> None:
        await one_of_each_state(engine)
        assert {run.key: run.state.value for run in await all_runs(engine)} == {state: state for state in State}

    async def test_a_parked_run_is_found(self, engine: Engine) -> None:
        one = (Limit("slots", 1),)
        await place(engine, a_run("1", limits=one), a_run("2", limits=one))
        await take(engine)
        assert await found(engine, states=(State.SCHEDULED,)) == ["2"]

    async def test_oldest_come_first(self, engine: Engine, clock: VirtualClock) -> None:
        for key in "cab":
            await place(engine, a_run(key))
            clock.jump(SECOND)
        assert await found(engine) == ["c", "a", "b"]

    async def test_newest_come_first_on_request(self, engine: Engine, clock: VirtualClock) -> None:
        for key in "cab":
            await place(engine, a_run(key))
            clock.jump(SECOND)
        assert await found(engine, newest_first=True) == ["b", "a", "c"]

    async def test_what_was_just_written_is_found(self, engine: Engine, another: Another) -> None:
        other = await another()
        for n in range(20):
            await place(engine, a_run(f"{n}"))
            assert await found(engine, keys=(f"{n}",)) == [f"{n}"]
            assert await found(other, keys=(f"{n}",)) == [f"{n}"]

    # Filters

    async def test_by_id(self, engine: Engine) -> None:
        runs = [a_run(key) for key in "abc"]
        await engine.schedule(runs)
        assert await found(engine, ids=(runs[2].id, runs[0].id, "nobody")) == ["a", "c"]

    async def test_by_key(self, engine: Engine) -> None:
        await place(engine, *(a_run(key) for key in ("a", "b", "c", "aa")))
        assert await found(engine, keys=("c", "a", "nobody")) == ["a", "c"]

    async def test_by_the_beginning_of_a_key(self, engine: Engine) -> None:
        await place(engine, *(a_run(key) for key in ("order:1", "order:22", "reorder:1", "Order:1", "order")))
        own = a_run()
        await place(engine, own.but(key=own.id))
        assert await found(engine, key_prefix="order:") == ["order:1", "order:22"]
        assert await found(engine, key_prefix="o%") == []
        assert await found(engine, key_prefix=own.id[:30]) == [own.id]

    async def test_by_state(self, engine: Engine) -> None:
        await one_of_each_state(engine)
        for state in State:
            assert await found(engine, states=(state,)) == [state]
        assert await found(engine, states=(State.FAILED, State.CANCELLED)) == ["failed", "cancelled"]

    async def test_by_queue(self, engine: Engine) -> None:
        await place(engine, *(a_run(queue, queue=queue) for queue in ("x", "y", "z")))
        assert await found(engine, queues=("z", "x")) == ["x", "z"]

    async def test_by_tag(self, engine: Engine) -> None:
        tagged = {"a": ("red",), "b": ("red", "blue"), "c": ("blue",), "d": ()}
        await place(engine, *(a_run(key, headers=tag_headers(tags)) for key, tags in tagged.items()))
        assert await found(engine, tags=("red",)) == ["a", "b"]
        assert await found(engine, tags=("blue", "red")) == ["b"]
        assert await found(engine, tags=("re",)) == []

    @pytest.mark.parametrize("tag", ['quo"te', "back\\slash", "nul\0", "wörd", '","', "new\nline", "[", "red", "\x7f"])
    async def test_by_a_tag_of_any_text(self, engine: Engine, tag: str) -> None:
        await place(engine, a_run("tagged", headers={"other": "x", **tag_headers(("first", tag, "last"))}))
        await place(engine, a_run("otherwise", headers=tag_headers((f"{tag}{tag}", f'"{tag}"'))))
        await place(engine, a_run("elsewhere", headers={"header": f'["{tag}"]'}))
        assert await found(engine, tags=(tag,)) == ["tagged"]

    @pytest.mark.parametrize("payload", [b"", b"\x80\x05\x95", b"\xdf\xff\xff\xff\xff", b"\x00" * 9, bytes(range(256))])
    async def test_by_task_whatever_its_arguments(self, engine: Engine, payload: bytes) -> None:
        await place(engine, a_run("it", task="wanted", payload=payload), a_run("other", payload=payload))
        assert await found(engine, tasks=("wanted",)) == ["it"]

    async def test_by_task(self, engine: Engine) -> None:
        await place(engine, *(a_run(task, task=task) for task in ("send", "receive", "resend")))
        assert await found(engine, tasks=("send",)) == ["send"]
        assert await found(engine, tasks=("send", "resend")) == ["send", "resend"]

    async def test_by_group(self, engine: Engine) -> None:
        await place(engine, a_run("1", group="x"), a_run("2", group="y"), a_run("3"))
        assert await found(engine, groups=("x",)) == ["1"]
        assert await found(engine, groups=("x", "y")) == ["1", "2"]

    async def test_by_worker(self, engine: Engine) -> None:
        await start_one(engine, a_run("1"), worker="ann")
        await start_one(engine, a_run("2"), worker="bob")
        await place(engine, a_run("3"))
        assert await found(engine, worker="bob", states=(State.RUNNING,)) == ["2"]

    async def test_by_parent(self, engine: Engine) -> None:
        parent = a_run("parent")
        await place(
            engine,
            parent,
            a_run("other"),
            a_run("1", after=("parent",)),
            a_run("2", after=("other", "parent")),
            a_run("3", after=("other",)),
        )
        assert await found(engine, parent=parent.id) == ["1", "2"]

    async def test_by_a_parent_that_fell(self, engine: Engine) -> None:
        parent = await start_one(engine, a_run("parent"))
        await place(engine, a_run("child", after=("parent",)))
        await fail(engine, parent)
        assert await found(engine, parent=parent.id) == ["child"]

    async def test_by_age(self, engine: Engine, clock: VirtualClock) -> None:
        start_of_test = clock.now()
        for key in ("0", "1", "2"):
            await place(engine, a_run(key))
            clock.jump(MINUTE)
        half = start_of_test + 30 * SECOND
        assert await found(engine, created_after=half) == ["1", "2"]
        assert await found(engine, created_before=half) == ["0"]
        assert await found(engine, created_after=half, created_before=half + MINUTE) == ["1"]

    async def test_by_due_time(self, engine: Engine, clock: VirtualClock) -> None:
        await place(engine, *(a_run(f"{n}", due=n * MINUTE) for n in (3, 1, 2)))
        assert await found(engine, due_before=clock.now() + 2 * MINUTE + SECOND) == ["1", "2"]

    async def test_by_text_in_the_error(self, engine: Engine) -> None:
        await failed_with(engine, "1", "connection refused")
        await failed_with(engine, "2", "no such file")
        assert await found(engine, error_contains="refused") == ["1"]
        assert await found(engine, error_contains="ValueError: no") == ["2"]
        assert await found(engine, error_contains="nothing like it") == []

    @pytest.mark.parametrize("text", ["%", "_", "*", "?", "[a]", "\\", "'", '"', "a%b", "é", "🪵"])
    async def test_by_text_that_a_store_might_take_for_a_pattern(self, engine: Engine, text: str) -> None:
        await failed_with(engine, "with", f"before {text} after")
        await failed_with(engine, "without", "before ab after")
        assert await found(engine, error_contains=text) == ["with"]

    async def test_by_the_error_of_a_run_that_goes_again(self, engine: Engine) -> None:
        claim = await start_one(engine, a_run())
        await requeue(engine, claim, attempt=2, failure=Failure("ValueError", "refused"))
        assert await found(engine, error_contains="refused") == ["a"]

    async def test_all_that_is_asked_for_must_hold(self, engine: Engine) -> None:
        await place(
            engine,
            a_run("1", task="send", queue="x"),
            a_run("2", task="send", queue="y"),
            a_run("3", task="receive", queue="x"),
        )
        assert await found(engine, tasks=("send",), queues=("x",)) == ["1"]
        assert await found(engine, tasks=("send",), queues=("x",), states=(State.FAILED,)) == []

    # The newest of a key

    async def test_all_runs_of_a_key_are_found(self, engine: Engine) -> None:
        for _ in range(3):
            await complete(engine, await start_one(engine, a_run()))
        assert await found(engine, keys=("a",)) == ["a", "a", "a"]

    async def test_only_the_newest_of_each_key_is_found_on_request(self, engine: Engine) -> None:
        newest: dict[str, str] = {}
        for key in ("a", "b", "a", "c", "b", "a"):
            claim = await start_one(engine, a_run(key))
            await complete(engine, claim)
            newest[key] = claim.id
        assert {run.key: run.id for run in await all_runs(engine, latest=True)} == newest

    async def test_the_newest_is_the_one_placed_last(self, engine: Engine) -> None:
        running = await start_one(engine, a_run())
        beside = a_run(conflict=Conflict.REPLACE)
        await place(engine, beside)
        await complete(engine, running)
        assert [run.id for run in await all_runs(engine, keys=("a",), latest=True)] == [beside.id]

    async def test_the_newest_must_meet_the_rest_of_the_query(self, engine: Engine) -> None:
        await fail(engine, await start_one(engine, a_run()))
        await complete(engine, await start_one(engine, a_run()))
        assert await found(engine, states=(State.FAILED,)) == ["a"]
        assert await found(engine, states=(State.FAILED,), latest=True) == []

    # Pages

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_pages_add_up(self, engine: Engine, limit: int, newest_first: bool) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(7)))
        in_order = [f"{n}" for n in range(7)]
        expected = in_order[::-1] if newest_first else in_order
        assert await found(engine, limit=limit, newest_first=newest_first) == expected

    async def test_a_page_is_no_longer_than_its_limit(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(5)))
        page = await engine.find(RunQuery(limit=2))
        assert keys(page) == ["0", "1"]
        assert page.cursor is not None

    async def test_the_last_page_has_no_cursor(self, engine: Engine) -> None:
        await place(engine, a_run("1"), a_run("2"))
        assert (await engine.find(RunQuery(limit=10))).cursor is None

    @pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 30, " "])
    async def test_a_cursor_that_no_page_gave_is_refused(self, engine: Engine, cursor: str) -> None:
        with pytest.raises(InvalidArgument, match="is none that a page gave"):
            await engine.find(RunQuery(cursor=cursor))

    async def test_a_page_can_be_asked_for_again(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(5)))
        cursor = (await engine.find(RunQuery(limit=2))).cursor
        again = [keys(await engine.find(RunQuery(limit=2, cursor=cursor))) for _ in range(2)]
        assert again == [["2", "3"], ["2", "3"]]

    async def test_pages_keep_to_the_filter(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}", queue="x" if n % 3 else "y") for n in range(12)))
        assert await found(engine, queues=("y",), limit=2) == ["0", "3", "6", "9"]

    async def test_pages_of_the_newest_add_up(self, engine: Engine) -> None:
        for _ in range(2):
            claims = await start(engine, *(a_run(f"{n}") for n in range(5)))
            await complete(engine, *claims)
        assert await found(engine, latest=True, limit=2) == [f"{n}" for n in range(5)]

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_pages_are_stable_while_runs_come_and_go(self, engine: Engine, newest_first: bool) -> None:
        await place(engine, *(a_run(f"{n}", retention=AT_ONCE, due=HOUR) for n in range(9)))
        seen: list[Run] = []
        page = await engine.find(RunQuery(limit=3, newest_first=newest_first))
        seen += page
        on_page = keys(page)
        # One that was seen goes, one that was not goes, one comes: whoever stays is seen once.
        gone = [on_page[0], "4"]
        await engine.cancel(gone)
        await place(engine, a_run("new", due=HOUR))
        while page.cursor is not None:
            page = await engine.find(RunQuery(limit=3, newest_first=newest_first, cursor=page.cursor))
            seen += page
        stayed = [f"{n}" for n in range(9) if f"{n}" not in gone]
        assert sorted(key for key in keys(seen) if key not in {*gone, "new"}) == stayed
        assert len(keys(seen)) == len(set(keys(seen)))

    async def test_pages_are_stable_while_runs_change_their_state(self, engine: Engine) -> None:
        await place(engine, *(a_run(f"{n}") for n in range(6)))
        page = await engine.find(RunQuery(limit=3))
        seen = keys(page)
        await complete(engine, *await take(engine, 4))
        page = await engine.find(RunQuery(limit=10, cursor=page.cursor))
        assert seen + keys(page) == [f"{n}" for n in range(6)]

    # What a run tells of itself

    async def test_a_run_tells_its_whole_life(self, engine: Engine, clock: VirtualClock) -> None:
        created = clock.now()
        await place(engine, a_run(due=SECOND))
        clock.jump(MINUTE)
        claim = await take_one(engine, worker="ann")
        started = clock.now()
        clock.jump(SECOND + MOMENT)
        (running,) = await all_runs(engine)
        assert (running.created, running.due, running.started) == (created, created + SECOND, started)
        assert (running.lease_until, running.finished, running.epoch) == (started + LEASE, None, claim.epoch)
        await complete(engine, claim)
        (over,) = await all_runs(engine)
        assert (over.created, over.due, over.started) == (created, created + SECOND, started)
        assert (over.finished, over.lease_until) == (clock.now(), None)

    @pytest.mark.parametrize("running", [7, 450])
    async def test_what_runs_is_found_beside_a_backlog(self, engine: Engine, running: int) -> None:
        await engine.schedule([a_run(f"{n}", queue=f"{n % 3}") for n in range(running)])
        assert len(await take(engine, running)) == running
        await engine.schedule([a_run(f"queued {n}") for n in range(20)])
        page = await engine.find(RunQuery(states=(State.RUNNING,), limit=5))
        assert keys(page) == ["0", "1", "2", "3", "4"]
        rest = await engine.find(RunQuery(states=(State.RUNNING,), limit=1000, cursor=page.cursor))
        assert keys(rest) == [f"{n}" for n in range(5, running)]
        newest = await engine.find(RunQuery(states=(State.RUNNING,), limit=1, newest_first=True))
        assert keys(newest) == [f"{running - 1}"]
