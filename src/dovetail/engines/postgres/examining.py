"""Looking a server over: its settings, who is connected, the state of the tables, and whether what is kept hangs
together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

from dovetail.clock import duration_to_microseconds
from dovetail.engine import statements
from dovetail.engine.finding import limits_with_room, note, ok, orphans, problem, size, some, warning
from dovetail.engines.postgres import migrating
from dovetail.engines.postgres.calling import Caller
from dovetail.engines.postgres.failing import Denied
from dovetail.engines.postgres.pool import SIZE, Pool
from dovetail.engines.postgres.sight import limits_of
from dovetail.engines.postgres.texts import get, put
from dovetail.model import Finding

SQL = statements.load("dovetail.engines.postgres")

LOOKED_AT = 200
IDLE = timedelta(minutes=5)
"""How long a transaction may lie idle: while it does, no row that is deleted can be removed."""
PREPARED = timedelta(minutes=10)
DEAD = 50_000
"""Dead rows that autovacuum should have removed."""
CROWDED = 0.8
"""The share of the server's connections that may be taken."""
NOTICES, FULL_OF_NOTICES = 0.5, 0.9
"""The shares of the notification queue that are a warning, and a problem."""
OLDEST_SUPPORTED = 14
WORKER_CALLS = ("claim", "finish", "heartbeat", "schedule", "sweep", "cancel")


class Examiner:
    """Asks a server about itself, one thing after the other."""

    def __init__(self, caller: Caller, pool: Pool, docket: int, now: int) -> None:
        self._caller = caller
        self._pool = pool
        self._schema = pool.location.schema
        self._docket = docket
        self._now = now

    async def examine(self, durability: str) -> list[Finding]:
        found = [each async for each in self._server(durability)]
        for check, look in self._looks():
            try:
                found.append(await look())
            except Denied as error:
                found.append(note(check, f"this user may not look: {error}", "run the doctor as a user who may"))
        return found

    def _looks(self) -> Iterator[tuple[str, Callable[[], Awaitable[Finding]]]]:
        yield "postgres.idle_transactions", self._idle
        yield "postgres.tables", self._tables
        yield "postgres.functions", self._functions
        yield "postgres.rights", self._rights
        yield "postgres.pooler", self._pooler
        yield "limits.stuck", self._limits
        yield "runs.orphaned", self._orphans

    async def _ask(self, name: str, *values: Any) -> list[Any]:
        return await self._caller.read(SQL[name], values)

    # The server

    async def _server(self, durability: str) -> AsyncIterator[Finding]:
        settings: dict[str, str] = dict(await self._ask("examine_server"))
        session: dict[str, str] = dict(await self._ask("examine_session"))
        ((taken, prepared, notices, sees_all),) = await self._ask("examine_activity", PREPARED)
        yield _version(settings["server_version"])
        yield _fsync(settings, durability)
        yield _commit(session["synchronous_commit"], settings, durability)
        yield _vacuum(settings)
        yield _timeouts(session)
        yield _connections(taken, settings)
        yield _prepared(prepared)
        yield _notices(notices, await self._ask("examine_idle", timedelta()) if notices >= NOTICES else [])
        if not sees_all:
            yield note(
                "postgres.sight",
                "this user does not see what other users' sessions do",
                "GRANT pg_read_all_stats to the user, and more is checked",
            )

    # The schema, and who may use it

    async def _idle(self) -> Finding:
        rows = await self._ask("examine_idle", IDLE)
        if not rows:
            return ok("postgres.idle_transactions", "no transaction lies idle")
        who = "; ".join(_who(*row) for row in rows[:3])
        return warning(
            "postgres.idle_transactions",
            f"transactions lie idle, and keep what is deleted from being removed: {who}",
            "end them, with pg_terminate_backend if need be, and set idle_in_transaction_session_timeout",
        )

    async def _tables(self) -> Finding:
        rows = await self._ask("examine_tables", self._schema, migrating.tables())
        total = sum(row[3] for row in rows)
        swollen = [name for name, live, dead, _, _ in rows if dead > DEAD and dead > live]
        if not swollen:
            return ok("postgres.tables", f"the tables take {size(total)}, and few of their rows are dead")
        return warning(
            "postgres.tables",
            f"most rows are dead in {some(swollen)}, of {size(total)} in all",
            "see whether autovacuum runs, and whether a long transaction, a replication slot or a standby holds it up",
        )

    async def _functions(self) -> Finding:
        async with self._pool.lend() as wire:
            altered = await migrating.altered(wire, self._pool.location)
        if not altered:
            return ok("postgres.functions", f"the schema {self._schema!r} and its functions are of this version")
        return problem(
            "postgres.functions",
            f"functions of the schema {self._schema!r} are not those of this version: {some(altered)}",
            "if all workers have this version, `dovetail doctor --repair` puts them back",
        )

    async def _rights(self) -> Finding:
        ((user, denied),) = await self._ask("examine_rights", f'"{self._schema}"', list(WORKER_CALLS))
        if not denied:
            return ok("postgres.rights", f"{user} may do all that a worker does")
        return note(
            "postgres.rights",
            f"{user} may not {', '.join(denied)}",
            f"if it is to work: GRANT {self._schema}_worker TO {user}; see `dovetail migrate --roles`",
        )

    async def _pooler(self) -> Finding:
        async with self._pool.lend() as wire:
            ((real,),) = await wire.ask("SELECT pg_backend_pid()")
            is_pooled = wire.connection.pgconn.backend_pid != real
        if is_pooled and not self._pool.location.pooled:
            return problem(
                "postgres.pooler",
                "a pooler stands between, and the URL does not say so",
                "add pooled=true to the URL, or name the server itself: settings of one session may reach another's",
            )
        said = "a pooler stands between, as the URL says" if is_pooled else "nothing stands between this and the server"
        return ok("postgres.pooler", said)

    # What is kept

    async def _orphans(self) -> Finding:
        return orphans([get(key) for (key,) in await self._ask("examine_orphans", self._docket, LOOKED_AT)])

    async def _limits(self) -> Finding:
        found: list[str] = []
        for stored, limits, held, turns in await self._ask("examine_limits", self._docket, LOOKED_AT):
            key = get(stored)
            limit = next((each for each in limits_of(limits) if each.key == key), None)
            if limit is not None and limit.window is not None:
                since = self._now - duration_to_microseconds(limit.window)
                ((held,),) = await self._ask("examine_starts", self._docket, put(key), since)
            if limit is None or limit.capacity - held > turns:
                found.append(key)
        return limits_with_room(found)


