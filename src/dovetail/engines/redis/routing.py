"""Finding the server that keeps a docket: the one named, the master that sentinels know, or the owner of its slot."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis import exceptions as driver
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from dovetail.engines.redis.location import Location
from dovetail.engines.redis.troubles import Unreachable, told
from dovetail.engines.redis.wire import Wire
from dovetail.errors import EngineUnavailable

CONNECTING = 3.0
"""Seconds for a connection to be made."""
_OF_DRIVER = (driver.RedisError, OSError, EOFError)
OLDEST_REDIS, OLDEST_VALKEY = (6, 2), (7, 2)


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says of itself."""

    run_id: str  # another after every restart
    name: str
    version: tuple[int, ...]
    mode: str

    @property
    def knows_flags(self) -> bool:
        """Whether scripts may say that they have to run when memory is full."""
        return self.name == "Valkey" or self.version >= (7,)


class Route:
    """Makes connections to the server that has a docket now."""

    def __init__(self, location: Location, root: str) -> None:
        self._location = location
        self._slot = key_slot(root.encode())
        self._nodes: list[tuple[str, int]] = list(location.hosts)

    async def connect(self) -> tuple[Wire, Server]:
        """A connection that is ready for use, and who is at its other end."""
        wire = await self._reach()
        try:
            async with asyncio.timeout(CONNECTING):
                server = await self._checked(wire)
        except BaseException:
            self._ask_another_first()
            wire.abort()
            raise
        return wire, server

    async def _reach(self) -> Wire:
        if self._location.kind == "sentinel":
            return await self._reach_master()
        if self._location.kind == "cluster":
            return await self._reach_owner()
        if self._location.path is not None:
            return await self._opened(self._at(self._location.path))
        return await self._opened(self._at(self._location.hosts[0]))

    def _ask_another_first(self) -> None:
        """Whoever does not answer, or names the wrong server, is asked last the next time."""
        self._nodes = [*self._nodes[1:], *self._nodes[:1]]

    # Sentinel

    async def _reach_master(self) -> Wire:
        troubles: list[str] = []
        for host in list(self._nodes):
            try:
                address = await self._ask(host, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._location.service)
            except (driver.RedisError, OSError, EngineUnavailable) as error:
                troubles.append(_trouble(host, error))
                self._ask_another_first()
                continue
            if not address:
                raise EngineUnavailable(
                    f"{self._location.shown}: the sentinel at {host[0]}:{host[1]} knows no service"
                    f" {self._location.service!r}; correct the name after the host"
                )
            return await self._opened(self._at((address[0].decode(), int(address[1]))))
        raise Unreachable(f"{self._location.shown}: no sentinel answers ({'; '.join(troubles)})")

    # Cluster

    async def _reach_owner(self) -> Wire:
        troubles: list[str] = []
        silent: set[tuple[str, int]] = set()
        for host in dict.fromkeys([*self._nodes, *self._location.hosts]):
            owner = host
            try:
                slots = await self._ask(host, "CLUSTER", "SLOTS")
                owner = self._owner(slots, host)
                if owner not in silent:
                    return await self._opened(self._at(owner))
            except driver.ResponseError as error:
                if "cluster support disabled" in str(error):
                    raise EngineUnavailable(
                        f"{self._location.shown}: the server at {host[0]}:{host[1]} is not a cluster; begin the URL"
                        " with redis:// instead of redis+cluster://"
                    ) from error
                raise
            except (driver.RedisError, OSError, EngineUnavailable) as error:
                troubles.append(_trouble(owner, error))
                silent.add(owner)
        raise Unreachable(f"{self._location.shown}: no node of the cluster is ready ({'; '.join(troubles)})")

    def _owner(self, slots: Sequence[Any], asked: tuple[str, int]) -> tuple[str, int]:
        owner: tuple[str, int] | None = None
        nodes: list[tuple[str, int]] = []
        for first, last, master, *_ in slots:
            address = (_name_of(master) or asked[0], int(master[1]))
            nodes.append(address)
            if first <= self._slot <= last:
                owner = address
        # The one that has just answered is asked first the next time.
        self._nodes = list(dict.fromkeys([asked, *nodes]))
        if owner is None:
            raise driver.ClusterDownError(f"slot {self._slot} has no owner")
        return owner

    # Connections

    async def _ask(self, host: tuple[str, int], *command: str) -> Any:
        """Ask one of several: it has a part of the time, so that there is some left for the others."""
        within = CONNECTING / 3
        wire = await self._opened(self._at(host, is_sentinel=self._location.kind == "sentinel"), within)
        try:
            return await wire.command(*(word.encode() for word in command), within=within)
        finally:
            wire.abort()

    async def _opened(self, connection: AbstractConnection, within: float | None = None) -> Wire:
        within = within or CONNECTING
        try:
            async with asyncio.timeout(within):
                await connection.connect()
        except TimeoutError:
            await connection.disconnect(nowait=True)
            raise Unreachable(
                f"{self._location.shown} did not answer within {within:.0f} s; is the host right, and up?"
            ) from None
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if self._location.provider is None or not isinstance(error, Exception) or isinstance(error, _OF_DRIVER):
                raise
            raise Unreachable(
                f"{self._location.shown}: the credential provider gave no credentials ({type(error).__name__}: {error})"
            ) from error
        return Wire(connection)

    def _at(self, where: tuple[str, int] | str, *, is_sentinel: bool = False) -> AbstractConnection:
        location, options = self._location, dict(self._location.options)
        rights, db = location.rights, location.db
        asked = {"username": options.pop("sentinel_username", None), "password": options.pop("sentinel_password", None)}
        if is_sentinel:
            rights, db = asked, 0
        common: dict[str, Any] = {
            "db": db, "protocol": 2, "socket_timeout": None, "socket_connect_timeout": CONNECTING,
            "retry": Retry(NoBackoff(), 0), **rights,
        }  # fmt: skip
        if isinstance(where, str):
            return UnixDomainSocketConnection(path=where, **common)
        host, port = where
        common |= {"host": host, "port": port, "socket_keepalive": True, "socket_keepalive_options": _KEEPALIVE}
        return SSLConnection(**common, **options) if location.tls else Connection(**common)

    async def _checked(self, wire: Wire) -> Server:
        server = server_of(await _info(wire))
        shown = self._location.shown
        oldest = OLDEST_VALKEY if server.name == "Valkey" else OLDEST_REDIS
        if server.version[:2] < oldest:
            raise EngineUnavailable(
                f"{shown} runs {server.name} {_dotted(server.version)}; Dovetail needs Redis {_dotted(OLDEST_REDIS)} or"
                f" Valkey {_dotted(OLDEST_VALKEY)}, or later: upgrade the server"
            )
        if server.mode == "sentinel":
            raise EngineUnavailable(f"{shown} is a sentinel; write redis+sentinel://host:26379/service instead")
        if server.mode == "cluster" and self._location.kind != "cluster":
            raise EngineUnavailable(f"{shown} is a node of a cluster; begin the URL with redis+cluster:// instead")
        if self._location.kind == "sentinel":
            await self._require_master(wire)
        return server

    async def _require_master(self, wire: Wire) -> None:
        """Sentinels may still name the old master for a moment after it became a replica."""
        role = await wire.command(b"ROLE", within=CONNECTING)
        if role[0] != b"master":
            raise driver.ReadOnlyError("the server that the sentinels name is a replica")


