"""The results that a run was promised: what its arguments refer to, read from the store before its body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from dovetail.codec import CallTypes, Codec
from dovetail.codec.references import Reference, references_in, resolved
from dovetail.engine import Engine
from dovetail.errors import ParentFailed, ResultExpired
from dovetail.model import Claim, Result, Run, RunQuery, State
from dovetail.tasks import Task, TaskFunction

PAGE = 500


class Reader:
    """Reads runs by their ids. What is asked for while one read is under way is read together in the next: many runs
    start at once, and a read for each would take longer than they do."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = asyncio.Lock()
        self._next: Batch | None = None

    async def read(self, ids: Sequence[str]) -> Mapping[str, Run]:
        """These runs, as far as they are kept, and maybe others."""
        if not ids:
            return {}
        batch = self._next = self._next or Batch(self._read)
        batch.ids.update(ids)
        batch.waiting += 1
        try:
            # All of them go on in the same turn of the loop, and end in the same batch of the settler.
            return await asyncio.shield(batch.reading)
        finally:
            batch.waiting -= 1
            if not batch.waiting:
                self._leave(batch)

    async def _read(self, batch: Batch) -> dict[str, Run]:
        async with self._turn:
            self._next = None
            return await self._find(list(batch.ids))

    async def _find(self, ids: list[str]) -> dict[str, Run]:
        pages = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]
        return {run.id: run for page in pages for run in await self._engine.find(RunQuery(ids=tuple(page), limit=PAGE))}

    def _leave(self, batch: Batch) -> None:
        """Nobody waits for it any more: it has been read, or all were stopped."""
        batch.reading.cancel()
        if self._next is batch:
            self._next = None


class Batch:
    """What is read together, for as long as somebody waits for it."""

    def __init__(self, read: Callable[[Batch], Coroutine[Any, Any, dict[str, Run]]]) -> None:
        self.ids: set[str] = set()
        self.waiting = 0
        self.reading = asyncio.create_task(read(self), name="dovetail results")


class Results:
    """Puts results in the place of references."""

    def __init__(self, engine: Engine, codec: Codec, tasks: Mapping[str, TaskFunction]) -> None:
        self._reader = Reader(engine)
        self._codec = codec
        self._tasks = tasks

    async def fill_in(
        self, claim: Claim, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a claim, complete; an error that names the run of which there is no result."""
        brought = {result.id: result for result in claim.results}
        missing = [each for each in references_in(*args, *kwargs.values()) if each.name not in brought]
        found = await self._parents(claim, list(dict.fromkeys(missing))) if missing else {}

        def result_of(reference: Reference) -> Any:
            result = brought.get(reference.name) or self._result(claim, reference, found.get(reference))
            return self._loaded(result)

        return resolved(args, result_of), resolved(kwargs, result_of)

    async def _parents(self, claim: Claim, wanted: list[Reference]) -> dict[Reference, Run]:
        # What was called by its id is found by that: a call without a key is.
        by_id = await self._reader.read([each.name for each in wanted])
        found = {each: by_id[each.name] for each in wanted if each.name in by_id}
        if len(found) < len(wanted):
            # Named by its key alone, or replaced while it was pending: of the runs it waited for, the one called so.
            own = await self._reader.read([claim.id])
            ids = own[claim.id].parents if claim.id in own else ()
            parents = await self._reader.read(ids)
            by_key = {parents[each].key: parents[each] for each in ids if each in parents}
            found |= {each: by_key[each.key] for each in wanted if each not in found and each.key in by_key}
        return found

    def _result(self, claim: Claim, reference: Reference, run: Run | None) -> Result:
        if run is None or not run.state.is_terminal:
            raise ResultExpired(
                f"the run {claim.key!r} is to receive the result of {reference.key!r}, which is no longer kept; give"
                " the docket a longer execution_ttl"
            )
        if run.state is not State.COMPLETED:
            why = f": {run.error}" if run.error else ""
            raise ParentFailed(
                f"the run {claim.key!r} is to receive the result of {run.key!r}, which has none: it {_ended(run)}{why}."
                " Wait for it with after= instead to run whatever became of it"
            )
        if run.result is None and run.error is not None:
            raise ParentFailed(
                f"the run {claim.key!r} is to receive the result of {run.key!r}, which could not be stored: {run.error}"
            )
        return Result(run.id, run.task, run.result)

    def _loaded(self, result: Result) -> Any:
        """The value, decoded afresh wherever it is received."""
        if result.value is None:
            return None
        function = self._tasks.get(result.task)
        types = Task.of(function).types if function is not None else CallTypes.unknown(result.task)
        return self._codec.load_result(types, result.value)


def _ended(run: Run) -> str:
    return "failed" if run.state is State.FAILED else "was cancelled"