def _version(version: str) -> Finding:
    major = int(version.split(".")[0].split("beta")[0].split("devel")[0])
    if major >= OLDEST_SUPPORTED:
        return ok("postgres.version", f"PostgreSQL {version}")
    return note("postgres.version", f"PostgreSQL {version} gets no more fixes", "plan for a newer one")


def _fsync(settings: dict[str, str], durability: str) -> Finding:
    off = [name for name in ("fsync", "full_page_writes") if settings[name] == "off"]
    if not off:
        return ok("postgres.fsync", "what is committed is on the disk")
    told = f"{' and '.join(off)} off: a crash of the host can destroy the database"
    advice = f"ALTER SYSTEM SET {off[0]} = on; SELECT pg_reload_conf()"
    return note("postgres.fsync", told, advice) if durability == "process" else problem("postgres.fsync", told, advice)


def _commit(level: str, settings: dict[str, str], durability: str) -> Finding:
    if durability == "process":
        return note("postgres.commit", "durability is 'process': a crash may lose the last moments before it")
    if level == "off":
        return problem(
            "postgres.commit",
            "synchronous_commit is off: a crash may lose what was scheduled and finished just before it",
            "set it to on for this user or database, or say durability='process' if that may happen",
        )
    if durability == "replicated" and level == "local":
        return problem(
            "postgres.commit",
            "synchronous_commit is local: no standby has to confirm, and durability is 'replicated'",
            "set it to on for this user or database",
        )
    standbys = settings["synchronous_standby_names"]
    return ok("postgres.commit", f"synchronous_commit is {level}" + (f", standbys {standbys}" if standbys else ""))


def _vacuum(settings: dict[str, str]) -> Finding:
    if settings["autovacuum"] == "on" and settings["track_counts"] == "on":
        return ok("postgres.autovacuum", "autovacuum is on")
    return problem(
        "postgres.autovacuum",
        "autovacuum is off: rows that were deleted are never removed, and claiming gets slower and slower",
        "set autovacuum and track_counts to on",
    )


def _timeouts(session: dict[str, str]) -> Finding:
    names = ("statement_timeout", "idle_session_timeout", "transaction_timeout")
    limits = [f"{name} {session[name]} ms" for name in names if session.get(name, "0") != "0"]
    if not limits:
        return ok("postgres.timeouts", "no timeout of this user ends sessions or statements")
    return note(
        "postgres.timeouts",
        f"this user has {', '.join(limits)}",
        "Dovetail sets statement_timeout aside for itself, except behind a pooler; give it a user without the others",
    )


def _connections(taken: int, settings: dict[str, str]) -> Finding:
    most = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    told = f"{taken} of {most} connections are taken; a process with a docket and a worker uses up to {3 * SIZE}"
    if taken < most * CROWDED:
        return ok("postgres.connections", told)
    return warning(
        "postgres.connections", told, "raise max_connections, put a pooler before it, or run fewer processes"
    )


def _prepared(count: int) -> Finding:
    if not count:
        return ok("postgres.prepared", "no prepared transaction is left behind")
    return warning(
        "postgres.prepared",
        f"{count} prepared transactions are older than {PREPARED}: what is deleted cannot be removed",
        "look at pg_prepared_xacts, and COMMIT or ROLLBACK PREPARED what is left behind",
    )


def _notices(usage: float, idle: list[Any]) -> Finding:
    told = f"the notification queue is filled to {usage:.0%}"
    if usage < NOTICES:
        return ok("postgres.notifications", told)
    suspect = f" Look first at {_who(*idle[0])}." if idle else ""
    advice = f"a session that listens lies in an open transaction: end it (pg_terminate_backend).{suspect}"
    if usage < FULL_OF_NOTICES:
        return warning("postgres.notifications", told, advice)
    lost = "once it is full, workers hear of new work only when they look by themselves, seconds late"
    return problem("postgres.notifications", f"{told}: {lost}", advice)


def _who(pid: int, user: str, seconds: int) -> str:
    return f"pid {pid} of {user}, idle for {timedelta(seconds=seconds)}"
