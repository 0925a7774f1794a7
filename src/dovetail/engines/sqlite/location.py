"""Where a store lives: the URL read, and the place looked at before anything is opened."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from dovetail.errors import EngineUnavailable, InvalidURL, NotADatabase

DEFAULT_FILE = "dovetail.db"
_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}
)
_MAGIC = b"SQLite format 3\x00"


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
    parts = urlsplit(url)
    if parts.scheme == "memory":
        return Location(None, url.partition("://")[2])
    if parts.netloc:
        raise InvalidURL(
            f"url {url!r}: a file has no host; write three slashes, as in 'sqlite:///{parts.netloc}{parts.path}'"
        )
    single = _options(url, parts.query)
    text = unquote(parts.path)[1:] or DEFAULT_FILE
    if "\x00" in text:
        raise InvalidURL(f"url {url!r}: a file name cannot hold a NUL character")
    path = Path(text).expanduser().absolute()
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
    # Reading the head of a file that is open elsewhere would drop this process's locks on it (POSIX), so
    # `holds_database` is asked only before the first connection of the process.


def holds_database(path: Path) -> bool:
    """Whether the file is empty or an SQLite database. Only to be asked before this process opens it."""
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    return head in (b"", _MAGIC)


def _inspect_file_system(location: Location, folder: Path) -> None:
    kind = file_system_of(folder)
    if kind in _NETWORK_FILE_SYSTEMS and not location.single_process:
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
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ").rstrip("/") + "/"
        if here.startswith(point) and len(point) >= len(best):
            best, kind = point, found
    return kind
