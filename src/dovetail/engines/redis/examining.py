"""Looking a server over: what it keeps, how much room it has, and whether records and indexes agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from redis import exceptions as driver

from dovetail.engine.finding import limits_with_room, note, ok, orphans, problem, size, warning
from dovetail.engines.redis.branch import Branch
from dovetail.engines.redis.durability import setting
from dovetail.engines.redis.location import Location
from dovetail.engines.redis.rights import rights
from dovetail.model import Finding, Repair, Severity

FULL, FILLING = 0.9, 0.75
"""The shares of the memory that are a problem, and a warning."""
CROWDED = 0.8
"""The share of the clients that may be connected."""
ORPHANS = 200
SHORT_SCRIPTS = 1000
"""Milliseconds: a script of ours takes a few, and on a busy host some more."""

Info = dict[str, str]


async def examine(branch: Branch, location: Location, root: str, durability: str) -> list[Finding]:
    info = await _info(branch)
    found = [*_server(info, durability, location), *await _settings(branch, info, durability)]
    if location.kind == "cluster":
        found.append(await _cluster(branch))
    found.append(await rights(branch, root))
    # Who may not do all that a worker does may not be able to read all either.
    return found + (await _soundness(branch) if found[-1].severity is Severity.OK else [])


async def _info(branch: Branch) -> Info:
    text: bytes = await branch.lane.command("INFO")
    pairs = (line.partition(":") for line in text.decode(errors="replace").splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


# What the server says of itself


def _server(info: Info, durability: str, location: Location) -> Iterator[Finding]:
    name = "Valkey" if "valkey_version" in info else "Redis"
    yield ok("redis.version", f"{name} {info.get('valkey_version') or info['redis_version']}")
    yield _disk(info)
    yield _memory(info)
    yield _eviction(info, durability)
    yield _replicas(info, durability, location)


def _disk(info: Info) -> Finding:
    failing = [
        name for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
        if info.get(name, "ok") != "ok"
    ]  # fmt: skip
    if not failing:
        return ok("redis.disk", "the server could write what it last wrote to its disk")
    return problem(
        "redis.disk",
        f"the server cannot write to its disk: {', '.join(f'{name} {info[name]}' for name in failing)}",
        "look at its log, and at the room and the rights in its folder",
    )


def _memory(info: Info) -> Finding:
    used, most = int(info["used_memory"]), int(info.get("maxmemory", 0))
    if not most:
        return note(
            "redis.memory",
            f"{size(used)} are used, and there is no maxmemory",
            "set maxmemory below what the host has: then new work is refused when it is full, instead of a crash",
        )
    told = f"{size(used)} of {size(most)} are used"
    advice = (
        "raise maxmemory, keep less (execution_ttl), or move large payloads elsewhere; when full, new work is refused"
    )
    if used > most * FULL:
        return problem("redis.memory", told, advice)
    return warning("redis.memory", told, advice) if used > most * FILLING else ok("redis.memory", told)


def _eviction(info: Info, durability: str) -> Finding:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return ok("redis.eviction", "nothing is evicted when memory is full")
    told = f"the server evicts keys when its memory is full (maxmemory-policy {policy}), and runs with them"
    advice = "set maxmemory-policy noeviction"
    return (
        warning("redis.eviction", told, advice) if durability == "process" else problem("redis.eviction", told, advice)
    )


def _replicas(info: Info, durability: str, location: Location) -> Finding:
    count = int(info.get("connected_slaves", 0))
    if durability == "replicated" and count < location.replicas:
        return problem(
            "redis.replicas",
            f"{count} replicas are connected, and {location.replicas} have to confirm",
            "bring the replicas back, or lower `replicas` in the URL",
        )
    return ok("redis.replicas", f"{count} replicas are connected")


# What the server was told


async def _settings(branch: Branch, info: Info, durability: str) -> list[Finding]:
    appends = await setting(branch.lane, "appendonly")
    found: list[Finding] = []
    if appends is None:
        found.append(
            note(
                "redis.settings",
                "this user may not see the server's settings",
                "allow it CONFIG|GET, and more is checked; until then see to appendonly and appendfsync yourself",
            )
        )
        appends = {"1": "yes", "0": "no"}.get(info.get("aof_enabled", ""))
    found += _persistence(appends, await setting(branch.lane, "appendfsync"), durability)
    most_clients = await setting(branch.lane, "maxclients") or info.get("maxclients")
    if most_clients and "connected_clients" in info:
        found.append(_clients(int(info["connected_clients"]), int(most_clients)))
    found += _scripts(await setting(branch.lane, "lua-time-limit"))
    if durability == "replicated":
        found += _min_replicas(await setting(branch.lane, "min-replicas-to-write"))
    return found


def _persistence(appends: str | None, syncs: str | None, durability: str) -> Iterator[Finding]:
    if appends is None:
        return
    if appends != "yes":
        told = "the server keeps no append-only file: a crash loses what was scheduled since its last snapshot"
        advice = "set appendonly yes, or say durability='process' if that may happen"
        is_fine = durability == "process"
        yield note("redis.persistence", told) if is_fine else problem("redis.persistence", told, advice)
    elif syncs == "no" and durability != "process":
        yield warning(
            "redis.persistence",
            "the append-only file reaches the disk when the system likes: a crash of the host may lose half a minute",
            "set appendfsync everysec, or always",
        )
    elif syncs == "everysec" and durability != "process":
        yield note(
            "redis.persistence",
            "the append-only file reaches the disk once a second: a crash of the host may lose the last one",
            "set appendfsync always if not even that may be lost",
        )
    else:
        yield ok("redis.persistence", f"there is an append-only file (appendfsync {syncs or 'unknown'})")


def _clients(connected: int, most: int) -> Finding:
    told = f"{connected} of {most} clients are connected"
    if connected < most * CROWDED:
        return ok("redis.clients", told)
    return warning("redis.clients", told, "raise maxclients, or look for a program that does not close its connections")


def _scripts(limit: str | None) -> Iterator[Finding]:
    if limit is None:
        return
    if 0 < int(limit) < SHORT_SCRIPTS:
        yield warning(
            "redis.scripts",
            f"a script counts as too slow after {limit} ms, and everybody else is then turned away",
            "set lua-time-limit (busy-reply-threshold) to 5000, which is the default",
        )
    else:
        yield ok("redis.scripts", f"scripts may take {limit} ms before others are turned away")


def _min_replicas(least: str | None) -> Iterator[Finding]:
    if least == "0":
        yield note(
            "redis.min_replicas",
            "a master that has lost its replicas goes on taking writes, which a failover then loses",
            "set min-replicas-to-write 1",
        )


async def _cluster(branch: Branch) -> Finding:
    try:
        text: bytes = await branch.lane.command("CLUSTER", "INFO")
    except driver.ResponseError as error:
        return note("redis.cluster", f"this user may not ask how the cluster is: {error}", "allow it CLUSTER|INFO")
    info = dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)
    if info["cluster_state"] == "ok" and info["cluster_slots_ok"] == "16384":
        return ok("redis.cluster", f"the cluster of {info['cluster_known_nodes']} nodes is whole")
    return problem(
        "redis.cluster",
        f"the cluster's state is {info['cluster_state']}, and {info['cluster_slots_ok']} of 16384 slots are served",
        "bring back the nodes that are down, or assign their slots",
    )


# Whether records and indexes agree


async def _soundness(branch: Branch) -> list[Finding]:
    seen = await walk(branch, "examine")
    stuck = [name for name, room in seen.rooms if room > seen.turns[name]]
    found = [limits_with_room(stuck), orphans(seen.orphans)]
    if seen.calls:
        found.append(
            problem(
                "redis.calls",
                f"{seen.calls} live runs have lost their task and arguments, and can never start",
                "keys were evicted or removed by hand: cancel these runs, and schedule them again",
            )
        )
    if not seen.lost and not seen.gone:
        return [*found, ok("redis.indexes", "records and indexes agree")]
    return [
        *found,
        warning(
            "redis.indexes",
            f"{seen.lost} records stand in no index, and {seen.gone} entries of indexes have no record",
            "keys were evicted or removed by hand; `dovetail doctor --repair` puts the indexes right",
        ),
    ]


class Seen:
    """What a walk through all records and indexes met."""

    def __init__(self) -> None:
        self.lost = 0  # records that stand nowhere
        self.gone = 0  # entries without a record
        self.calls = 0  # live records without a call
        self.orphans: list[str] = []
        self.turns: Counter[str] = Counter()
        self.rooms: list[tuple[str, int]] = []


async def walk(branch: Branch, script: str) -> Seen:
    """Look at everything, a short script at a time. Nothing stands still meanwhile: what moves may be seen twice."""
    seen = Seen()
    cursor: Any = "0"
    while True:
        cursor, lost, orphaned, calls, turns = await branch.ask(script, ("records", cursor))
        seen.lost += lost
        seen.calls += calls
        seen.orphans += orphaned[: ORPHANS - len(seen.orphans)]
        seen.turns.update(dict[str, int](turns or {}))
        if cursor == "0":
            break
    for kind, name in await branch.ask(script, ("sets",)):
        start: Any = 0
        while start is not False:
            start, gone = await branch.ask(script, ("members", kind, name, start))
            seen.gone += gone
    start = 0
    while start is not False:
        start, rooms = await branch.ask(script, ("limits", start))
        seen.rooms += [(name, room) for name, room in rooms]
    return seen


async def mend(branch: Branch) -> list[Repair]:
    seen = await walk(branch, "mend")
    done = [
        Repair("records put back into their indexes", seen.lost),
        Repair("entries of indexes without a record removed", seen.gone),
    ]
    return [each for each in done if each.count]