def _name_of(node: Sequence[Any]) -> str | None:
    """How a node of a cluster is to be called; None if it does not know: then as the one that told of it."""
    name = node[0].decode() if node[0] else ""
    if name != "?":
        return name or None
    details = list(node[3]) if len(node) > 3 else []  # a host without a name may tell its address here
    told_of = dict(zip(details[::2], details[1::2], strict=False))
    return told_of[b"ip"].decode() if b"ip" in told_of else None


def _trouble(host: tuple[str, int], error: BaseException) -> str:
    return f"{host[0]}:{host[1]}: {error}"


_KEEPALIVE: dict[int, int] = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000))
    if hasattr(socket, name)
}
"""A peer that has vanished without a word is noticed by the kernel, without a command being sent."""


async def _info(wire: Wire) -> dict[str, str]:
    text: bytes = await wire.command(b"INFO", b"server", within=CONNECTING)
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, separator, value in lines if separator}


def server_of(info: dict[str, str]) -> Server:
    is_valkey = "valkey_version" in info
    version = info.get("valkey_version") or info.get("redis_version", "0")
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    mode = info.get("redis_mode") or info.get("server_mode") or "standalone"
    return Server(info.get("run_id", ""), "Valkey" if is_valkey else "Redis", numbers, mode)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)


async def opened(route: Route, shown: str) -> tuple[Wire, Server]:
    """The first connection: what is wrong is told at once, in our words."""
    try:
        return await route.connect()
    except (driver.RedisError, OSError) as error:
        raise told(error, shown) from error
