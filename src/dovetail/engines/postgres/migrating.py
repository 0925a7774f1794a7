"""The schema: numbered steps that are only ever added to, then the functions of this version."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable

from dovetail.engines.postgres.failing import Contended
from dovetail.engines.postgres.location import Location
from dovetail.engines.postgres.wire import Wire
from dovetail.errors import InvalidArgument, SchemaOutdated

LOCK_TIMEOUT = "2s"
"""How long a step waits for a table that is in use. Everybody else would wait behind it."""
ATTEMPTS = 30
STEP = 3600.0
"""Seconds that the steps may take: a large table takes its time."""

_FUNCTION = re.compile(r"FUNCTION (\w+)\(.*?AS \$\$(.*?)\$\$", re.DOTALL)

# Plans must not depend on statistics that are old or missing: these leave the planner nothing but the indexes. For the
# same reason rows are looked up by `= ANY (array)`, or by a lateral query with OFFSET 0 or FOR UPDATE, never by a join
# that could be turned round.
SETTINGS = """SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off"""


def files_of_steps() -> list[tuple[int, Traversable]]:
    """The migrations, by number."""
    found: list[tuple[int, Traversable]] = []
    for file in _folder("migrations").iterdir():
        if match := re.fullmatch(r"(\d{3})_\w+\.sql", file.name):
            found.append((int(match[1]), file))
    return sorted(found, key=lambda step: step[0])


def steps() -> list[tuple[int, str]]:
    return [(number, file.read_text(encoding="utf-8")) for number, file in files_of_steps()]


def names_after(version: int) -> list[str]:
    return [file.name.removesuffix(".sql") for number, file in files_of_steps() if number > version]


def newest() -> int:
    return steps()[-1][0]


def functions(schema: str) -> str:
    """The functions of this version. Each is put in the place of the one before it."""
    parts = [
        file.read_text(encoding="utf-8")
        for file in sorted(_folder("sql").iterdir(), key=lambda file: file.name)
        if re.fullmatch(r"\d{2}_\w+\.sql", file.name)
    ]
    return "\n".join(parts).replace("{settings}", SETTINGS).replace("{schema}", f'"{schema}"').replace("{name}", schema)


def script(schema: str, version: int = 0, to: int | None = None) -> str:
    """What brings a schema from one version to another, as SQL to read, or to run by hand in one transaction."""
    wanted = _wanted(to)
    parts = [_schema(schema), f'SET LOCAL search_path = "{schema}", pg_temp;']
    parts += [text for number, text in steps() if version < number <= wanted]
    if wanted == newest():
        parts += [functions(schema), _grants(schema)]
    parts += [
        "CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL);",
        "DELETE FROM schema_version;",
        f"INSERT INTO schema_version (version) VALUES ({wanted});",  # noqa: S608 - a number
    ]
    return "\n\n".join(parts) + "\n"


def roles(schema: str) -> str:
    """The roles, as SQL for an administrator: each may do what its name says, and no more."""
    return (
        _folder("sql")
        .joinpath("roles.sql")
        .read_text(encoding="utf-8")
        .replace("{names}", ", ".join(f'"{schema}".{table}' for table in tables()))
        .replace("{{tables}}", f"{{{','.join(tables())}}}")
        .replace("{schema}", f'"{schema}"')
        .replace("{prefix}", schema)
    )


def tables() -> list[str]:
    found = [name for _, text in steps() for name in re.findall(r"^CREATE (?:TABLE|VIEW) (\w+)", text, re.MULTILINE)]
    return [*found, "schema_version"]


async def version_of(wire: Wire, location: Location) -> int:
    """The version of the schema, 0 for none."""
    # Not by to_regclass, which may not see yet what another session has just made.
    ((exists,),) = await wire.ask(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'schema_version')",
        (location.schema,),
    )
    if not exists:
        return 0
    rows = await wire.ask(f'SELECT version FROM "{location.schema}".schema_version')  # noqa: S608 - a validated name
    return rows[0][0] if rows else 0


async def known_version(wire: Wire, location: Location) -> int:
    """The version; refuse one that this Dovetail does not know."""
    version = await version_of(wire, location)
    if version > newest():
        raise SchemaOutdated(
            f"{location.shown}: the schema {location.schema!r} has version {version}, made by a newer Dovetail; this"
            f" one knows {newest()}: upgrade dovetail-tasks, nothing was changed"
        )
    return version


async def check(wire: Wire, location: Location) -> int:
    """The version; refuse one that this Dovetail does not know, or that it has outgrown."""
    version = await known_version(wire, location)
    if 0 < version < newest():
        raise SchemaOutdated(
            f"{location.shown}: the schema {location.schema!r} has version {version}, and this Dovetail needs"
            f" {newest()}: run `dovetail migrate`"
        )
    return version


async def migrate(wire: Wire, location: Location, to: int | None = None) -> int:
    """Bring the schema to a version, in one transaction under a lock, so that several processes may start at once."""
    wanted = _wanted(to)
    for attempt in range(ATTEMPTS):
        try:
            return await _apply(wire, location, wanted)
        except Contended:
            if attempt == ATTEMPTS - 1:
                raise
        await asyncio.sleep(random.uniform(0.1, 0.5))
    raise AssertionError("unreachable")


async def altered(wire: Wire, location: Location) -> list[str]:
    """Functions that are missing, or are not those of this version: another may have the same tables."""
    wanted = set[tuple[str, str]](_FUNCTION.findall(functions(location.schema)))
    rows = await wire.ask(
        "SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace = $1::regnamespace", (f'"{location.schema}"',)
    )
    return sorted({name for name, _ in wanted - set(rows)})


async def restore(wire: Wire, location: Location) -> None:
    """Put the functions of this version in the place of those that are there. Who may call them stays as it is."""
    statements = [f'SET LOCAL search_path = "{location.schema}", pg_temp;', functions(location.schema)]
    async with _alone(wire, location):
        await wire.script("\n".join([*statements, _grants(location.schema)]))


async def _apply(wire: Wire, location: Location, wanted: int) -> int:
    async with _alone(wire, location):
        version = await known_version(wire, location)
        if version < wanted:
            await wire.script(script(location.schema, version, wanted), patience=STEP)
    return max(version, wanted)


@asynccontextmanager
async def _alone(wire: Wire, location: Location) -> AsyncGenerator[None]:
    """A transaction in which nobody else changes the schema."""
    await wire.script("BEGIN")
    try:
        await wire.script(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        await wire.ask(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"dovetail/migrate/{location.schema}",)
        )
        yield
        await wire.script("COMMIT")
    except BaseException:
        if wire.is_open:
            await wire.script("ROLLBACK")
        raise


def _wanted(to: int | None) -> int:
    wanted = newest() if to is None else to
    if not 0 < wanted <= newest():
        raise InvalidArgument(f"there is no schema version {wanted}; the newest is {newest()}")
    return wanted


def _grants(schema: str) -> str:
    # A function may be called by everyone unless that is taken away. Ours are those that this transaction has made: the
    # schema may hold others' too. The comment tells them apart later.
    return f"""DO $$
DECLARE
    ours regprocedure;
BEGIN
    FOR ours IN
        SELECT oid FROM pg_proc WHERE pronamespace = '"{schema}"'::regnamespace AND xmin = pg_current_xact_id()::xid
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', ours);
        EXECUTE format('COMMENT ON FUNCTION %s IS ''Dovetail''', ours);
    END LOOP;
END $$;"""  # noqa: S608 - a validated name


def _schema(name: str) -> str:
    # Even IF NOT EXISTS asks for the right to create one, which who may migrate need not have.
    return f"""DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{name}') THEN
        CREATE SCHEMA IF NOT EXISTS "{name}";
    END IF;
END $$;"""


def _folder(name: str) -> Traversable:
    return files("dovetail.engines.postgres").joinpath(name)
