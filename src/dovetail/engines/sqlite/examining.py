"""Looking a store over: the settings, the file and its disk, and whether what is kept hangs together."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dovetail.engine.finding import limits_with_room, note, ok, orphans, problem, size, warning
from dovetail.engines.sqlite import limits
from dovetail.engines.sqlite.ballast import Ballast
from dovetail.engines.sqlite.location import NETWORK_FILE_SYSTEMS, Location, file_system_of
from dovetail.engines.sqlite.session import Session
from dovetail.model import Finding

MEGABYTE = 1024 * 1024
SCARCE, SHORT = 64 * MEGABYTE, 1024 * MEGABYTE
"""Free room on a disk that is a problem, and a warning."""
LONG_LOG = 256 * MEGABYTE
"""A write-ahead log that somebody must be keeping from being written back."""
BLOAT = 128 * MEGABYTE
CHECKED = 512 * MEGABYTE
"""The largest file that is read through: it takes about a second."""
LOOKED_AT = 200

FULL = 2
"""The number of `PRAGMA synchronous = FULL`."""


def examine(session: Session, location: Location, durability: str) -> list[Finding]:
    found = [ok("sqlite.version", f"SQLite {sqlite3.sqlite_version}")]
    if location.path is None:
        found.append(
            note(
                "sqlite.memory",
                "the docket is in memory, and gone with this process",
                "for anything but tests, use sqlite:///file.db",
            )
        )
    else:
        found += _file(session, location, location.path, durability)
    with suppress(sqlite3.DatabaseError):  # of a damaged file nothing more can be said than that it is
        found.append(limits_with_room(limits.with_room(session, LOOKED_AT)))
        found.append(orphans([key for (key,) in session.all("orphans", session.docket, LOOKED_AT)]))
    return found


def _file(session: Session, location: Location, path: Path, durability: str) -> Iterator[Finding]:
    yield journal(session)
    yield _synchronous(session, durability)
    yield _file_system(location, path)
    yield _disk(path)
    yield _log(path)
    yield _free_pages(session)
    yield _permissions(path)
    yield _integrity(session, path)


def _number(session: Session, pragma: str) -> int:
    return session.db.execute(f"PRAGMA {pragma}").fetchone()[0]


def journal(session: Session) -> Finding:
    (mode,) = session.db.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        return ok("sqlite.journal", "the file has a write-ahead log")
    return problem(
        "sqlite.journal",
        f"the journal mode is {mode}: readers and writers stand in each other's way",
        "stop whatever sets `PRAGMA journal_mode` on the file, and restart this process: Dovetail sets it to WAL",
    )


def _synchronous(session: Session, durability: str) -> Finding:
    level = _number(session, "synchronous")
    if durability == "process":
        return note(
            "sqlite.synchronous",
            "durability is 'process': a power failure may lose what was written just before",
            "open dockets with durability='durable' if that must not happen",
        )
    if level >= FULL:
        return ok("sqlite.synchronous", "every commit reaches the disk before it counts")
    return problem("sqlite.synchronous", f"synchronous is {level}, less than FULL", "restart this process")


def _file_system(location: Location, path: Path) -> Finding:
    kind = file_system_of(path.parent)
    if kind not in NETWORK_FILE_SYSTEMS:
        return ok("sqlite.file_system", f"the file lies on {kind or 'a file system that this host does not name'}")
    return warning(
        "sqlite.file_system",
        f"the file lies on a network file system ({kind}), where only one process may have it open",
        "use a local disk, PostgreSQL or Redis",
    )


def _disk(path: Path) -> Finding:
    disk = os.statvfs(path.parent)
    free = disk.f_bavail * disk.f_frsize
    told = f"{size(free)} are free on the disk of {path}"
    advice = "free some space: when there is none, new work is refused"
    if free < SCARCE or not Ballast(path).is_there:
        return problem("sqlite.disk", told, advice)
    return warning("sqlite.disk", told, advice) if free < SHORT else ok("sqlite.disk", told)


def _log(path: Path) -> Finding:
    log = Path(f"{path}-wal")
    length = log.stat().st_size if log.exists() else 0
    if length < LONG_LOG:
        return ok("sqlite.log", f"the write-ahead log has {size(length)}")
    return warning(
        "sqlite.log",
        f"the write-ahead log has grown to {size(length)}: a reader keeps it from being written back",
        "look for a process that has had a transaction open on the file for long, and end it",
    )


def _free_pages(session: Session) -> Finding:
    page, pages, free = (_number(session, name) for name in ("page_size", "page_count", "freelist_count"))
    told = f"{size(free * page)} of {size(pages * page)} in the file are free"
    if free * page < BLOAT or free * 2 < pages:
        return ok("sqlite.free_pages", told)
    return note(
        "sqlite.free_pages",
        told,
        "workers give free pages back little by little; to have it now, stop them and run VACUUM",
    )


def _permissions(path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    if not mode & 0o077:
        return ok("sqlite.permissions", "only the owner may read and write the file")
    who = "the world" if mode & 0o007 else "its group"
    return note(
        "sqlite.permissions",
        f"{who} may open {path} (mode {mode:o}), and with it all arguments and results",
        f"chmod 600 {path}, unless other users are meant to",
    )


def _integrity(session: Session, path: Path) -> Finding:
    if path.stat().st_size > CHECKED:
        return note(
            "sqlite.integrity",
            f"the file has more than {size(CHECKED)} and was not read through",
            f"when there is time: sqlite3 {path} 'PRAGMA quick_check'",
        )
    try:
        lines = [line for (line,) in session.db.execute("PRAGMA quick_check(5)")]
    except sqlite3.DatabaseError as error:
        lines = [str(error)]
    if lines == ["ok"]:
        return ok("sqlite.integrity", "the file was read through, and is whole")
    return problem(
        "sqlite.integrity",
        f"the file is damaged: {'; '.join(lines)}",
        "stop all processes, copy the file away, and recover it with `sqlite3 ... .recover`, or from a backup",
    )
