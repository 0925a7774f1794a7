"""What the driver's errors mean: whether to try again, where, and what the caller is told."""

from __future__ import annotations

import re
from enum import Enum

from redis import exceptions as driver

from dovetail.errors import DovetailError, EngineFull, EngineUnavailable, InvalidURL, OutcomeUnknown, StoreDamaged


class Unreachable(EngineUnavailable, driver.ConnectionError):
    """The server is out of reach. Programs that use it by themselves, too, catch what the driver raises then."""

    def __init__(self, *args: object) -> None:
        EngineUnavailable.__init__(self, *args)
        # The built-in error in between does not pass it on.
        driver.ConnectionError.__init__(self, *args)  # pyright: ignore[reportUnknownMemberType]

    __repr__ = Exception.__repr__


class ReplyLost(OutcomeUnknown, driver.ConnectionError):
    """The server went out of reach before it answered."""

    __repr__ = Exception.__repr__


class Remedy(Enum):
    """What to do about an error. Nothing was done by the server, except where it says so."""

    LOAD = "load the script"
    WAIT = "wait, and try again"
    MOVE = "find the server anew, and try again"
    REPEAT = "connect again and repeat: it may have been done"
    TELL = "tell the caller"


_BY_CLASS: list[tuple[type[Exception], Remedy]] = [
    (driver.BusyLoadingError, Remedy.WAIT),
    (driver.ClusterDownError, Remedy.WAIT),
    (driver.ReadOnlyError, Remedy.MOVE),
    (driver.AuthenticationError, Remedy.TELL),
    (driver.AuthorizationError, Remedy.TELL),
    (driver.ConnectionError, Remedy.REPEAT),
    (driver.TimeoutError, Remedy.REPEAT),
    (OSError, Remedy.REPEAT),
    (TimeoutError, Remedy.REPEAT),
    (EOFError, Remedy.REPEAT),
]
_BY_WORD = {
    "BUSY": Remedy.WAIT, "LOADING": Remedy.WAIT, "TRYAGAIN": Remedy.WAIT, "CLUSTERDOWN": Remedy.WAIT,
    "NOREPLICAS": Remedy.WAIT, "UNKILLABLE": Remedy.WAIT, "NOMASTERLINK": Remedy.WAIT,
    "READONLY": Remedy.MOVE, "MASTERDOWN": Remedy.MOVE, "MOVED": Remedy.MOVE, "ASK": Remedy.MOVE,
    "NOSCRIPT": Remedy.LOAD,
}  # fmt: skip
_FULL_HOUSE = "max number of clients reached"
_WITHIN_SCRIPT = re.compile(r": -([A-Z]+) ")
"""How Redis before 7 tells of an error that a command met within a script."""


def remedy_for(error: BaseException) -> Remedy:
    if isinstance(error, DovetailError):
        return Remedy.TELL
    for kind, remedy in _BY_CLASS:
        if isinstance(error, kind):
            return remedy
    if _FULL_HOUSE in str(error):
        return Remedy.WAIT
    return _BY_WORD.get(_word(error), Remedy.TELL)


def _word(error: BaseException) -> str:
    """The word in capitals that an answer of the server begins with."""
    text = str(error)
    within = _WITHIN_SCRIPT.search(text)
    return within[1] if within else text.partition(" ")[0]


def told(error: BaseException, where: str) -> BaseException:
    """The driver's error in our words. Our own errors, and what is no error of the driver, stay as they are."""
    if isinstance(error, DovetailError) or not isinstance(error, driver.RedisError | OSError | EOFError):
        return error
    text, word = str(error), _word(error)
    if isinstance(error, driver.OutOfMemoryError) or word == "OOM":
        return EngineFull(
            f"{where}: the server's memory is full (maxmemory); free some or raise the limit, running work can still"
            f" finish ({text})"
        )
    if isinstance(error, driver.AuthenticationError) or word in ("NOAUTH", "WRONGPASS"):
        return Unreachable(
            f"{where} refuses the user name or password; correct them in the URL, as in redis://user:password@host"
            f" ({text})"
        )
    if isinstance(error, driver.NoPermissionError) or word == "NOPERM":
        return EngineUnavailable(
            f"{where}: the user may not do this; allow it all commands on the keys and channels of the docket ({text})"
        )
    if "DB index is out of range" in text or "invalid DB index" in text:
        return InvalidURL(
            f"{where}: the server has no such database; name one below its setting 'databases', such as 0"
        )
    if word == "NOREPLICAS":
        return EngineUnavailable(
            f"{where} has too few replicas, and so takes no writes (min-replicas-to-write); bring them back, or lower"
            f" the number ({text})"
        )
    if isinstance(error, driver.ClusterDownError) or word == "CLUSTERDOWN":
        return EngineUnavailable(
            f"{where}: the cluster has lost nodes, and so answers nobody; bring them back, or let the others go on"
            f" (cluster-require-full-coverage no) ({text})"
        )
    if word == "DENIED":
        return EngineUnavailable(f"{where} is in protected mode; give it a password, or name its own host ({text})")
    if word == "MISCONF":
        return EngineUnavailable(f"{where} cannot write to its disk, and so takes no writes; look there ({text})")
    if remedy_for(error) is not Remedy.TELL or isinstance(error, driver.ConnectionError | OSError | EOFError):
        return Unreachable(f"{where} cannot be reached, or is not ready: {_short(error)}")
    return StoreDamaged(f"{where} holds something that cannot be read, or is no Redis: {text}")


def _short(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
