"""Where a store lives: the URL read, and the place looked at before anything is opened."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from dovetail.errors import EngineUnavailable, InvalidURL, NotADatabase

DEFAULT_FILE = "dovetail.db"
SMALLEST = 100
"""Bytes of the header that every SQLite database begins with."""
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}
)


@dataclass(frozen=True, slots=True)
class Location:
    """A file, or, without a path, a store in memory that this process shares under its name."""

    path: Path | None
    name: str
    single_process: bool = False  # allows a network file system, where only one process may have the file open

    @property
    def is_memory(self) -> bool:
        return self.path is None


def locate(url: str) -> Location:
    """`sqlite:///path`, `sqlite:////absolute`, `sqlite://` for ./dovetail.db, `memory://name`."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "memory":
        return Location(None, rest)
    # Not by urlsplit: a file's name may hold a '#'.
    place, _, query = rest.partition("?")
    if place and not place.startswith("/"):
        raise InvalidURL(f"url {url!r}: a file has no host; write three slashes, as in 'sqlite:///{place}'")
    single = _options(url, query)
    text = unquote(place)[1:] or DEFAULT_FILE
    if "\x00" in text:
        raise InvalidURL(f"url {url!r}: a file name cannot hold a NUL character")
    try:
        # One file has one name: locks and stores are kept by it.
        path = Path(text).expanduser().resolve()
    except (RuntimeError, OSError) as error:
        raise InvalidURL(f"url {url!r}: {error}") from error
    return Location(path, str(path), single)


def _options(url: str, query: str) -> bool:
    options = dict(parse_qsl(query, keep_blank_values=True))
    single = options.pop("single_process", "false")
    if options:
        raise InvalidURL(f"url {url!r}: unknown option {next(iter(options))!r}; known: single_process")
    if single not in ("true", "false"):
        raise InvalidURL(f"url {url!r}: single_process must be true or false, not {single!r}")
    return single == "true"


def inspect(location: Location) -> None:
    """Refuse a place that cannot hold a store, before anything there is touched."""
    path = location.path
    if path is None:
        return
    folder = path.parent
    if not folder.is_dir():
        raise EngineUnavailable(f"cannot open {path}: the folder {folder} does not exist; create it first")
    if path.is_dir():
        raise NotADatabase(f"cannot open {path}: it is a folder; name a file in it")
    if path.exists():
        _inspect_file(path)
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise EngineUnavailable(f"cannot create {path}: the folder is not writable for this user")
    _inspect_file_system(location, folder)


def _inspect_file(path: Path) -> None:
    if not os.access(path, os.R_OK | os.W_OK):
        raise EngineUnavailable(f"cannot open {path}: the file is not readable and writable for this user")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise NotADatabase(f"cannot open {path}: it is not a regular file")
    if 0 < status.st_size < SMALLEST:
        # SQLite would take so short a file for an empty one, and overwrite it.
        raise NotADatabase(f"cannot open {path}: it is not an SQLite database; nothing was changed")


def _inspect_file_system(location: Location, folder: Path) -> None:
    kind = file_system_of(folder)
    if kind in NETWORK_FILE_SYSTEMS and not location.single_process:
        raise EngineUnavailable(
            f"cannot open {location.path}: it lies on a network file system ({kind}), where SQLite's locks and shared"
            " memory do not work between processes; use a local disk, PostgreSQL or Redis, or, if only one process"
            " will ever open it, add ?single_process=true to the URL"
        )


def file_system_of(folder: Path, mounts: str = "/proc/mounts") -> str:
    """The type of the file system a folder lies on, as Linux tells it; empty where that is not known."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    here = f"{folder.resolve()}/"
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        _, point, found, *_ = fields
        point = point.replace("\\040", " ").rstrip("/") + "/"
        if here.startswith(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
