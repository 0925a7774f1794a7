"""Connections: opened the same way everywhere, and brought to the newest schema."""

from __future__ import annotations

import errno
import os
import random
import re
import sqlite3
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from shutil import disk_usage
from typing import TypeVar

import msgspec

from dovetail.engines.sqlite.location import Location
from dovetail.errors import (
    DovetailError,
    EngineFull,
    EngineUnavailable,
    InvalidArgument,
    NotADatabase,
    SchemaOutdated,
    StoreDamaged,
)

T = TypeVar("T")

LEAST_ROOM = 65536
"""Bytes: with less, not even the files beside the store can be made."""
PATIENCE = 30.0
"""Seconds that a busy file is waited for before the caller is told."""

CAUSED_BY_CONTENTS = (
    sqlite3.OperationalError, sqlite3.IntegrityError, msgspec.MsgspecError, ValueError, TypeError, OverflowError,
)  # fmt: skip

_SYNCHRONOUS = {"durable": "FULL", "process": "NORMAL"}


def connect(location: Location, durability: str, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection with the settings that all of ours have."""
    target = ":memory:" if location.path is None else str(location.path)
    try:
        # Threads: a connection is handed to the one thread that uses it, so the check would only be in the way.
        db = sqlite3.connect(target, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256)
    except sqlite3.Error as error:
        raise translated(error, location) from error
    try:
        # Before anything is changed: whether the file is a database at all, and one that this version understands.
        patiently(lambda: _version(db, location))
        patiently(lambda: _configure(db, location, durability, read_only=read_only))
    except sqlite3.Error as error:
        db.close()
        raise translated(error, location) from error
    except BaseException:
        db.close()
        raise
    return db


def _configure(db: sqlite3.Connection, location: Location, durability: str, *, read_only: bool) -> None:
    if location.single_process:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
    if location.path is not None:
        if not read_only and db.execute("PRAGMA page_count").fetchone() == (0,):
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
    # Checkpoints are ours to run, under the write lock: SQLite before 3.51.3 can corrupt a file when an
    # automatic one races a commit of another process.
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("PRAGMA journal_size_limit = 16777216")
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    db.execute("PRAGMA temp_store = MEMORY")
    if read_only:
        db.execute("PRAGMA query_only = ON")


def patiently(attempt: Callable[[], T], patience: float | None = None) -> T:
    """Do something again while other processes keep the file busy, for as long as patience lasts."""
    deadline = time.monotonic() + (PATIENCE if patience is None else patience)
    pause = 0.0002
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        # Other writers hold the lock for a few milliseconds at most. Jitter keeps waiters out of step.
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(pause * 1.5, 0.02)


def is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_grave(error: sqlite3.Error) -> bool:
    """Whether an error is the store's own, and not that of one request."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary in (
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT,
    )  # fmt: skip


def is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def translated(error: sqlite3.Error, location: Location) -> Exception:
    """SQLite's errors in our words."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    where = location.path or f"memory://{location.name}"
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return EngineUnavailable(
            f"{where} was kept busy by other writers for {PATIENCE:.0f} s; look for a process that holds a"
            " transaction open on it"
        )
    if primary == sqlite3.SQLITE_FULL:
        return EngineFull(f"{where}: the disk is full; free some space, running work can still finish ({error})")
    if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return NotADatabase(f"{where} is not an SQLite database; nothing was changed ({error})")
    if primary in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_IOERR,
    ):
        return EngineUnavailable(f"{where} cannot be opened, read or written: {error}{_likely_cause(location)}")
    return damaged(error, location)


def _likely_cause(location: Location) -> str:
    """What SQLite does not say about a file that it cannot use, and what to do."""
    path = location.path
    if path is None:
        return ""
    if path.is_dir():
        return "; it is a folder, name a file in it"
    if path.parent.is_dir() and disk_usage(path.parent).free < LEAST_ROOM:
        return "; its disk is full, free some space"
    if not os.access(path if path.exists() else path.parent, os.R_OK | os.W_OK):
        return "; this user may not read and write it, see its owner and mode"
    if not os.access(path.parent, os.W_OK):
        return "; this user may not write in its folder, where SQLite keeps its log beside it"
    return ""


def damaged(error: Exception, location: Location) -> Exception:
    """What an error means that the contents of the store have caused. Our own errors stay as they are."""
    if isinstance(error, DovetailError) or not isinstance(error, CAUSED_BY_CONTENTS):
        return error
    where = location.path or f"memory://{location.name}"
    return StoreDamaged(f"{where} holds something that cannot be read: {type(error).__name__}: {error}")


def create_private(path: Path) -> None:
    """Make the file so that only its owner can read it, before SQLite would make it with the umask's rights."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind = EngineFull if full else EngineUnavailable
        raise kind(f"cannot create {path}: {error.strerror}") from error


