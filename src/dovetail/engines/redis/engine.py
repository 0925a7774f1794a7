"""Runs in Redis or Valkey. Every operation is one script, which the server runs without a pause."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Self
from weakref import WeakKeyDictionary

import msgspec

from dovetail.clock import LEAP, Clock, SystemClock, duration_to_microseconds, from_microseconds, to_microseconds
from dovetail.engine.clearing import pending_of
from dovetail.engine.paging import place_of
from dovetail.engines.redis import durability as durabilities
from dovetail.engines.redis import examining, packing
from dovetail.engines.redis.branch import Branch, parts_of
from dovetail.engines.redis.lending import Client
from dovetail.engines.redis.location import locate
from dovetail.errors import EngineUnavailable, InvalidArgument
from dovetail.model import (
    TAGS,
    Cancelled,
    Claim,
    Claimed,
    Cleared,
    Event,
    Finding,
    Finished,
    Glance,
    Hold,
    NewRun,
    Page,
    Placement,
    ProgressReport,
    Pulse,
    QueueCount,
    QueueGlance,
    Repair,
    Revival,
    Run,
    RunQuery,
    Standing,
    State,
    Survey,
    Swept,
    Topic,
    Verdict,
    WorkerInfo,
    marks_of,
    new_id,
)
from dovetail.model.glance import KEPT, SHOWN
from dovetail.model.standing import COUNTED, NAMED

LAYOUT = 1
"""The version of the keys. A later one would have another root."""
MOST_CLAIMED = 150
"""How many runs one script hands out."""
SWEPT = 250
"""How much one script sweeps."""
CLEARED = 250
"""How many runs one script clears."""
GLANCED_AT = 400
"""Records of what is over among which one script looks for failures."""

_worker = msgspec.json.Decoder(WorkerInfo)


class RedisEngine:
    """Keeps the runs of one docket in Redis or Valkey."""

    def __init__(self, url: str, docket: str, *, clock: Clock, durability: str = "durable") -> None:
        durabilities.check(durability)
        self._url = url
        self._location = locate(url)
        self._name = docket
        self._root = self._location.root(docket)
        self._clock = clock
        self._durability = durability
        self._branches: WeakKeyDictionary[asyncio.AbstractEventLoop, Branch] = WeakKeyDictionary()
        self._is_open = False
        self._leapt_at: float | None = None
        self._seen: tuple[int, float] | None = None  # the server's time, and ours, when it was last heard

    async def __aenter__(self) -> Self:
        branch = self._branch_of(asyncio.get_running_loop())
        try:
            await branch.lane.open()
            await durabilities.inspect(branch.lane, self._durability, self._location)
        except BaseException:
            await branch.close()
            raise
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        here = asyncio.get_running_loop()
        for loop, branch in list(self._branches.items()):
            if branch.lane.pid != os.getpid():
                continue
            if loop is here:
                await branch.close()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(branch.lane.close)
        self._branches.clear()

    def twin(self) -> RedisEngine:
        twin = RedisEngine(self._url, self._name, clock=self._clock, durability=self._durability)
        twin._location = self._location
        return twin

    def sign_in_with(self, provider: Any) -> None:
        self._location = self._location.signed_in_with(provider)

    async def migrate(self, to: int | None = None) -> int:
        """There is nothing to bring up: keys come with the first run."""
        self._branch()
        if to not in (None, LAYOUT):
            raise InvalidArgument(f"there is no schema version {to}; the newest is {LAYOUT}")
        return LAYOUT

    def client(self) -> AbstractAsyncContextManager[Client]:
        return self._branch().lender.lend()

    # A run's life

    async def schedule(self, runs: Sequence[NewRun]) -> list[Placement]:
        return await self._branch().schedule(runs)

    async def claim(
        self,
        worker: str,
        want: int,
        *,
        queues: Sequence[str] = (),
        lease: timedelta,
        ageing: timedelta | None = None,
    ) -> Claimed:
        if want <= 0:
            return Claimed([])
        wanted = min(want, MOST_CLAIMED)
        asked, expected, duration = new_id(), self._expected_time(), duration_to_microseconds(lease)
        ages = False if ageing is None else duration_to_microseconds(ageing)

        def request(again: bool) -> bytes:
            grace = self._is_in_grace(lease)  # only now: it may have taken another server to ask
            return packing.encode((worker, wanted, queues, duration, grace, asked, again, expected, ages))

        head, calls, *brought = await self._branch().run("claim", request)
        wait, now, leapt, heads, lapsed, poisoned = packing.decode(head)
        self._note_time(now, leapt)
        claims = [packing.claim(each, blob) for each, blob in zip(heads, calls, strict=True)]
        for number, results in packing.results(*brought).items() if brought else ():
            claims[number] = claims[number].but(results=tuple(results))
        if wanted < want and len(claims) == wanted:
            wait = 0
        return Claimed(claims, None if wait is False else timedelta(microseconds=wait), lapsed, tuple(poisoned))

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        return await self._branch().finish(verdicts)

    async def heartbeat(self, worker: WorkerInfo, claims: Sequence[Claim], *, lease: timedelta) -> Pulse:
        pairs = [part for claim in claims for part in (claim.id, claim.epoch)]
        request = packing.encode((worker.id, worker.leaving, duration_to_microseconds(lease), pairs))
        reply = await self._branch().run("heartbeat", lambda _: request, [msgspec.json.encode(worker)])
        lost, stopping, version, origin = packing.decode(reply)
        return Pulse(frozenset(lost), frozenset(stopping), version, origin)

    async def cancel(self, keys: Sequence[str], *, running: bool = True) -> list[Cancelled]:
        parts = [await self._branch().ask("cancel", (part, running)) for part in parts_of(keys)]
        return [Cancelled(answer) for part in parts for answer in part]

    async def clear(self, query: RunQuery) -> Cleared:
        asked = pending_of(query)
        if asked is None:
            return Cleared(0)
        row = _row(asked, min(query.limit, CLEARED), _place(query))
        cursor, is_end, cancelled = await self._branch().ask("clear", row)
        return Cleared(cancelled, None if is_end else str(cursor))

    async def report(self, reports: Sequence[ProgressReport]) -> list[bool]:
        rows = [
            (
                each.key, each.id or False, False if each.epoch is None else each.epoch, each.increment,
                False if each.total is None else each.total, False if each.message is None else each.message,
                each.clear_message,
            )
            for each in reports
        ]  # fmt: skip
        parts = [await self._branch().ask("report", (new_id(), part)) for part in parts_of(rows)]
        return [noted for part in parts for noted in part]

    async def revive(self, revivals: Sequence[Revival]) -> list[bool]:
        answers: list[bool] = []
        for part in parts_of(revivals):
            blobs = [each.payload for each in part if each.payload is not None]
            rows = [(each.id, each.payload is not None) for each in part]
            answers += await self._branch().ask("revive", rows, blobs)
        return answers

    async def discard(self, ids: Sequence[str]) -> list[bool]:
        parts = [await self._branch().ask("discard", part) for part in parts_of(ids)]
        return [gone for part in parts for gone in part]

    # Holds

    async def hold(self, holds: Sequence[Hold]) -> None:
        await self._branch().run("hold", lambda _: packing.encode([packing.hold(each) for each in holds]))

    async def lift(self, holds: Sequence[Hold]) -> None:
        lifted = [(packing.identity(each), packing.paused_queue(each)) for each in holds]
        await self._branch().run("lift", lambda _: packing.encode(lifted))

    async def holds(self) -> list[Hold]:
        found = await self._branch().run("holds", lambda _: packing.encode(()))
        holds = [packing.load_hold(name, kept) for name, kept in zip(found[::2], found[1::2], strict=True)]
        return sorted(holds, key=lambda hold: (hold.since or from_microseconds(0), packing.identity(hold)))

    # Sight

    async def find(self, query: RunQuery) -> Page[Run]:
        """One page. The cursor is the place in the order of arrival, so runs that come and go do not disturb it."""
        cursor = _place(query)
        found: list[tuple[int, Run]] = []
        is_end = False
        while not is_end and len(found) <= query.limit:
            row = _row(query, query.limit + 1 - len(found), cursor)
            head, *rest = await self._branch().run("find", lambda _, row=row: packing.encode(row))
            cursor, is_end, records = packing.decode(head)
            for n, record in enumerate(records):
                found.append((record["seq"], packing.run(record, record["id"], *rest[3 * n : 3 * n + 3])))
        shown = found[: query.limit]
        return Page([run for _, run in shown], str(shown[-1][0]) if len(found) > query.limit else None)

    async def survey(self) -> Survey:
        counts: dict[tuple[str, str], tuple[int, int]] = {}
        at, last, is_end = 0, 0, False
        workers: list[WorkerInfo] = []
        while not is_end:
            head, *rest = await self._branch().run("survey", lambda _, last=last: packing.encode((last,)))
            at, last, is_end, rows = packing.decode(head)
            workers += _load_workers(rest)
            for queue, state, count, due in rows:
                before, oldest = counts.get((queue, state), (0, int(due)))
                counts[queue, state] = (before + count, min(oldest, int(due)))
        listed = [
            QueueCount(queue, State(state), count, from_microseconds(due))
            for (queue, state), (count, due) in sorted(counts.items())
        ]
        return Survey(from_microseconds(at), listed, workers)

    async def standing(self, run_id: str) -> Standing | None:
        asked = packing.encode((run_id, COUNTED, NAMED))
        answer = await self._branch().run("standing", lambda _: asked)
        return packing.standing(answer[0], _load_workers(answer[1:])) if answer else None

    async def glance(self) -> Glance:
        head, *rest = await self._branch().run("glance", lambda _: packing.encode((SHOWN, GLANCED_AT)))
        at, queues, waiting, parked, kept, running, failures = packing.decode(head)
        listed = [
            QueueGlance(name, queued, scheduled, busy, None if since is False else from_microseconds(int(since)))
            for name, queued, scheduled, busy, since in sorted(queues)
        ]
        return Glance(
            from_microseconds(at), listed, waiting, parked, min(kept, KEPT), _load_workers(rest),
            [packing.run_glance(each) for each in running], [packing.run_glance(each) for each in failures],
        )  # fmt: skip

    async def examine(self, durability: str | None = None) -> list[Finding]:
        return await examining.examine(self._branch(), self._location, self._root, durability or self._durability)

    async def mend(self) -> list[Repair]:
        return await examining.mend(self._branch())

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncGenerator[AsyncIterator[Event]]:
        listener = self._branch().listener
        events = await listener.watch(frozenset(topics))
        try:
            yield events
        finally:
            await listener.unwatch(events)

    # Upkeep

    async def sweep(self, *, silent_for: timedelta = timedelta(minutes=1), at_most: int = 1000) -> Swept:
        bound = min(at_most, SWEPT)
        reply = await self._branch().ask("sweep", (duration_to_microseconds(silent_for), bound))
        return Swept(*reply)

    async def residue(self) -> dict[str, int]:
        """Keys that are left of the docket, by kind."""
        return dict(Counter(key.decode()[len(self._root) :].partition(":")[0] for key in await self.keys()))

    async def keys(self) -> set[bytes]:
        """All keys of the docket."""
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            # Nothing in the root can be a pattern: it was encoded.
            cursor, keys = await self._branch().lane.command("SCAN", cursor, "MATCH", f"{self._root}*", "COUNT", "1000")
            found.update(keys)
            if cursor == b"0":
                return found

    # Time

    def _is_in_grace(self, lease: timedelta) -> bool:
        """For a while after the server's clock leapt, or another server took its place, no lease counts as lapsed."""
        if not isinstance(self._clock, SystemClock):
            return False
        moments = [self._leapt_at, self._branch().lane.changed_at]
        since = time.monotonic() - lease.total_seconds()
        return any(moment is not None and moment > since for moment in moments)

    def _expected_time(self) -> int | bool:
        """The latest that the server's clock may show, unless it has leapt."""
        if self._seen is None:
            return False
        server, ours = self._seen
        return server + round((time.monotonic() - ours) * 1_000_000) + LEAP

    def _note_time(self, now: int, leapt: bool) -> None:
        if isinstance(self._clock, SystemClock):
            self._seen = (int(now), time.monotonic())
            if leapt:
                self._leapt_at = time.monotonic()

    # Connection

    def _branch(self) -> Branch:
        if not self._is_open:
            raise EngineUnavailable(f"the docket {self._name!r} is not open; use it inside 'async with'")
        return self._branch_of(asyncio.get_running_loop())

    def _branch_of(self, loop: asyncio.AbstractEventLoop) -> Branch:
        branch = self._branches.get(loop)
        if branch is None or branch.lane.pid != os.getpid():
            # A child made by fork has inherited connections that are its parent's.
            confirmed_by = self._location.replicas if self._durability == "replicated" else 0
            branch = self._branches[loop] = Branch(
                self._location, self._root, self._clock, confirmed_by, is_visiting=self._is_open
            )
        return branch


def _place(query: RunQuery) -> int | bool:
    """Where a page begins."""
    if query.limit < 1:
        raise InvalidArgument(f"limit must be at least 1, not {query.limit}")
    return False if query.cursor is None else place_of(query.cursor)


def _row(query: RunQuery, limit: int, cursor: int | bool) -> tuple[Any, ...]:
    return (
        query.ids, query.keys, query.states, query.queues, query.without_queues, query.tasks, query.groups,
        TAGS, marks_of(query.tags), query.key_prefix if query.key_prefix is not None else False,
        query.worker if query.worker is not None else False, query.parent if query.parent is not None else False,
        _moment(query.created_after), _moment(query.created_before), _moment(query.due_before),
        query.error_contains if query.error_contains is not None else False,
        query.latest, query.newest_first, limit, cursor,
    )  # fmt: skip


def _moment(moment: Any) -> int | bool:
    return to_microseconds(moment) if moment is not None else False


def _load_workers(said: list[bytes]) -> list[WorkerInfo]:
    """Workers, as pairs of what each says and when it was seen."""
    pairs = zip(said[::2], said[1::2], strict=True)
    return [_worker.decode(info).but(last_seen=from_microseconds(int(seen))) for info, seen in pairs]
