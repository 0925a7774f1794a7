"""What one event loop has of an engine: its connections, its listener, and the requests that go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dovetail.clock import Clock, SystemClock
from dovetail.engine import refusals
from dovetail.engines.redis import packing
from dovetail.engines.redis.gathering import Gatherer
from dovetail.engines.redis.lane import Lane, Request
from dovetail.engines.redis.lending import Lender
from dovetail.engines.redis.listening import Listener
from dovetail.engines.redis.location import Location
from dovetail.model import Finished, NewRun, Placement, Placing, Settle, State, Verdict

T = TypeVar("T")

TOGETHER = 150
"""How many runs, roughly, go into one script."""
LONG = 16384
"""Bytes that count as one more run: neither shall one script be given too much to carry."""

_PLACINGS = {placing.value: placing for placing in Placing}
_STATES = {state.value: state for state in State}
_ANSWERS = {answer.value: answer for answer in Finished}


def parts_of(items: Sequence[T], weigh: Callable[[T], int] = lambda _: 1) -> list[Sequence[T]]:
    """Some at a time, so that no script is long."""
    parts: list[Sequence[T]] = []
    start = weight = 0
    for n, item in enumerate(items):
        weight += weigh(item)
        if weight > TOGETHER and n > start:
            parts.append(items[start:n])
            start, weight = n, weigh(item)
    return [*parts, items[start:]] if items else []


def _weight_of_run(run: NewRun) -> int:
    return 1 + len(run.payload) // LONG


def _weight_of_verdict(verdict: Verdict) -> int:
    if isinstance(verdict, Settle):
        return 1 + len(verdict.result or b"") // LONG + sum(_weight_of_run(run) for run in verdict.then)
    return 1 + len(verdict.payload or b"") // LONG


def _weight_of_runs(runs: Sequence[NewRun]) -> int:
    return sum(map(_weight_of_run, runs))


def _weight_of_verdicts(verdicts: Sequence[Verdict]) -> int:
    return sum(map(_weight_of_verdict, verdicts))


class Branch:
    """An engine in one event loop."""

    def __init__(self, location: Location, root: str, clock: Clock, confirmed_by: int, *, is_visiting: bool) -> None:
        # A loop that only visits may end without a word: it must not leave connections open.
        self.lane = Lane(location, root, keeps=not is_visiting, distrusted=self._distrust)
        self.listener = Listener(location.shown, root, self.lane.wire, keeps=not is_visiting)
        self.lender = Lender(location, keeps=not is_visiting)
        self._clock = None if isinstance(clock, SystemClock) else clock
        self._confirmed_by = confirmed_by
        self._schedules = Gatherer[Sequence[NewRun], list[Placement]](self._schedule, _weight_of_runs, TOGETHER)
        self._finishes = Gatherer[Sequence[Verdict], list[Finished]](self._finish, _weight_of_verdicts, TOGETHER)

    def _distrust(self) -> None:
        self.listener.distrust()

    async def close(self) -> None:
        await self.listener.close()
        self.lane.close()
        await self.lender.close()

    # Calling

    async def run(self, name: str, request: Request, blobs: Sequence[bytes] = (), *, confirmed_by: int = 0) -> Any:
        """Run a script by the server's clock, or, in tests, by the test's."""
        if self._clock is None:
            return await self.lane.run(name, request, blobs, confirmed_by=confirmed_by)
        self._clock.work_began()
        try:
            now = str(self._clock.microseconds())
            return await self.lane.run(name, request, blobs, now=now, confirmed_by=confirmed_by)
        finally:
            self._clock.work_ended()

    async def ask(self, name: str, request: Any, blobs: Sequence[bytes] = ()) -> Any:
        packed = packing.encode(request)
        return packing.decode(await self.run(name, lambda _: packed, blobs))

    # Scheduling

    async def schedule(self, runs: Sequence[NewRun]) -> list[Placement]:
        """All of it as one, unless it is large: then in parts, if none of it can be refused for an unknown parent."""
        if len(runs) > TOGETHER and any(run.after for run in runs):
            return await self._schedules.ask(runs)
        parts = [await self._schedules.ask(part) for part in parts_of(runs, _weight_of_run)]
        return [placement for part in parts for placement in part]

    async def _schedule(self, groups: list[Sequence[NewRun]]) -> list[list[Placement] | BaseException]:
        if all(_is_plain(run) for group in groups for run in group):
            placed = await self._add([run for group in groups for run in group])
            if placed is not None:
                rest = iter(placed)
                return [[next(rest) for _ in group] for group in groups]
        packed = packing.encode([[packing.draft(run) for run in group] for group in groups])
        blobs = [packing.call(run.task, run.headers, run.payload) for group in groups for run in group]
        reply = await self.run("schedule", lambda _: packed, blobs, confirmed_by=self._confirmed_by)
        return [_placements(answer) for answer in packing.decode(reply)]

    async def _add(self, runs: list[NewRun]) -> list[Placement] | None:
        """Place runs that nothing can stand in the way of; None if it turns out that something does."""
        packed = packing.encode([packing.draft(run) for run in runs])
        blobs = [packing.call(run.task, run.headers, run.payload) for run in runs]
        reply = await self.run("add", lambda _: packed, blobs, confirmed_by=self._confirmed_by)
        if reply is None:
            return None
        states = packing.decode(reply)
        return [Placement(Placing.PLACED, run.id, _STATES[state]) for run, state in zip(runs, states, strict=True)]

    # Finishing

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        parts = [await self._finishes.ask(part) for part in parts_of(verdicts, _weight_of_verdict)]
        return [answer for part in parts for answer in part]

    async def _finish(self, groups: list[Sequence[Verdict]]) -> list[list[Finished] | BaseException]:
        rows: list[Any] = []
        blobs: list[bytes] = []
        for group in groups:
            for verdict in group:
                row, more = packing.verdict(verdict)
                rows.append(row)
                blobs += more
        packed = packing.encode(rows)
        answers = iter(
            packing.decode(await self.run("finish", lambda _: packed, blobs, confirmed_by=self._confirmed_by))
        )
        return [_finished([next(answers) for _ in group]) for group in groups]


def _is_plain(run: NewRun) -> bool:
    return run.key == run.id and run.group is None and not (run.limits or run.after or run.instead_of)


def _placements(answer: list[Any]) -> list[Placement] | BaseException:
    if answer[0] is False:
        _, run, reference = answer
        return refusals.unknown_parent(run, reference) if reference else refusals.circle(run)
    return [
        Placement(_PLACINGS[placing], run_id, _STATES[state])
        for placing, run_id, state in zip(answer[::3], answer[1::3], answer[2::3], strict=True)
    ]


def _finished(answers: list[Any]) -> list[Finished] | BaseException:
    for answer in answers:
        if isinstance(answer, list):
            return refusals.unknown_parent(*answer)  # pyright: ignore[reportUnknownArgumentType]
    return [_ANSWERS[answer] for answer in answers]