# Schema


def migrations() -> list[tuple[int, str]]:
    """All of them, by number. They are only ever added to."""
    found: list[tuple[int, str]] = []
    for file in files("dovetail.engines.sqlite").joinpath("migrations").iterdir():
        if match := re.fullmatch(r"(\d{3})_\w+\.sql", file.name):
            found.append((int(match[1]), file.read_text(encoding="utf-8")))
    return sorted(found)


def names() -> list[tuple[int, str]]:
    """What the migrations are called."""
    folder = files("dovetail.engines.sqlite").joinpath("migrations")
    found = [file.name.removesuffix(".sql") for file in folder.iterdir() if re.fullmatch(r"\d{3}_\w+\.sql", file.name)]
    return sorted((int(name[:3]), name) for name in found)


def version_at(location: Location) -> int:
    """The version of the schema in a file, without touching it; 0 if there is none."""
    if location.path is None or not location.path.exists():
        return 0
    try:
        db = sqlite3.connect(f"{location.path.as_uri()}?mode=ro", uri=True)
        try:
            return _version(db, location)
        finally:
            db.close()
    except sqlite3.Error as error:
        raise translated(error, location) from error


def migrate(db: sqlite3.Connection, location: Location) -> int:
    """Apply what is missing, in one transaction, so that several processes may start at once."""
    newest = migrations()[-1][0]
    if _version(db, location) == newest:
        return newest
    patiently(lambda: db.execute("BEGIN IMMEDIATE"))
    try:
        version = migrate_within(db, location)
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
    return version


def migrate_within(db: sqlite3.Connection, location: Location, to: int | None = None) -> int:
    """Apply what is missing, in the transaction that is open."""
    steps = migrations()
    newest = steps[-1][0]
    wanted = newest if to is None else to
    if not 0 < wanted <= newest:
        raise InvalidArgument(f"there is no schema version {wanted}; the newest is {newest}")
    version = _version(db, location)
    if version >= wanted:
        return version
    for number, script in steps:
        if version < number <= wanted:
            for statement in _statements(script):
                db.execute(statement)
    db.execute("CREATE TABLE IF NOT EXISTS dovetail_schema (version INTEGER NOT NULL)")
    db.execute("DELETE FROM dovetail_schema")
    db.execute("INSERT INTO dovetail_schema (version) VALUES (?)", (wanted,))
    return wanted


def _version(db: sqlite3.Connection, location: Location) -> int:
    """The version of our tables in this file, 0 for none. Other tables are the application's own affair."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'dovetail_schema'").fetchone():
        return 0
    (version,) = db.execute("SELECT version FROM dovetail_schema").fetchone()
    newest = migrations()[-1][0]
    if version > newest:
        raise SchemaOutdated(
            f"{location.path} has schema version {version}, made by a newer Dovetail; this one knows {newest}:"
            " upgrade dovetail-tasks, nothing was changed"
        )
    return version


def _statements(script: str) -> list[str]:
    """A script cut into statements. `executescript` will not do: it would commit the transaction first."""
    found: list[str] = []
    current = ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found
