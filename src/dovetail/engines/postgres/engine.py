"""Runs in PostgreSQL. Every verb is one function in the database: one round trip, one transaction."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Self

import msgspec

from dovetail.clock import Clock, SystemClock, duration_to_microseconds, from_microseconds
from dovetail.engine import statements
from dovetail.engine.clearing import pending_of
from dovetail.engines.postgres import answers, enlisting, examining, migrating, requests, sight
from dovetail.engines.postgres.failing import ConnectionLost, enlisted
from dovetail.engines.postgres.location import locate
from dovetail.engines.postgres.news import News
from dovetail.engines.postgres.opened import Opened
from dovetail.engines.postgres.pool import Pool
from dovetail.engines.postgres.requests import Blobs
from dovetail.engines.postgres.telling import Events, Watcher
from dovetail.engines.postgres.texts import get, get_any, put, put_json
from dovetail.engines.postgres.transacting import TaskTransaction
from dovetail.engines.postgres.wire import Wire
from dovetail.errors import EngineUnavailable, InvalidArgument
from dovetail.model import (
    AttemptError,
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
    Repair,
    Revival,
    Run,
    RunQuery,
    Settle,
    Standing,
    State,
    Survey,
    Swept,
    Topic,
    Verdict,
    WorkerInfo,
)
from dovetail.model.glance import EXAMINED, KEPT, SHOWN
from dovetail.model.standing import COUNTED, NAMED

SQL = statements.load("dovetail.engines.postgres")
DURABILITIES = ("durable", "process", "replicated")

_encode = msgspec.json.encode


class PostgresEngine:
    """Keeps the runs of one docket in a schema of a PostgreSQL database."""

    def __init__(self, url: str, docket: str, *, clock: Clock, durability: str = "durable") -> None:
        if durability not in DURABILITIES:
            raise InvalidArgument(f"durability must be one of {', '.join(DURABILITIES)}, not {durability!r}")
        self._url = url
        self._location = locate(url)
        self._name = docket
        self.clock = clock
        self.durability = durability
        self._goes_by_the_server = isinstance(clock, SystemClock)
        self._docket = 0
        self._token = ""
        self._opened: Opened | None = None

    async def __aenter__(self) -> Self:
        pool = Pool(self._location, self.durability)
        try:
            await self._find_docket(pool)
        except BaseException:
            await pool.close()
            raise
        self._opened = Opened(pool, self._docket, self.clock, place=self.place, settle=self.settle)
        return self

    async def _find_docket(self, pool: Pool, attempts: int = 5) -> None:
        """See to the schema and the docket. A connection that breaks meanwhile is no reason to give up."""
        try:
            async with pool.lend() as wire:
                if not await migrating.check(wire, self._location):
                    await migrating.migrate(wire, self._location)
                statement = f'SELECT * FROM "{self._location.schema}".docket_of($1)'  # noqa: S608 - a validated name
                ((self._docket, self._token),) = await wire.ask(statement, (put(self._name),))
        except ConnectionLost as error:
            if attempts == 1:
                raise EngineUnavailable(str(error)) from error
            await self._find_docket(pool, attempts - 1)

    async def __aexit__(self, *_: object) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    def twin(self) -> PostgresEngine:
        return PostgresEngine(self._url, self._name, clock=self.clock, durability=self.durability)

    async def migrate(self, to: int | None = None) -> int:
        """Works on an engine that is not open too: one cannot be opened on an old schema."""
        async with self._wire_of_its_own() as wire:
            return await migrating.migrate(wire, self._location, to)

    async def plan(self) -> list[str]:
        async with self._wire_of_its_own() as wire:
            return migrating.names_after(await migrating.known_version(wire, self._location))

    @asynccontextmanager
    async def _wire_of_its_own(self) -> AsyncGenerator[Wire]:
        pool = Pool(self._location, self.durability)
        try:
            async with pool.lend() as wire:
                yield wire
        finally:
            await pool.close()

    def script(self) -> str:
        return f"BEGIN;\n\n{migrating.script(self._location.schema)}\nCOMMIT;\n"

    def roles(self) -> str:
        return migrating.roles(self._location.schema)

    # A run's life

    async def schedule(self, runs: Sequence[NewRun]) -> list[Placement]:
        return await self._open.schedules.submit(runs) if runs else []

    async def place(self, runs: Sequence[NewRun]) -> list[Placement]:
        """Place the runs in one transaction."""
        if len(runs) == 1 and requests.is_plain_run(runs[0]):
            said = await self._call("schedule_plain", self._docket, self._now, *requests.of_plain_run(runs[0]))
        else:
            blobs = Blobs()
            asked = put_json(requests.of_runs(runs, blobs))
            said = await self._call("schedule", self._docket, self._now, asked, blobs.joined(), False)
        answer = answers.placed.decode(said)
        self._tell(answer)
        return answer.placements([run.id for run in runs])

    async def schedule_within(self, connection: Any, runs: Sequence[NewRun]) -> list[Placement]:
        """Place the runs in the transaction that a connection of the caller's has open. When that is committed is not
        seen here: workers are reminded to look for a while, and then look by themselves."""
        reminders = self._open.reminders
        blobs = Blobs()
        asked = put_json(requests.of_runs(runs, blobs))
        function = f'"{self._location.schema}".schedule_within'
        try:
            said = await enlisting.ask(
                connection, function, (self._docket, self._token, self._now, asked, blobs.joined())
            )
        except Exception as error:
            meant = enlisted(error, self._location)
            if meant is error:
                raise
            raise meant from error
        reminders.begin()
        return answers.placed.decode(said).placements([run.id for run in runs])

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
        if ageing is not None:
            return await self._claim(worker, want, queues, lease, None, duration_to_microseconds(ageing))
        beyond = self._open.shortcut.beyond(queues)
        claimed = await self._claim(worker, want, queues, lease, beyond)
        missing = want - len(claimed.claims)
        if beyond is not None and missing:
            rest = await self._claim(worker, missing, queues, lease, None)
            return Claimed(
                [*claimed.claims, *rest.claims], rest.wait, claimed.lapsed + rest.lapsed,
                claimed.poisoned + rest.poisoned,
            )  # fmt: skip
        return claimed

    async def _claim(
        self,
        worker: str,
        want: int,
        queues: Sequence[str],
        lease: timedelta,
        beyond: str | None,
        ageing: int | None = None,
    ) -> Claimed:
        names = [put(queue) for queue in queues]
        began = self.clock.monotonic()
        rows = await self._open.caller.table(
            "claim", self._docket, self._now, put(worker), want, names, duration_to_microseconds(lease), beyond, ageing
        )
        took = self.clock.monotonic() - began
        closing = answers.Closing(*rows.pop())
        self._tell(answers.news.decode("{" + closing.news + "}"))
        if ageing is None:
            self._open.shortcut.note(queues, closing, took, was_full=len(rows) == want, went_beyond=beyond is not None)
        claims = [answers.claim_of(row) for row in rows]
        wait = None if closing.wait is None else timedelta(microseconds=closing.wait)
        return Claimed(claims, wait, closing.lapsed, answers.tasks_in(closing.poisoned))

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        return await self._open.finishes.submit(verdicts) if verdicts else []

    async def settle(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Finish the runs in one transaction."""
        plain, others = requests.split(verdicts)
        answer = answers.done.decode(await self._call("finish", *self._verdicts(plain, others)))
        self._tell(answer)
        return await self._words(verdicts, plain, answer)

    def _verdicts(self, plain: list[Settle], others: Sequence[Verdict]) -> tuple[Any, ...]:
        blobs = Blobs()
        ids, epochs, starts, sizes = requests.of_plain(plain, blobs)
        asked = put_json([requests.of_verdict(verdict, blobs) for verdict in others])
        return self._docket, self._now, ids, epochs, starts, sizes, asked, blobs.joined()

    async def transaction(self) -> TaskTransaction:
        return await TaskTransaction.begin(self._open.task_pool, self._settle_within)

    async def _settle_within(self, wire: Wire, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Finish runs in the transaction that is open on a connection."""
        values = self._verdicts([], verdicts)
        marks = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        rows = await wire.ask(f'SELECT "{self._location.schema}".finish({marks})', values)
        answer = answers.done.decode(rows[0][0])
        self._tell(answer)
        return answer.answers

    async def _words(
        self, verdicts: Sequence[Verdict], plain: Sequence[Verdict], answer: answers.Done
    ) -> list[Finished]:
        if len(plain) == len(verdicts) and answer.done is True:
            return [Finished.DONE] * len(verdicts)
        accepted = {each.claim.id for each in plain} if answer.done is True else set(map(get, answer.done or ()))
        late = [each for each in plain if each.claim.id not in accepted]
        words = dict[int, Finished]()
        if late:
            # Not plain after all: void, or accepted before. Asked again by themselves, they are told which.
            again = answers.done.decode(await self._call("finish", *self._verdicts([], late)))
            words |= {id(each): word for each, word in zip(late, again.answers, strict=True)}
        spoken_for = {id(each) for each in plain}
        rest = iter(answer.answers)
        return [words.get(id(each), Finished.DONE) if id(each) in spoken_for else next(rest) for each in verdicts]

    async def heartbeat(self, worker: WorkerInfo, claims: Sequence[Claim], *, lease: timedelta) -> Pulse:
        version, lost, stopping = answers.pulse.decode(
            await self._call(
                "heartbeat", self._docket, self._now, [put(claim.id) for claim in claims],
                [claim.epoch for claim in claims], duration_to_microseconds(lease), put(worker.id), _encode(worker),
                worker.leaving,
            )
        )  # fmt: skip
        return Pulse(frozenset(map(get, lost)), frozenset(map(get, stopping)), version)

    async def cancel(self, keys: Sequence[str], *, running: bool = True) -> list[Cancelled]:
        named = [put(key) for key in keys]
        answer = answers.stopped.decode(
            await self._call("cancel", self._docket, self._now, named, running, repeatable=False)
        )
        self._tell(answer)
        return answer.answers

    async def clear(self, query: RunQuery) -> Cleared:
        asked = pending_of(query)
        if asked is None:
            return Cleared(0)
        statement = sight.page_of(asked, self._docket, await self._time())
        page = sight.select(statement, asked, self._location.schema, columns="id")
        found = [run_id for (run_id,) in await self._open.caller.read(page, statement.values)]
        step = found[: query.limit]
        if not step:
            return Cleared(0)
        answer = answers.emptied.decode(await self._call("clear", self._docket, self._now, step, repeatable=False))
        self._tell(answer)
        return Cleared(answer.cleared, step[-1] if len(found) > len(step) else None)

    async def report(self, reports: Sequence[ProgressReport]) -> list[bool]:
        asked = put_json([requests.of_report(each) for each in reports])
        return await self._answer("report", asked)

    async def revive(self, revivals: Sequence[Revival]) -> list[bool]:
        blobs = Blobs()
        asked = put_json([requests.of_revival(each, blobs) for each in revivals])
        return await self._answer("revive", asked, blobs.joined())

    async def discard(self, ids: Sequence[str]) -> list[bool]:
        named = [put(run_id) for run_id in ids]
        return answers.discarded.decode(await self._call("discard", self._docket, self._now, named, repeatable=False))

    async def _answer(self, function: str, *values: Any) -> list[bool]:
        answer = answers.answered.decode(await self._call(function, self._docket, self._now, *values, repeatable=False))
        self._tell(answer)
        return answer.answers

    # Holds

    async def hold(self, holds: Sequence[Hold]) -> None:
        laid = put_json([requests.of_hold(each) for each in holds])
        self._tell(answers.news.decode(await self._call("lay_holds", self._docket, self._now, laid)))

    async def lift(self, holds: Sequence[Hold]) -> None:
        lifted = put_json([requests.identity_of(each) for each in holds])
        self._tell(answers.news.decode(await self._call("lift_holds", self._docket, lifted)))

    async def holds(self) -> list[Hold]:
        return [sight.hold_of(row) for row in await self._read("holds", await self._time())]

    # Sight

    async def find(self, query: RunQuery) -> Page[Run]:
        statement = sight.page_of(query, self._docket, await self._time())
        rows = await self._open.caller.read(sight.select(statement, query, self._location.schema), statement.values)
        more = len(rows) > query.limit
        rows = rows[: query.limit]
        ids = [row[0] for row in rows]
        parents: dict[str, list[str]] = {}
        errors: dict[str, list[AttemptError]] = {}
        if ids:
            for child, parent in await self._read("parents_of", ids):
                parents.setdefault(child, []).append(get(parent))
        if any(row[24] for row in rows):
            for run, *line in await self._read("errors_of", ids):
                errors.setdefault(run, []).append(sight.error_of(tuple(line)))
        runs = [sight.run_of(row, tuple(parents.get(row[0], ())), tuple(errors.get(row[0], ()))) for row in rows]
        return Page(runs, runs[-1].id if more else None)

    async def survey(self) -> Survey:
        now = await self._time()
        counts = await self._read("counts", now)
        workers = await self._read("workers")
        return Survey(
            from_microseconds(now), [sight.count_of(row) for row in counts], [sight.worker_of(row) for row in workers]
        )

    async def standing(self, run_id: str) -> Standing | None:
        now = await self._time()
        rows = await self._read("standing", now, put(run_id), COUNTED, NAMED)
        if not rows:
            return None
        state, epoch, parked_on, ahead, uses = rows[0]
        workers = await self._read("workers")
        return Standing(
            from_microseconds(now), State(state), epoch, get_any(parked_on), min(ahead, COUNTED),
            sight.uses_of(uses, now), tuple(sight.worker_of(row) for row in workers),
        )  # fmt: skip

    async def glance(self) -> Glance:
        now = await self._time()
        live = await self._read("glance_live")
        ((kept,),) = await self._read("glance_kept", now, KEPT)
        workers = await self._read("workers")
        leases = await self._read("glance_leases", SHOWN)
        failures = await self._read("glance_failures", now, EXAMINED, SHOWN)
        return Glance(
            from_microseconds(now), sight.queues_of(live, now),
            sum(count for _, state, _, count, _ in live if state == State.WAITING),
            sum(count for _, _, is_parked, count, _ in live if is_parked), kept,
            [sight.worker_of(row) for row in workers], [sight.glance_of(row) for row in leases],
            [sight.glance_of(row) for row in failures],
        )  # fmt: skip

    async def examine(self, durability: str | None = None) -> list[Finding]:
        examiner = examining.Examiner(self._open.caller, self._open.pool, self._docket, await self._time())
        return await examiner.examine(durability or self.durability)

    async def mend(self) -> list[Repair]:
        async with self._open.pool.lend() as wire:
            altered = await migrating.altered(wire, self._location)
            if altered:
                await migrating.restore(wire, self._location)
        return [Repair("functions of the schema put back as they should be", len(altered))] if altered else []

    @asynccontextmanager
    async def watch(self, *topics: Topic) -> AsyncGenerator[AsyncIterator[Event]]:
        listener = self._open.listener
        watcher = Watcher(frozenset(topics))
        await listener.add(watcher)
        try:
            yield Events(watcher)
        finally:
            await listener.remove(watcher)

    # Upkeep

    async def sweep(self, *, silent_for: timedelta = timedelta(minutes=1), at_most: int = 1000) -> Swept:
        silence = duration_to_microseconds(silent_for)
        answer = answers.tidied.decode(await self._call("sweep", self._docket, self._now, silence, at_most))
        self._tell(answer)
        return Swept(*answer.swept)

    async def archived(self) -> int:
        return (await self._read("archived"))[0][0]

    async def residue(self) -> dict[str, int]:
        return dict(await self._read("residue"))

    # Connection

    @property
    def _now(self) -> int | None:
        """The time for the functions: their own, unless a test moves the clock."""
        return None if self._goes_by_the_server else self.clock.microseconds()

    async def _time(self) -> int:
        now = self._now
        return now if now is not None else (await self._open.caller.read(SQL["time"], ()))[0][0]

    async def _read(self, statement: str, *values: Any) -> list[Any]:
        """The rows that one of the named statements finds for this docket."""
        return await self._open.caller.read(SQL[statement], (self._docket, *values))

    async def _call(self, function: str, *values: Any, repeatable: bool = True) -> Any:
        return await self._open.caller.call(function, *values, repeatable=repeatable)

    def _tell(self, news: News) -> None:
        if self._opened is not None:
            self._opened.tell(news)

    @property
    def _open(self) -> Opened:
        if self._opened is None:
            raise EngineUnavailable(f"the docket {self._name!r} is not open; use it inside 'async with'")
        return self._opened
