"""A client of the driver's own to the server that keeps a docket, for keys that are not the docket's."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import Sentinel

from dovetail.engines.redis.location import Location
from dovetail.engines.redis.routing import CONNECTING

Client = Redis | RedisCluster


class Lender:
    """Lends one client to all who ask for it in an event loop; or, where nothing may be kept, to each his own."""

    def __init__(self, location: Location, *, keeps: bool) -> None:
        self._location = location
        self._keeps = keeps
        self._kept: Client | None = None
        self._at_the_end = AsyncExitStack()

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[Client]:
        if not self._keeps:
            async with _client_to(self._location) as client:
                yield client
            return
        if self._kept is None:
            self._kept = await self._at_the_end.enter_async_context(_client_to(self._location))
        yield self._kept

    async def close(self) -> None:
        self._kept = None
        await self._at_the_end.aclose()


@asynccontextmanager
async def _client_to(location: Location) -> AsyncGenerator[Client]:
    """Bytes go in, bytes come out. It connects when it is first asked for something."""
    options = dict(location.options)
    asked = {"username": options.pop("sentinel_username", None), "password": options.pop("sentinel_password", None)}
    ways: dict[str, Any] = {"socket_connect_timeout": CONNECTING, "socket_keepalive": True}
    ways |= {"ssl": True, **options} if location.tls else {}
    rights = location.rights
    async with AsyncExitStack() as stack:
        if location.kind == "cluster":
            client = RedisCluster(startup_nodes=[ClusterNode(*host) for host in location.hosts], **rights, **ways)
        elif location.kind == "sentinel":
            sentinels: Any = Sentinel(location.hosts, sentinel_kwargs={**asked, **ways})
            for each in sentinels.sentinels:
                stack.push_async_callback(each.aclose)
            client = sentinels.master_for(location.service, db=location.db, **rights, **ways)
        elif location.path is not None:
            client = Redis(unix_socket_path=location.path, db=location.db, **rights)
        else:
            host, port = location.hosts[0]
            client = Redis(host=host, port=port, db=location.db, **rights, **ways)
        stack.push_async_callback(client.aclose)
        yield client
